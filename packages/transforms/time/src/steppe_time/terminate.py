"""TerminateTransform: terminate episodes by a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.errors import SpecError
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform

__all__ = ["TerminateTransform"]


class TerminateTransform(PlannedTransform):
    """Terminates an episode if a condition holds after a step.

    ``terminated`` and ``done`` become True at each level that has them; ``truncated`` and resets stay unchanged.

    Args:
        stop: function of the data of a step (``next``) that returns which episodes terminate: a bool, or a bool tensor
            whose leading dimensions match those of the done entries, such as ``[*B]`` or ``[*B, 1]``.
        write_done: set ``done`` too. Otherwise the environment is not reset.

    Raises:
        SpecError: ``stop`` is no function, or, at a step, returns a tensor of another shape.
    """

    writes_done = True
    only_ends = True

    def __init__(self, stop: Callable[[TensorDictBase], Any], *, write_done: bool = True) -> None:
        if not callable(stop):
            raise SpecError(f"TerminateTransform: stop is a function of a TensorDict, found {type(stop).__name__}.")
        super().__init__()
        self.stop = stop
        self.write_done = write_done

    def hooks(self, specs: EnvSpecs) -> Hooks:
        names = ("terminated", "done") if self.write_done else ("terminated",)
        keys = [group.key(name) for group in specs.groups for name in names if name in group.names]

        def predicate(following: TensorDictBase) -> torch.Tensor | None:
            flag = self.stop(following)
            if not isinstance(flag, torch.Tensor):
                flag = torch.as_tensor(flag, device=following.device)
            if flag.dtype is not torch.bool:
                flag = flag.bool()
            return flag if bool(flag if flag.numel() == 1 else flag.any()) else None

        def action(_: object, following: TensorDictBase, flag: torch.Tensor) -> TensorDictBase:
            for key in keys:
                value = following.get(key)
                following.set(key, value | self._shaped(flag, value))
            return following

        return Hooks(predicate=predicate, action=action, reads_root=False, ends_whole=self.write_done)

    @staticmethod
    def _shaped(flag: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        try:
            return flag.reshape(*flag.shape, *(1,) * (value.ndim - flag.ndim)).expand(value.shape)
        except RuntimeError:
            raise SpecError(
                f"TerminateTransform: stop must return a bool, or a bool tensor that broadcasts to "
                f"{tuple(value.shape)} from the front; found one of shape {tuple(flag.shape)}."
            ) from None
