"""SteppingTransform: the base of transforms that step the environment themselves."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase

from steppe.transforms.base import Transform
from steppe.transforms.unattached import no_environment, not_for_data

__all__ = ["SteppingTransform"]


class SteppingTransform(Transform):
    """Base of transforms that step the environment before them: several times in one step, or at a reset.

    A subclass writes ``_step`` or ``_reset`` with ``self.env``. It cannot be called on data that is there already.
    """

    @property
    def env(self) -> Any:
        """The environment to step: the one with the transforms before this one.

        Raises:
            StateError: the transform belongs to none.
        """
        env = self.parent
        if env is None:
            raise no_environment(self, "steps its environment")
        return env

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Not defined for data that comes from no environment.

        Raises:
            NotSupported: always.
        """
        raise not_for_data(self, "steps an environment")
