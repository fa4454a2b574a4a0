"""Registrations: environments that were registered with `register_env`, without a package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from ..errors import EnvNotFound
from .ids import EnvId
from .messages import did_you_mean, listed
from .records import EnvMaker


@dataclass(frozen=True)
class Registration:
    """A namespace or id that was registered with `register_env`.

    Attributes:
        make: makes the environment.
        names: the names in the namespace; None accepts any name, and stands for a whole id.
    """

    make: EnvMaker
    names: tuple[str, ...] | None = None


class Registrations:
    """The registrations of this process, by namespace or whole id.

    Safe to use from several threads, because reading, updating and copying a dict are atomic.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, Registration] = {}

    def add(self, name: str, make: EnvMaker, *, names: Iterable[str] | None) -> None:
        """Register a namespace or a whole id; an earlier registration is replaced."""
        self.update({name: Registration(make, None if names is None else tuple(names))})

    def update(self, registered: Mapping[str, Registration]) -> None:
        """Add registrations of another process."""
        self._by_name.update(registered)

    def all(self) -> dict[str, Registration]:
        """Return the registrations by namespace or id."""
        return dict(self._by_name)

    def namespaces(self) -> set[str]:
        """Return the namespaces of all registrations."""
        return {name.partition(":")[0] for name in self.all()}

    def env_names(self, namespace: str) -> set[str]:
        """Return the known names in a namespace."""
        registered = self.all()
        whole = registered.get(namespace)
        names = {name.partition(":")[2] for name in registered if name.startswith(f"{namespace}:")}
        return names | set(whole.names or () if whole else ())

    def find(self, env_id: EnvId) -> EnvMaker | None:
        """Return the function that makes the environment of an id, None if the id is not registered.

        Raises:
            EnvNotFound: its namespace is registered without this name.
        """
        whole, registration = self._by_name.get(str(env_id)), self._by_name.get(env_id.namespace)
        if whole is not None:
            return whole.make
        if registration is None:
            return None
        if registration.names is not None and env_id.name not in registration.names:
            hint = did_you_mean(env_id.name, registration.names)
            raise EnvNotFound(
                f"'{env_id.namespace}:' (registered in this process) has no environment {env_id.name!r}.{hint} "
                f"It has: {listed(registration.names)}."
            )
        return partial(registration.make, env_id.name)
