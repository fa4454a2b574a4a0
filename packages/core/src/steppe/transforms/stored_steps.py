"""Stored steps: call the hooks of a transform on data that comes from no environment, as an environment calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase

from steppe.envs import merge_rows
from steppe.errors import SpecError
from steppe.specs import SPEC_KINDS, Composite, below_next, is_memory, make_composite_from_td
from steppe.transforms.compiled.transform_hooks import EnvSpecs, Hooks, set_beside
from steppe.transforms.transform_keys import DONE_NAMES, Key, names_of

if TYPE_CHECKING:
    from steppe.transforms.base import Transform

__all__ = ["first_steps", "on_stored_steps", "time_dim_of"]


def time_dim_of(data: TensorDictBase, owner: str) -> int:
    """Return the batch dimension named ``time``, or the last one.

    Raises:
        SpecError: the data has no batch dimension.
    """
    if not data.batch_dims:
        raise SpecError(
            f"{owner} needs steps over time, [*B, T], but the data has no batch dimension. Pass a rollout, or slices."
        )
    return int(data.names.index("time")) if "time" in data.names else int(data.batch_dims) - 1


def first_steps(data: TensorDictBase, owner: str, done_key: Key = "done") -> torch.Tensor:
    """Return which stored steps begin a trajectory, ``[*B, T]`` bool with time last.

    The first step of the data does, those after a step whose ``("next", done_key)`` is True, and those at which
    ``("collector", "traj_ids")`` changes.

    Raises:
        KeyError: the data has neither of these entries.
    """
    time, size = time_dim_of(data, owner), data.batch_size
    done, numbers = data.get(below_next(done_key), None), data.get(("collector", "traj_ids"), None)
    if done is None and numbers is None:
        raise KeyError(
            f"{owner}: there is neither {below_next(done_key)} nor ('collector', 'traj_ids') in the data, at which "
            f"episodes end. Keep one of them in the data. Found {sorted(map(str, _keys(data)))}."
        )
    first = torch.ones(size, dtype=torch.bool, device=(numbers if done is None else done).device).movedim(time, -1)
    first[..., 1:] = False
    if done is not None:
        first[..., 1:] |= done.reshape(*size, -1).any(-1).movedim(time, -1)[..., :-1]
    if numbers is not None:
        numbers = numbers.reshape(*size, -1)[..., 0].movedim(time, -1)
        first[..., 1:] |= numbers[..., 1:] != numbers[..., :-1]
    return first


def on_stored_steps(transform: Transform, data: TensorDictBase) -> TensorDictBase:
    """Call the hooks of a transform on stored data, in place; see :meth:`Transform.forward`."""
    name, following = type(transform).__name__, data.get("next", None)
    specs = _specs_of(data)
    over_time = transform.over_time or bool(_keys(transform.specs_behind(specs).state))
    if over_time and following is None:
        raise SpecError(
            f"{name} keeps values from step to step, so it needs steps over time: data [*B, T] with 'next', as "
            "rollouts, collectors and slices of a buffer have it. Or append it to the environment that collects the "
            f"data. Found {sorted(map(str, _keys(data)))}."
        )
    if over_time:
        first, time = first_steps(data, name), time_dim_of(data, name)
        flags = {key for group in specs.groups for key in group.keys} - {*_keys(data)}  # as a reset returns them
        frames = data.copy().update({key: torch.zeros_like(following.get(key)) for key in flags}).unbind(time)
        specs = _specs_of(frames[0])
    hooks, after = transform.hooks_in(specs), transform.specs_behind(specs)
    transform._forget_parent()  # drops the keys that were found in this data
    if over_time:
        stepped = _replayed(hooks, frames, first.unbind(-1), specs, after)
        for key in {key: None for frame, new in zip(frames, stepped, strict=True) for key in _changed(new, frame)}:
            if not is_memory(key):
                data.set(key, torch.stack([frame.get(key) for frame in stepped], time))
        return data
    step = hooks.step or (lambda _, result: result)
    if following is None:
        return step(data.copy(), data)
    root = data.exclude("next")
    following = step(root.copy(), following.copy())
    root = root if hooks.reset is None else hooks.reset(None, root)
    return data.select(*root.keys(), strict=False, inplace=True).update(root).set("next", following)


def _replayed(hooks: Hooks, frames: Any, first: Any, specs: EnvSpecs, after: EnvSpecs) -> list[TensorDictBase]:
    """Return each step as an environment with the transform returns it, from the steps of one without."""
    rewards = set(_keys(after.reward)) - set(_keys(after.state))
    results: list[TensorDictBase] = []
    kept, ended = frames[0].empty(), None
    for frame, begins in zip(frames, first, strict=True):
        root, stored = frame.exclude("next").update(kept), frame.get("next")
        # The transform may have ended the trajectory itself: a count of steps with a limit does.
        begins = begins if ended is None else begins | ended
        if hooks.reset is not None and bool(begins.any()):
            argument = root.copy()
            for group in specs.groups:
                done = stored.get(group.keys[0])
                mask = begins.reshape(*begins.shape, *(1,) * (done.ndim - begins.ndim))
                argument.set(group.reset_key, mask.expand_as(done))
            fresh = hooks.reset(argument, frame.exclude("next"))
            begun = fresh.select(*_changed(fresh, frame), *_keys(kept), strict=False)
            root.update(merge_rows(begins, begun, root))
        following = stored.copy() if hooks.step is None else hooks.step(root, stored.copy())
        changed = _changed(following, stored)
        kept = following.select(*(key for key in changed if key not in rewards))
        ended = following.get("done").reshape(*begins.shape, -1).any(-1) if "done" in changed else None
        results.append(root.set("next", following))
    return results


def _changed(data: TensorDictBase, before: TensorDictBase) -> list[Key]:
    return [key for key in _keys(data) if data.get(key) is not before.get(key, None)]


def _specs_of(data: TensorDictBase) -> EnvSpecs:
    """Return specs that describe stored data, by the names of its entries below ``"next"``, or of all without it."""
    size, device = data.batch_size, data.device
    kinds = {kind: Composite({}, shape=size, device=device) for kind in SPEC_KINDS}
    whole = make_composite_from_td(data.get("next", data), unsqueeze_null_shapes=False)
    for key in _keys(whole):
        name = names_of(key)[-1]
        kind = "done" if name in DONE_NAMES else "reward" if name == "reward" else "observation"
        set_beside(kinds[kind], key, whole[key], whole)
    return EnvSpecs(**kinds, batch_size=size, device=device)


def _keys(data: Any) -> list[Any]:
    return list(data.keys(include_nested=True, leaves_only=True))
