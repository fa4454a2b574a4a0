"""Environments that are registered in this process, without a package."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..errors import EnvNotFound
from . import messages
from .ids import EnvId


@dataclass(frozen=True)
class Registration:
    """A name registered in process.

    Attributes:
        make: makes the environment.
        names: what the namespace has; None accepts any name.
        takes_name: whether `make` is given the name after the colon: of a namespace it is, of a whole id it is not.
    """

    make: Callable[..., Any]
    names: tuple[str, ...] | None
    takes_name: bool


class Registrations:
    """What is registered, by namespace or whole id. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock: Final = threading.RLock()
        self._by_name: dict[str, Registration] = {}

    def add(self, name: str, make: Callable[..., Any], *, names: Iterable[str] | None) -> None:
        """Register a namespace or a whole id, instead of what was registered under it."""
        listed = None if names is None else tuple(names)
        self.update({name: Registration(make, listed, takes_name=":" not in name)})

    def update(self, registered: Mapping[str, Registration]) -> None:
        """Take over what is registered elsewhere."""
        with self._lock:
            self._by_name.update(registered)

    def all(self) -> dict[str, Registration]:
        """Each registration by its namespace or id."""
        with self._lock:
            return dict(self._by_name)

    def namespaces(self) -> set[str]:
        """The namespaces of which something is registered."""
        return {name.partition(":")[0] for name in self.all()}

    def env_names(self, namespace: str) -> set[str]:
        """The names in a namespace that are known."""
        registered = self.all()
        whole = registered.get(namespace)
        own = {name.partition(":")[2] for name in registered if name.startswith(f"{namespace}:")}
        return own | set(whole.names or () if whole else ())

    def find(self, env_id: EnvId) -> Callable[..., Any] | None:
        """What makes the environment of an id, None where it is not registered here.

        Raises:
            EnvNotFound: its namespace is, and lists other names.
        """
        with self._lock:
            registration = self._by_name.get(str(env_id)) or self._by_name.get(env_id.namespace)
        if registration is None:
            return None
        if not registration.takes_name:
            return registration.make
        if registration.names is not None and env_id.name not in registration.names:
            raise EnvNotFound(
                messages.unknown_registered_env(env_id.namespace, name=env_id.name, names=registration.names)
            )
        return Bound(registration.make, env_id.name)


@dataclass(frozen=True)
class Bound:
    """A registered function with the name it is to make; unlike a partial, equal to another of the same two."""

    make: Callable[..., Any]
    name: str

    def __call__(self, **kwargs: Any) -> Any:
        return self.make(self.name, **kwargs)
