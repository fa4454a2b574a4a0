"""Compile the ``_step`` of an environment with ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase

from steppe.arguments import ignored_argument
from steppe.envs.reset_and_step import ResetAndStep

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = ["compile_step", "forget_compiled_step"]


class _CompiledStep:
    """Call ``_step`` uncompiled ``warmup`` times, and compiled from then on."""

    def __init__(self, step: Callable[[TensorDictBase], TensorDictBase], warmup: int, options: dict[str, Any]) -> None:
        self.uncompiled = step
        self.compiled = torch.compile(step, **options)
        self.remaining = warmup

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self.remaining > 0:
            self.remaining -= 1
            return self.uncompiled(tensordict)
        return self.compiled(tensordict)


def compile_step(env: EnvBase, warmup: int | None = None, **kwargs: Any) -> Any:
    """Compile ``_step`` with ``torch.compile``, for environments of tensor operations.

    It replaces an earlier compilation. Copies and pickles of the environment are not compiled.

    Args:
        env: the environment.
        warmup: how many steps to run uncompiled first.
        **kwargs: for ``torch.compile``: ``backend``, ``mode``, ``fullgraph``, ...

    Returns:
        The environment itself.

    If steps do not go through ``_step`` (array environments and batches), nothing is compiled, and one warning says
    why.
    """
    forget_compiled_step(vars(env))
    reason = None
    if env.steps_others and type(env)._step_and_maybe_reset is not ResetAndStep._step_and_maybe_reset:
        reason = "it steps other environments, each of which can be compiled where it is made: make().compile()"
    elif env.row_writer is not None:
        reason = "it steps through numpy arrays, and there is nothing to compile"
    if reason is not None:
        ignored_argument(type(env).__name__, "compile()", reason, kind="method")
    else:
        vars(env)["_step"] = _CompiledStep(env._step, warmup or 0, kwargs)
    return env


def forget_compiled_step(state: dict[str, Any]) -> None:
    """Remove the compiled step from the attributes of an environment."""
    if isinstance(state.get("_step"), _CompiledStep):
        del state["_step"]
