"""SteppingTransform: the base class of transforms that step the environment themselves."""

from __future__ import annotations

from typing import Any, ClassVar

from tensordict import TensorDictBase

from steppe.errors import NotSupported, StateError
from steppe.transforms.base import Transform

__all__ = ["EnvTransform", "SteppingTransform"]


class EnvTransform(Transform):
    """Base class of transforms that need an environment, and cannot be called on stored data."""

    #: What it does, with a verb, for errors: ``"steps its environment"``.
    does: ClassVar[str]

    @property
    def env(self) -> Any:
        """The environment with the transforms before this one.

        Raises:
            StateError: the transform belongs to no environment.
        """
        env = self.parent
        if env is None:
            name = type(self).__name__
            raise StateError(
                f"{name} {self.does}, and belongs to none. Append it to one: env.append_transform({name}(...))."
            )
        return env

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Raise an error: the transform needs an environment.

        Raises:
            NotSupported: always.
        """
        raise NotSupported(
            f"{type(self).__name__} {self.does} and cannot be applied to data that is there already. Append it to the "
            "environment that collects the data."
        )


class SteppingTransform(EnvTransform):
    """Base class of transforms that step their environment, several times in one step or at a reset.

    A subclass overrides ``_step`` or ``_reset`` and uses ``self.env``. It cannot be called on stored data.
    """

    needs_all_rows = True
    does = "steps its environment"
