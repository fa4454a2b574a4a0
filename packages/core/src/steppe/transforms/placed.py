"""Placed: where a transform belongs, in an environment or a Compose, and the environment before it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from steppe.envs import Module
from steppe.errors import StateError

if TYPE_CHECKING:
    from steppe.transforms.env import TransformedEnv

__all__ = ["Placed"]


class Placed(Module):
    """A module that has one place: in an environment, in a Compose, or none. Copies have none."""

    _owner_ref: Callable[[], Any] | None = None
    _parent: TransformedEnv | None = None

    @property
    def container(self) -> Any:
        """The environment that the transform belongs to, or the Compose where that has none; None for neither."""
        owner = self._owner
        if owner is None or not isinstance(owner, Placed):
            return owner
        above = owner.container
        return owner if above is None else above

    @property
    def collector(self) -> Any:
        """The collector that steps the environment of the transform; None without one."""
        container = self.container
        return None if container is None or isinstance(container, Placed) else container.collector

    @property
    def _owner(self) -> Any:
        return None if self._owner_ref is None else self._owner_ref()

    def set_container(self, container: Any) -> None:
        """Belong to an environment or a Compose from now on, or to nothing (None).

        A transform can be taken out of a Compose that has no environment; that Compose can then not be given to one.

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
                "place. Use a copy that shares its buffers: transform.clone()."
            )

    def reset_parent(self) -> None:
        """Belong to nothing any more."""
        self._owner_ref = None
        self._forget_parent()

    @property
    def parent(self) -> TransformedEnv | None:
        """The environment with the transforms before this one, as a new TransformedEnv of clones; None without one.

        It is kept until the transforms of the environment change.
        """
        env = self.container
        if env is None or isinstance(env, Placed):
            return None
        if self._parent is None:
            object.__setattr__(self, "_parent", env.before(self))  # no part of this module
        return self._parent

    def _forget_parent(self) -> None:
        vars(self).pop("_parent", None)

    def _changed(self) -> None:
        """Tell the environment that what the transform does, or what its specs are, is no longer the same."""
        self._forget_parent()
        owner = self._owner
        if owner is not None:
            owner._changed()

    def empty_cache(self) -> None:
        """Forget what was derived from specs, here and in the environment."""
        self._changed()

    def close(self) -> None:
        """Release what the transform holds; called when its environment is closed."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_owner_ref", "_parent")}
