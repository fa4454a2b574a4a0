"""Which trajectory a frame belongs to, and batches of frames as batches of trajectories."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, is_non_tensor

from steppe.envs import DoneGroup
from steppe.errors import SpecError
from steppe.specs import CPU

__all__ = ["TrajectoryIds", "row_ends", "split_trajectories"]


class TrajectoryIds:
    """Numbers trajectories in the order in which they begin; rows that begin together, by row.

    Args:
        batch_size: rows.
    """

    def __init__(self, batch_size: torch.Size) -> None:
        self._current = torch.arange(batch_size.numel(), device=CPU)
        self.begun = batch_size.numel()

    def begin_all(self) -> None:
        """Begin a new trajectory in each row."""
        self._current = torch.arange(self.begun, self.begun + len(self._current), device=CPU)
        self.begun += len(self._current)

    def advance(self, ends: torch.Tensor) -> torch.Tensor:
        """Return the ids ``[*B, T]`` of frames, and go on behind them.

        Args:
            ends: ``[*B, T]`` bool, True for the last frame of a trajectory.
        """
        flat = ends.reshape(len(self._current), -1).t().cpu()
        number = flat.reshape(-1).cumsum(0).reshape(flat.shape)
        follower = torch.where(flat, number + (self.begun - 1), -1)
        # Ids only grow, so the id of a frame is the largest that has begun in its row.
        running = torch.cat([self._current.unsqueeze(0), follower]).cummax(0).values
        self._current = running[-1].clone()
        self.begun += int(number[-1, -1])
        return running[:-1].t().reshape(ends.shape).contiguous()


def row_ends(following: TensorDictBase, groups: list[DoneGroup]) -> torch.Tensor:
    """Tell which frames end their row, ``[*B, T]``: by the root's done entry, or where it has none, any group's.

    Args:
        following: the ``"next"`` data of a batch.
        groups: the levels that have done entries, the root first.
    """
    deciding = groups[:1] if not groups[0].prefix else groups
    levels = [following.get(group.key("done")).reshape((*following.batch_size, -1)).any(-1) for group in deciding]
    return torch.stack(levels).any(0)


def split_trajectories(
    rollout_tensordict: TensorDictBase,
    *,
    prefix: Any = None,
    trajectory_key: Any = None,
    done_key: Any = None,
    as_nested: bool = False,
) -> TensorDictBase:
    """Cut data at the ends of its trajectories.

    A trajectory is a run of frames along the last dimension with one id, or where there are no ids, up to a frame whose
    done entry is True. The work grows with the number of frames alone.

    Args:
        rollout_tensordict: ``[*B, T]`` data with time last.
        prefix: where trajectory ids are, and where the mask goes. Default: ``"collector"`` where that entry exists.
        trajectory_key: the key of the ids. Default: ``"traj_ids"`` below the prefix.
        done_key: the done entry below ``"next"`` to cut at where there are no ids. Default: ``"done"``.
        as_nested: return nested tensors instead of padded ones.

    Returns:
        ``[N, L]``: N trajectories, by row and then by time, padded with zeros (False) to the longest, L, with a bool
        entry ``"mask"`` ``[N, L]`` below the prefix that is False for padding. With ``as_nested``: ``[N]`` data whose
        entries are nested tensors, without a mask.

    Raises:
        SpecError: there are neither ids nor done entries, the data has no dimension, or holds what is no tensor.
    """
    data = rollout_tensordict
    if not data.batch_dims:
        raise SpecError("split_trajectories takes data with a time dimension, found batch size ().")
    prefix, ids = _ids(data, prefix, trajectory_key)
    steps = data.batch_size[-1]
    count = data.batch_size.numel()
    new = torch.zeros((count // steps if steps else 0, steps), dtype=torch.bool, device=data.device or CPU)
    if count:
        new[:, 0] = True
        if ids is not None:
            rows = ids.reshape(-1, steps)
            new[:, 1:] = rows[:, 1:] != rows[:, :-1]
        else:
            new[:, 1:] = _done(data, done_key).reshape(-1, steps)[:, :-1]
    starts = new.reshape(-1).nonzero().squeeze(-1)
    lengths = torch.diff(starts, append=starts.new_tensor([count]))
    flat = data.reshape(count)
    if as_nested:
        return _nested(flat, lengths)
    number = new.reshape(-1).cumsum(0) - 1
    longest = int(lengths.max()) if count else 0
    slots = number * longest + torch.arange(count, device=data.device or CPU) - starts[number]
    padded = _scatter(flat, slots, len(starts), longest)
    mask = torch.zeros(len(starts) * longest, dtype=torch.bool, device=data.device or CPU)
    mask[slots] = True
    padded.set((*prefix, "mask") if prefix else "mask", mask.reshape(len(starts), longest))
    padded.names = [None, "time"]
    return padded


def _ids(data: TensorDictBase, prefix: Any, key: Any) -> tuple[tuple[str, ...], torch.Tensor | None]:
    if prefix is None:
        place = ("collector",) if isinstance(data.get("collector", None), TensorDictBase) else ()
    else:
        place = (prefix,) if isinstance(prefix, str) else tuple(prefix)
    if key is not None:
        ids = data.get(key, None)
        if ids is None:
            raise SpecError(f"split_trajectories: there are no trajectory ids at {key!r}. Found {_keys(data)}.")
        return place, ids
    return place, data.get((*place, "traj_ids"), None)


def _done(data: TensorDictBase, key: Any) -> torch.Tensor:
    path = ("next", *(("done",) if key is None else (key,) if isinstance(key, str) else key))
    done = data.get(path, None)
    if done is None:
        raise SpecError(f"split_trajectories needs trajectory ids, or {path!r} to cut at. Found {_keys(data)}.")
    ended: torch.Tensor = done.reshape((*data.batch_size, -1)).any(-1)
    return ended


def _keys(data: TensorDictBase) -> list[str]:
    return sorted(map(str, data.keys(include_nested=True, leaves_only=True)))


def _scatter(flat: TensorDictBase, slots: torch.Tensor, n: int, longest: int) -> TensorDict:
    """Lay ``[count, *S]`` entries out as ``[n, longest, *S]``; levels keep their batch dimensions below time."""
    out: dict[str, Any] = {}
    for name in flat.keys():
        value = flat.get(name)
        _check_tensor(name, value)
        if isinstance(value, TensorDictBase):
            out[name] = _scatter(value, slots, n, longest)
        else:
            padded = value.new_zeros((n * longest, *value.shape[1:]))
            padded[slots] = value
            out[name] = padded.reshape(n, longest, *value.shape[1:])
    return TensorDict(out, batch_size=(n, longest, *flat.batch_size[1:]), device=flat.device)


def _nested(flat: TensorDictBase, lengths: torch.Tensor) -> TensorDict:
    sizes = lengths.tolist()
    out: dict[str, Any] = {}
    for name in flat.keys():
        value = flat.get(name)
        _check_tensor(name, value)
        if isinstance(value, TensorDictBase):
            out[name] = _nested(value, lengths)
        else:
            out[name] = torch.nested.nested_tensor(list(value.split(sizes)), device=value.device)
    return TensorDict(out, batch_size=(len(sizes),), device=flat.device)


def _check_tensor(name: str, value: Any) -> None:
    if is_non_tensor(value) or not isinstance(value, (torch.Tensor, TensorDictBase)):
        raise SpecError(
            f"split_trajectories pads tensors, and {name!r} holds {type(value).__name__}: leave it out with "
            f"td.exclude({name!r})."
        )
