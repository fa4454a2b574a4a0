"""Placed: the environment or Compose that a transform belongs to, and the environment before it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from steppe.envs import Module
from steppe.errors import StateError

if TYPE_CHECKING:
    from steppe.transforms.transformed_env import TransformedEnv

__all__ = ["Placed"]


class Placed(Module):
    """A module that belongs to at most one environment or Compose. Copies belong to none."""

    #: Attributes that follow from the environment; they are deleted if it changes, and copies do not have them.
    _derived: ClassVar[tuple[str, ...]] = ("_parent",)
    _owner_ref: Callable[[], Any] | None = None
    _parent: TransformedEnv | None = None

    @property
    def container(self) -> Any:
        """The environment of the transform, or its Compose if that has no environment; None without either."""
        owner = self._owner
        if owner is None or not isinstance(owner, Placed):
            return owner
        above = owner.container
        return owner if above is None else above

    @property
    def collector(self) -> Any:
        """The collector that steps the environment of the transform, or None."""
        container = self.container
        return None if container is None or isinstance(container, Placed) else container.collector

    @property
    def _owner(self) -> Any:
        return None if self._owner_ref is None else self._owner_ref()

    def set_container(self, container: Any) -> None:
        """Set the environment or Compose that the transform belongs to; None for neither.

        A transform may leave a Compose that has no environment. That Compose cannot be added to an environment then.

        Raises:
            StateError: the transform belongs to another environment.
        """
        if container is None:
            self.reset_parent()
            return
        if self._owner is container:
            return
        self._check_free()
        self._owner_ref = weakref.ref(container)
        self._forget_parent()

    def _check_free(self) -> None:
        env = self.container
        if env is not None and not isinstance(env, Placed):
            raise StateError(
                f"This {type(self).__name__} belongs to a {type(env).__name__} already, and a transform has one "
                "place. Use a clone, which shares its buffers: transform.clone()."
            )

    def reset_parent(self) -> None:
        """Leave the environment or Compose."""
        self._owner_ref = None
        self._forget_parent()

    @property
    def parent(self) -> TransformedEnv | None:
        """A TransformedEnv of clones of the transforms before this one; None without an environment.

        It is cached until the transforms of the environment change.
        """
        env = self.container
        if env is None or isinstance(env, Placed):
            return None
        if self._parent is None:
            object.__setattr__(self, "_parent", env.before(self))  # not as a submodule
        return self._parent

    def _forget_parent(self) -> None:
        for name in self._derived:
            vars(self).pop(name, None)

    def _changed(self) -> None:
        """Notify the environment that the specs or the behaviour of the transform have changed."""
        self._forget_parent()
        owner = self._owner
        if owner is not None:
            owner._changed()

    def empty_cache(self) -> None:
        """Clear the values derived from specs, here and in the environment."""
        self._changed()

    def close(self) -> None:
        """Release resources; called when the environment is closed."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_owner_ref", *self._derived)}
