"""From the arguments of a collector to an environment and a policy that fit."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs import EnvBase
from steppe.errors import NotSupported, PolicyError, SpecError
from steppe.registry import make_env
from steppe.transforms import StepCounter, TransformedEnv

__all__ = ["check_frames", "limit_steps", "make", "policy_of", "refuse", "within_devices"]

#: Arguments of other collectors with this interface that have no meaning here yet, with what to do instead.
_NOT_YET = {
    "replay_buffer": "extend the buffer in the loop: for data in collector: buffer.extend(data.reshape(-1))",
    "extend_buffer": "extend the buffer in the loop: for data in collector: buffer.extend(data.reshape(-1))",
    "trajs_per_batch": "call split_trajectories(data) on each batch",
    "trajs_per_write": "call split_trajectories(data) on each batch",
    "traj_format": "call split_trajectories(data) on each batch",
    "track_traj_ids": "leave it out: ids cost one operation a batch",
    "interruptor": "leave it out",
    "use_buffers": "leave it out: data of fixed shape is written into one storage, other data is stacked",
    "compile_policy": "give torch.compile(policy)",
    "cudagraph_policy": "give tensordict.nn.CudaGraphModule(policy)",
    "no_cuda_sync": "leave it out",
    "weight_updater": "call update_policy_weights_",
    "weight_sync_schemes": "call update_policy_weights_",
    "weight_recv_schemes": "call update_policy_weights_",
    "track_policy_version": "leave it out: ('collector', 'policy_version') is always there",
    "worker_idx": "leave it out",
    "auto_register_policy_transforms": "append the transforms to the environment",
    "pre_collect_hook": "do it in the loop",
    "post_collect_hook": "give it as postproc",
    "compact_obs": "leave it out",
    "backend": "collect in this process, with ParallelEnv to use several",
    "num_collectors": "collect in this process, with ParallelEnv to use several",
    "sync": "collect in this process, with ParallelEnv to use several",
    "backend_options": "collect in this process, with ParallelEnv to use several",
}


def refuse(name: str, given: dict[str, Any], known: list[str]) -> None:
    """Refuse arguments that a collector does not take.

    Raises:
        NotSupported: it is one that other collectors with this interface have.
        TypeError: it is a mistake.
    """
    for argument in given:
        instead = _NOT_YET.get(argument)
        if instead is not None:
            raise NotSupported(f"{name} does not take {argument}= yet. Instead: {instead}.")
        close = difflib.get_close_matches(argument, [*known, *_NOT_YET], 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise TypeError(f"{name} has no argument {argument!r}.{hint}")


def make(create_env_fn: Any, kwargs: dict[str, Any] | None, name: str) -> tuple[EnvBase, bool]:
    """Return the environment, and whether it was made here.

    Raises:
        TypeError: ``create_env_fn`` is none of an environment, an id or a function, or ``kwargs`` has no use.
        SpecError: the function returned something else.
    """
    if isinstance(create_env_fn, EnvBase):
        if kwargs:
            raise TypeError(f"{name}: create_env_kwargs= is for a function or an id, and an environment was given.")
        return create_env_fn, False
    if isinstance(create_env_fn, str):
        env = make_env(create_env_fn, **(kwargs or {}))
    elif isinstance(create_env_fn, (list, tuple)):
        raise TypeError(
            f"{name} takes one environment, found a list of {len(create_env_fn)}. Make a batch of them: "
            "SerialEnv(n, functions) or ParallelEnv(n, functions)."
        )
    elif callable(create_env_fn):
        env = create_env_fn(**(kwargs or {}))
    else:
        raise TypeError(
            f"{name} takes an environment, an id or a function that makes one, found {type(create_env_fn).__name__}."
        )
    if not isinstance(env, EnvBase):
        raise SpecError(f"{name}: create_env_fn returned {type(env).__name__} where an environment is needed.")
    return env, True


def limit_steps(env: EnvBase, max_frames: int | None) -> EnvBase:
    """Let episodes be truncated after ``max_frames`` steps.

    Raises:
        SpecError: it is not a number of steps, or something counts steps already.
    """
    if max_frames is None or max_frames == 0:
        return env
    if isinstance(max_frames, bool) or not isinstance(max_frames, int) or max_frames < 0:
        raise SpecError(f"max_frames_per_traj is a whole number of steps, found {max_frames!r}.")
    if any((key if isinstance(key, str) else key[-1]) == "step_count" for key in env.observation_keys):
        raise SpecError(
            "max_frames_per_traj adds a StepCounter, and the environment has a 'step_count' already: give its "
            "StepCounter max_steps= instead."
        )
    return TransformedEnv(env, StepCounter(max_steps=max_frames))


def check_frames(frames_per_batch: Any, total_frames: Any, rows: int) -> tuple[int, list[str]]:
    """Return how many steps a batch has, and what to warn of.

    Raises:
        SpecError: one of them is not a number of frames.
    """
    if isinstance(frames_per_batch, bool) or not isinstance(frames_per_batch, int) or frames_per_batch < 1:
        raise SpecError(f"frames_per_batch is a whole number >= 1, found {frames_per_batch!r}.")
    if isinstance(total_frames, bool) or not isinstance(total_frames, int) or total_frames == 0:
        raise SpecError(f"total_frames is a whole number >= 1, or negative for no end, found {total_frames!r}.")
    steps = -(-frames_per_batch // rows)
    frames, notes = steps * rows, []
    if frames != frames_per_batch:
        notes.append(f"frames_per_batch={frames_per_batch} is rounded up to {frames}: {steps} steps of {rows} rows.")
    if total_frames > 0 and total_frames % frames:
        whole = -(-total_frames // frames) * frames
        notes.append(f"total_frames={total_frames} is rounded up to {whole}: whole batches of {frames}.")
    return steps, notes


def policy_of(policy: Any, policy_factory: Callable[[], Any] | None) -> Any:
    """The policy that was given, or that the factory makes; None for random actions."""
    if policy is not None and policy_factory is not None:
        raise TypeError("Give a policy or a policy_factory, not both.")
    if policy_factory is None:
        return policy
    made = policy_factory()
    if made is None:
        raise PolicyError("policy_factory() returned None where a policy is needed.")
    return made


def within_devices(act: Callable[[TensorDictBase], TensorDictBase], there: torch.device, back: torch.device) -> Any:
    """Run a policy on another device than the environment."""

    def cast(tensordict: TensorDictBase) -> TensorDictBase:
        return act(tensordict.to(there)).to(back)

    return cast
