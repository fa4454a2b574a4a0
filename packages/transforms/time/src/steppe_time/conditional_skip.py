"""ConditionalSkip: exclude rows from a step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDictBase

from steppe.errors import SpecError
from steppe.specs import CPU
from steppe.transforms import Transform

__all__ = ["ConditionalSkip"]


class ConditionalSkip(Transform):
    """Exclude rows from a step if a condition holds.

    Neither the environment nor any other transform runs on these rows: they keep their values, and their reward is 0.

    >>> import torch
    >>> from steppe import ConditionalSkip, SerialEnv, TransformedEnv
    >>> from steppe_testing import CountingEnv
    >>> def first_row(td):
    ...     return torch.tensor([True, False])
    >>> env = TransformedEnv(SerialEnv(2, CountingEnv), ConditionalSkip(first_row))
    >>> env.rollout(3)["next", "observation"].squeeze(-1)
    tensor([[0., 0., 0.],
            [1., 2., 3.]])

    Args:
        cond: function of the argument of ``step`` that returns which rows to skip: a bool, or a bool tensor ``[*B]`` or
            ``[*B, 1]``.
    """

    writes_step = True
    needs_env = True
    does = "skips steps of its environment"

    def __init__(self, cond: Callable[[TensorDictBase], bool | torch.Tensor]) -> None:
        super().__init__()
        if not callable(cond):
            raise SpecError(f"ConditionalSkip: cond must be a function of a TensorDict, found {type(cond).__name__}.")
        self.cond = cond

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        skipped = self.cond(tensordict)
        shape = tensordict.batch_size
        if not isinstance(skipped, torch.Tensor):
            steps = torch.full(shape, not skipped, dtype=torch.bool, device=tensordict.device or CPU)
        elif skipped.dtype is not torch.bool or skipped.numel() != shape.numel():
            raise SpecError(
                f"ConditionalSkip: cond must return a bool, or a bool tensor of shape {tuple(shape)}; found "
                f"{skipped.dtype} of shape {tuple(skipped.shape)}."
            )
        else:
            steps = ~skipped.reshape(shape)
        before = tensordict.get("_step", None)
        return tensordict.set("_step", steps if before is None else steps & before.reshape(shape))
