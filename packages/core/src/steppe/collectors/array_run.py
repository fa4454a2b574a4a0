"""Random steps of one environment that writes rows, copied to where the batch is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.collectors.writer import FrameWriter
from steppe.envs import EnvBase, Loop, RandomActions, Rows, RowWriter, writer_of_one
from steppe.specs import below_next, is_private

__all__ = ["rows_of", "run_rows"]


def rows_of(env: EnvBase) -> RowWriter | None:
    """The row writer of an environment whose steps may go without TensorDicts, or None."""
    return None if env.run_type_checks or env.is_closed else writer_of_one(env)


def run_rows(
    row_writer: RowWriter,
    writer: FrameWriter,
    actions: RandomActions,
    root: TensorDictBase,
    first: int,
    stopped: Callable[[], bool] | None = None,
) -> tuple[int, TensorDictBase]:
    """Step from ``first`` to the end of the batch; returns how many steps it has, and the root of the next one.

    Args:
        row_writer: of one environment.
        writer: has room for exactly the data of its steps and random actions.
        actions: the random actions to go on with.
        root: data to begin from.
        first: the first step to write.
        stopped: asked after each step whether the batch is to end there.
    """
    layout, steps, arrays = row_writer.layout, writer.steps, writer.storage.arrays
    rows = Rows.new(layout)
    loop = Loop(row_writer, rows)
    copies = [(arrays[below_next(key)], rows.next[key][0, ...]) for key, _, _ in layout.written if not is_private(key)]
    roots = [(arrays[key], rows.root[key][0, ...]) for key, _, _ in layout.observations if not is_private(key)]
    done = [(arrays["next", name], following[0, ...]) for name, (_, following) in rows.done.items()]
    if layout.flags_every_step:
        copies += done
    for name in layout.done_keys:
        arrays["next", name][first:] = False
        arrays[name][first:] = False
    for key in (*(key for key, _, _ in layout.observations), *layout.done_keys):
        rows.root[key][0] = root.get(key).numpy()
        if key in arrays:
            arrays[key][first] = rows.root[key][0]
    writer.root_written(first)
    carry = loop.carry if layout.carried else None
    step, ended, at_once = first, False, steps if stopped is None else 1
    while step < steps:
        # What is taken is used: who may have to stop takes one at a time.
        block = actions.take(min(steps - step, at_once))
        for key, values in block.items():
            writer.storage.tensors[key][step : step + len(values)] = values
        given = {key: values.numpy() for key, values in block.items()}
        read = [(rows.root[key], values, step) for key, values in given.items()] if layout.reads_root else []
        for action in row_writer.decode(given):
            for row, taken, begun in read:
                row[0] = taken[step - begun]
            ended = bool(loop.step((action,)))
            for array, row in copies:
                array[step] = row
            step += 1
            if carry is not None:
                carry()
            if ended:
                for array, flag in done:
                    array[step - 1] = flag
                loop.reset((0,))
                if step < steps:
                    for array, row in roots:
                        array[step] = row
                    writer.root_written(step)
        if stopped is not None and stopped():
            break
    following = root.copy()
    for key, _, _ in layout.observations:
        source: Any = rows.root if ended else rows.next
        following.set(key, torch.from_numpy(source[key][0, ...].copy()))
    for key in layout.done_keys:
        following.set(
            key, torch.zeros_like(root.get(key)) if ended else torch.from_numpy(rows.next[key][0, ...].copy())
        )
    return step, following
