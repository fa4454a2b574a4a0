"""Random steps of one array environment, written where the batch is."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.collectors.actions import RandomActions
from steppe.collectors.writer import FrameWriter
from steppe.envs import ArrayPath, ArrayPlan, EnvBase

__all__ = ["arrays_of", "run_arrays"]


def arrays_of(env: EnvBase) -> ArrayPlan | None:
    """The plan of an environment whose steps can be written into storage, or None."""
    if isinstance(env, ArrayPath) and not env.run_type_checks and not env.is_closed:
        return env.array_plan
    return None


def run_arrays(
    env: ArrayPath, plan: ArrayPlan, writer: FrameWriter, actions: RandomActions, root: TensorDictBase, first: int
) -> TensorDictBase:
    """Step from ``first`` to the end of the batch, and return the root of the next one.

    Args:
        env: an environment on the array path.
        plan: its plan.
        writer: has room for exactly the data of its steps and random actions.
        actions: the random actions to go on with.
        root: data to begin from.
        first: the first step to write.
    """
    program = getattr(env, "array_program", None)
    if program is not None:
        program.load(root)
    steps, arrays = writer.steps, writer.storage.arrays
    outs = [(key, arrays[_below(key)]) for key in dict.fromkeys((*plan.obs_keys, *plan.reward_keys))]
    roots = [(key, arrays[key]) for key in plan.obs_keys]
    for name in plan.done_keys:
        arrays["next", name][first:] = False
        arrays[name][first:] = False
    for key, array in roots:
        array[first] = root.get(key).numpy()
    for key in plan.done_keys:
        arrays[key][first] = root.get(key).numpy()
    writer.root_written(first)
    after = {key: np.empty(array.shape[1:], array.dtype) for key, array in roots}
    done_rows = [(name, arrays["next", name]) for name in plan.done_keys]
    step_into = env.step_into
    step, ended = first, False
    while step < steps:
        block = actions.take(steps - step)
        for key, rows in block.items():
            writer.storage.tensors[key][step : step + len(rows)] = rows
        for action in plan.decode({key: rows.numpy() for key, rows in block.items()}):
            terminated, truncated = step_into(action, {key: array[step, ...] for key, array in outs})
            ended = terminated or truncated
            step += 1
            if ended:
                for name, array in done_rows:
                    array[step - 1] = terminated if name == "terminated" else truncated if name == "truncated" else True
                out = {key: array[step, ...] for key, array in roots} if step < steps else after
                env.reset_into(out, env.take_seed(), None)
                if step < steps:
                    writer.root_written(step)
    if not ended:
        for key, _ in roots:
            after[key][...] = arrays[_below(key)][steps - 1]
    following = root.copy()
    for key, array in after.items():
        following.set(key, torch.from_numpy(array))
    for key in plan.done_keys:
        following.set(key, torch.zeros_like(root.get(key)))
    return following


def _below(key: Any) -> tuple[str, ...]:
    return ("next", key) if isinstance(key, str) else ("next", *key)
