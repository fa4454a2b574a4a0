"""A differentiable step: a torch autograd function computed by JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import torch
from torch.autograd.function import once_differentiable

from .functions import CompiledFunctions, StepResult
from .tensor_conversion import to_argument, to_torch

__all__ = ["differentiable_step"]


def differentiable_step(
    functions: CompiledFunctions, state: Sequence[torch.Tensor], action: torch.Tensor
) -> StepResult:
    """Step rows so that torch can differentiate the step.

    Gradients flow from state, observation and reward back to the floating-point leaves of the state and to the action.
    Only the inputs are saved: the backward pass computes the step again in JAX.

    Args:
        functions: the compiled functions of the environment.
        state: the leaves of the state, ``[n, ...]``.
        action: ``[n, ...]``.
    """
    outputs = _Step.apply(functions, action, *state)  # type: ignore[no-untyped-call]
    states, observations = len(functions.state_leaves), len(functions.observation_leaves)
    return StepResult(tuple(outputs[:states]), tuple(outputs[states : states + observations]), *outputs[-2:])


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, functions: CompiledFunctions, action: torch.Tensor, *state: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
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
    def backward(ctx: Any, *output_gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        action, *state = ctx.saved_tensors
        parts = tuple(
            to_argument(gradient.contiguous())
            for gradient in output_gradients
            if gradient is not None and gradient.is_floating_point()
        )
        arrays = ctx.functions.gradient(tuple(map(to_argument, state)), to_argument(action), parts)
        jax.block_until_ready(arrays)
        gradients = iter(to_torch(array, action.device) for array in arrays)
        state_gradients = [next(gradients) if is_float else None for is_float in ctx.functions.floating]
        action_gradient = next(gradients) if action.is_floating_point() else None
        # None for ``functions``, which has no gradient.
        return (None, action_gradient, *state_gradients)
