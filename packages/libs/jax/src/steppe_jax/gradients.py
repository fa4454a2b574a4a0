"""A step that torch differentiates: forward and backward are computed by JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import torch
from torch.autograd.function import once_differentiable

from .crossing import to_argument, to_torch
from .functions import CompiledFunctions, StepResult

__all__ = ["differentiable_step"]


def differentiable_step(
    functions: CompiledFunctions, state: Sequence[torch.Tensor], action: torch.Tensor
) -> StepResult:
    """Step rows; gradients flow from state, observation and reward back to the floating state and the action.

    What is kept for the way back is what the step was given: JAX computes the step again there.

    Args:
        functions: the environment.
        state: its leaves, ``[n, ...]``.
        action: ``[n, ...]``.
    """
    flat = _Step.apply(functions, action, *state)  # type: ignore[no-untyped-call]
    states, observations = len(functions.state_leaves), len(functions.observation_leaves)
    return StepResult(tuple(flat[:states]), tuple(flat[states : states + observations]), *flat[-2:])


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, functions: CompiledFunctions, action: torch.Tensor, *state: torch.Tensor) -> Any:
        result = functions.step(tuple(map(to_argument, state)), to_argument(action))
        jax.block_until_ready(result)
        device = action.device
        parts = (*result.state, *result.observation, result.reward, result.flags)
        tensors = tuple(to_torch(part, device) for part in parts)
        ctx.functions = functions
        ctx.save_for_backward(action, *state)
        ctx.mark_non_differentiable(*(tensor for tensor in tensors if not tensor.is_floating_point()))
        return tensors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: torch.Tensor) -> Any:
        action, *state = ctx.saved_tensors
        parts = tuple(to_argument(one.contiguous()) for one in given if one is not None and one.is_floating_point())
        found = ctx.functions.gradient(tuple(map(to_argument, state)), to_argument(action), parts)
        jax.block_until_ready(found)
        gradients = iter(to_torch(part, action.device) for part in found)
        of_state = [next(gradients) if is_float else None for is_float in ctx.functions.floating]
        of_action = next(gradients) if action.is_floating_point() else None
        return (None, of_action, *of_state)
