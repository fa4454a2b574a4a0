"""SteppingTransform: the base of transforms that step the environment themselves."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase

from steppe.errors import NotSupported, StateError
from steppe.transforms.base import Transform

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
            name = type(self).__name__
            raise StateError(
                f"{name} steps its environment, and belongs to none. Append it to one: "
                f"env.append_transform({name}(...))."
            )
        return env

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Not defined for data that comes from no environment.

        Raises:
            NotSupported: always.
        """
        raise NotSupported(
            f"{type(self).__name__} steps an environment and cannot be applied to data that is there already. Append "
            "it to the environment that collects the data."
        )
