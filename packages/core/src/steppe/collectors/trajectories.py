"""TrajectoryIds and split_trajectories: number the trajectories of frames, and cut batches into trajectories."""

from __future__ import annotations

import torch
from tensordict import (
    NestedKey,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    TensorDictBase,
    is_non_tensor,
    is_tensor_collection,
)

from steppe.errors import SpecError
from steppe.specs import CPU, as_path
from steppe.storage import build_td

__all__ = ["TrajectoryIds", "scatter", "split_trajectories"]


class TrajectoryIds:
    """Number trajectories in the order in which they begin; rows that begin together are numbered by row.

    Args:
        batch_size: the batch size of the environment, which has one trajectory in each row after :meth:`begin`.

    Attributes:
        begun: the number of trajectories that have begun.
        numbers: the id of the first trajectory, and the distance of ids that follow each other: collectors whose data
            is joined interleave their ids, so that none is used twice.
    """

    def __init__(self, batch_size: torch.Size) -> None:
        self._current = torch.full((batch_size.numel(),), -1, device=CPU)
        self.begun, self.numbers = 0, (0, 1)

    def begin(self) -> None:
        """Begin new trajectories in all rows."""
        begun = self.begun + len(self._current)
        self._current, self.begun = torch.arange(self.begun, begun, device=CPU), begun

    def advance(self, ends: torch.Tensor) -> torch.Tensor:
        """Return the ids ``[*B, T]`` of the next T frames.

        Args:
            ends: ``[*B, T]`` bool, True for the last frame of a trajectory.
        """
        flat = ends.reshape(len(self._current), -1).t().cpu()
        number = flat.reshape(-1).cumsum(0).reshape(flat.shape)
        follower = torch.where(flat, number + (self.begun - 1), -1)
        # Ids increase, so the id of a frame is the largest one that has begun in its row.
        running = torch.cat([self._current.unsqueeze(0), follower]).cummax(0).values
        ids = running[:-1].t().reshape(ends.shape).contiguous()
        self._current, self.begun = running[-1].clone(), self.begun + int(number[-1, -1])
        first, distance = self.numbers
        return ids if distance == 1 else ids * distance + first


def split_trajectories(
    rollout_tensordict: TensorDictBase,
    *,
    prefix: NestedKey | None = None,
    trajectory_key: NestedKey | None = None,
    done_key: NestedKey | None = None,
    as_nested: bool | torch.layout = False,
) -> TensorDictBase:
    """Cut data into trajectories.

    A trajectory is a sequence of frames along the last dimension that have the same id. Without ids, it ends at a frame
    whose done entry is True. Frames outside of the mask of an interrupted batch are dropped. The runtime depends on the
    number of frames, not on the number of trajectories.

    Args:
        rollout_tensordict: ``[*B, T]`` data, time last.
        prefix: the entry that has the trajectory ids and gets the mask. Default: ``"collector"`` if it has ids,
            otherwise the root if it has ids, otherwise ``"collector"`` if that entry exists.
        trajectory_key: the key of the ids, instead of ``"traj_ids"`` below the prefix; the mask is set beside it.
        done_key: the entry below ``"next"`` that ends trajectories if there are no ids. Default: ``"done"``.
        as_nested: return nested tensors instead of padded ones. Either True (``torch.strided``) or their layout,
            ``torch.strided`` or ``torch.jagged``.

    Returns:
        ``[N, L]``: N trajectories sorted by row and time, padded with zeros (False for bool, None for text) to the
        length L of the longest, with a bool entry ``"mask"`` ``[N, L]`` that is False for padding. If the data had no
        ids, ``"traj_ids"`` ``[N, L]`` int64 numbers the trajectories. With ``as_nested``, data with batch size
        ``[N, -1]`` whose entries are nested tensors, without a mask; ``to_padded_tensor(mask_key="mask")`` converts it
        to the padded form. Padding is no valid action: compute log-probabilities of the real steps,
        ``data[data["collector", "mask"]]``; ``log_prob`` of a padded one-hot action raises a ValueError.

    Raises:
        SpecError: the data has neither ids nor done entries, or no dimension; or ``as_nested`` is set and an entry is
            no tensor.
    """
    data = rollout_tensordict
    if not data.batch_dims:
        raise SpecError("split_trajectories takes data with a time dimension, found batch size ().")
    ids_key = _ids_key(data, prefix, trajectory_key)
    ids = data.get(ids_key, None)
    steps = data.batch_size[-1]
    count = data.batch_size.numel()
    new = torch.zeros((count // steps if steps else 0, steps), dtype=torch.bool, device=data.device or CPU)
    if count:
        new[:, 0] = True
        if ids is not None:
            rows = ids.reshape(-1, steps)
            new[:, 1:] = rows[:, 1:] != rows[:, :-1]
        else:
            new[:, 1:] = _done(data, done_key, ids_key).reshape(-1, steps)[:, :-1]
    flat = data.copy().reshape(count)
    new = new.reshape(-1)
    valid = data.get((*ids_key[:-1], "mask"), None)
    if valid is not None and not bool(valid.all()):
        # The frames outside of the mask are the last ones of their row, so the next valid frame begins another row.
        kept = valid.reshape(count).nonzero().squeeze(-1)
        flat, new, count = flat[kept], new[kept], len(kept)
    starts = new.nonzero().squeeze(-1)
    lengths = torch.diff(starts, append=starts.new_tensor([count]))
    number = new.cumsum(0) - 1
    if ids is None:
        flat.set(ids_key, number)
    if as_nested:
        layout = as_nested if isinstance(as_nested, torch.layout) else torch.strided
        return _nested(flat, lengths.tolist(), layout)
    longest = int(lengths.max()) if count else 0
    slots = number * longest + torch.arange(count, device=data.device or CPU) - starts[number]
    padded = scatter(flat, slots, len(starts), longest)
    mask = torch.zeros(len(starts) * longest, dtype=torch.bool, device=data.device or CPU)
    mask[slots] = True
    padded.set((*ids_key[:-1], "mask"), mask.reshape(len(starts), longest))
    padded.names = [None, "time"]
    return padded


def _ids_key(data: TensorDictBase, prefix: NestedKey | None, key: NestedKey | None) -> tuple[str, ...]:
    """Return the key of the ids, or the key that new ids get."""
    if key is not None:
        return as_path(key)
    if prefix is not None:
        return (*as_path(prefix), "traj_ids")
    nested = "collector" in data.keys()
    if nested and "traj_ids" in data.keys() and data.get(("collector", "traj_ids"), None) is None:
        nested = False
    return ("collector", "traj_ids") if nested else ("traj_ids",)


def _done(data: TensorDictBase, key: NestedKey | None, ids_key: tuple[str, ...]) -> torch.Tensor:
    """Return the done entry ``[*B, T]`` of data without ids."""
    path = ("next", *as_path("done" if key is None else key))
    done = data.get(path, None)
    if done is None:
        keys = sorted(map(str, data.keys(include_nested=True, leaves_only=True)))
        raise SpecError(f"split_trajectories needs trajectory ids at {ids_key!r}, or {path!r} to cut at. Found {keys}.")
    ended: torch.Tensor = done.reshape((*data.batch_size, -1)).any(-1)
    return ended


def scatter(flat: TensorDictBase, slots: torch.Tensor, n: int, longest: int) -> TensorDict:
    """Copy entries ``[count, *S]`` to zeros ``[n, longest, *S]``; nested levels keep their further batch dimensions.

    Args:
        flat: the data.
        slots: for each element, its position in ``[n * longest]``.
        n: number of rows of the result.
        longest: number of columns of the result.
    """
    out: dict[str, object] = {}
    for name in flat.keys():
        value = flat.get(name)
        if is_non_tensor(value):
            out[name] = _scatter_objects(value, slots, n, longest)
        elif isinstance(value, TensorDictBase):
            out[name] = scatter(value, slots, n, longest)
        elif is_tensor_collection(value):
            out[name] = type(value).from_tensordict(scatter(value.to_tensordict(), slots, n, longest))
        else:
            padded = value.new_zeros((n * longest, *value.shape[1:]))
            padded[slots] = value
            out[name] = padded.reshape(n, longest, *value.shape[1:])
    return TensorDict(out, batch_size=(n, longest, *flat.batch_size[1:]), device=flat.device)


def _scatter_objects(value: NonTensorStack, slots: torch.Tensor, n: int, longest: int) -> NonTensorStack:
    """Do the same for data that is no tensor, such as text, padded with None."""
    padding = NonTensorData(None, batch_size=value.batch_size[1:])
    padded = [padding] * (n * longest)
    for i, slot in enumerate(slots.tolist()):
        padded[slot] = value[i]
    return NonTensorStack(*(NonTensorStack(*padded[row * longest : (row + 1) * longest]) for row in range(n)))


def _nested(flat: TensorDictBase, sizes: list[int], layout: torch.layout) -> TensorDict:
    """Return data ``[len(sizes), -1]`` whose entries are nested tensors."""
    out: dict[str, object] = {}
    for name in flat.keys():
        value = flat.get(name)
        if isinstance(value, TensorDictBase) and not is_non_tensor(value):
            out[name] = _nested(value, sizes, layout)
        elif isinstance(value, torch.Tensor):
            out[name] = torch.nested.nested_tensor(list(torch.split(value, sizes)), layout=layout, device=value.device)
        else:
            raise SpecError(
                f"split_trajectories nests tensors, and {name!r} holds {type(value).__name__}: leave it out with "
                f"td.exclude({name!r}), or as_nested=True."
            )
    # The constructor of TensorDict would refuse -1, the size of a nested dimension.
    return build_td(out, torch.Size((len(sizes), -1, *flat.batch_size[1:])), flat.device)
