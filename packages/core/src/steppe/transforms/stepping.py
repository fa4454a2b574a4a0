"""SteppingTransform: the base class of transforms that step the environment themselves."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase

from steppe.transforms.base import Transform
from steppe.transforms.placed import no_environment, not_for_data

__all__ = ["SteppingTransform"]


class SteppingTransform(Transform):
    """Base class of transforms that step their environment, several times in one step or at a reset.

    A subclass overrides ``_step`` or ``_reset`` and uses ``self.env``. It cannot be called on stored data.
    """

    needs_all_rows = True

    @property
    def env(self) -> Any:
        """The environment to step: the one with the transforms before this one.

        Raises:
            StateError: the transform belongs to no environment.
        """
        env = self.parent
        if env is None:
            raise no_environment(self, "steps its environment")
        return env

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Raise an error: the transform needs an environment.

        Raises:
            NotSupported: always.
        """
        raise not_for_data(self, "steps an environment")
