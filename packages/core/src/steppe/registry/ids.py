"""Environment ids: ``"namespace:name"``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..errors import EnvIdError
from .messages import listed


@dataclass(frozen=True)
class EnvId:
    """An environment id, split.

    Attributes:
        namespace: the plugin that makes the environment, ``"gym"`` in ``"gym:ALE/Pong-v5"``.
        name: the environment's name in the plugin, ``"ALE/Pong-v5"``; it may contain more colons.
    """

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str, *, installed: Callable[[], Iterable[str]] = tuple) -> EnvId:
        """Split an id at the first colon; a name such as ``"my.module:Env-v0"`` stays whole.

        Args:
            text: the id.
            installed: returns the namespaces to list in the error.

        Raises:
            EnvIdError: `text` is not a string of the form ``"namespace:name"``.
        """
        namespace, colon, name = text.partition(":") if isinstance(text, str) else ("", "", "")
        if not colon or not name.strip() or not namespace or namespace.split() != [namespace]:
            example = text if isinstance(text, str) and text and text.isprintable() and " " not in text else ""
            example = "Pendulum-v1" if ":" in example else example or "Pendulum-v1"
            raise EnvIdError(
                f"{text!r} is not an environment id. Write 'namespace:name', for example 'gym:{example}'. "
                f"Installed namespaces: {listed(installed())}."
            )
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}:{self.name}"
