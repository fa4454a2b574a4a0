"""step_at and reset_at: step or reset some rows of a batch whose class has only masked steps and resets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs.env_info import env_info_values
from steppe.envs.next_root import put_next, written_by_policy
from steppe.errors import SpecError
from steppe.specs import CPU

if TYPE_CHECKING:
    from steppe.envs.reset_and_step import ResetAndStep

__all__ = ["checked_rows", "full_width", "reset_at", "step_at"]


def checked_rows(env: ResetAndStep, rows: object, what: str) -> torch.Tensor:
    """Return rows of the batch as ``[k]`` int64, checked.

    Args:
        env: the environment.
        rows: numbers, a mask with an entry for each row, or a slice.
        what: the method called, for errors.

    Raises:
        SpecError: the batch is not one-dimensional, or a row is out of range or named twice.
    """
    if env.batch_locked and len(env.batch_size) != 1:
        raise SpecError(f"{what} needs a batch of one dimension, and the batch size is {tuple(env.batch_size)}.")
    n = env.batch_size[0] if env.batch_locked else None
    index = _numbers(rows, n, what)
    if n is not None and index.numel() and (int(index.min()) < 0 or int(index.max()) >= n):
        raise SpecError(f"{what}: rows must lie in 0..{n - 1}, found {index.tolist()}.")
    if len(set(index.tolist())) != index.numel():
        raise SpecError(f"{what}: each row may appear only once, found {index.tolist()}.")
    return index


def _numbers(rows: object, n: int | None, what: str) -> torch.Tensor:
    if isinstance(rows, slice) and n is not None:
        return torch.arange(n, device=CPU)[rows]
    try:
        index = torch.as_tensor(rows, device="cpu").reshape(-1)
    except (TypeError, ValueError, RuntimeError):
        raise SpecError(f"{what}: rows must be integers such as [0, 2], found {rows!r}.") from None
    if index.dtype is torch.bool:
        if n is not None and index.numel() != n:
            raise SpecError(f"{what}: a mask must have {n} entries, one for each row, found {index.numel()}.")
        return index.nonzero().reshape(-1)
    if index.numel() and (index.is_floating_point() or index.is_complex()):
        raise SpecError(f"{what}: rows must be integers such as [0, 2], found {rows!r}.")
    return index.to(torch.int64)


def step_at(env: ResetAndStep, tensordict: TensorDictBase, rows: object) -> TensorDictBase:
    """Step some rows of the batch.

    Args:
        env: the environment.
        tensordict: ``[k]`` data with the actions of those rows.
        rows: ``[k]`` int64, indices into a one-dimensional batch, each at most once; or a bool mask ``[B]``, or a
            slice.

    Returns:
        ``tensordict`` with ``"next"``, batch size ``[k]``. Other rows are not stepped.
    """
    # The data is scattered to all rows, which are stepped with a "_step" mask.
    index = checked_rows(env, rows, "step_at")
    if not env.batch_locked and not env.batch_size:
        return env.step(tensordict)
    env._expectation.check_action(tensordict, rows=index)
    data = tensordict.exclude("next")
    written = written_by_policy(tensordict, env.passed_through_keys)
    if written is not None:
        data.set("next", written)
    full = full_width(env, data, index)
    full.set("_step", _mask(env, index))
    with env.keeping_rows():
        following = env.step(full).get("next")[index]
    env.note_use()  # the other rows of this step have made-up values
    return put_next(tensordict, following)


def reset_at(
    env: ResetAndStep, tensordict: TensorDictBase | None, rows: object, *, env_info: Any = None
) -> TensorDictBase:
    """Reset some rows of the batch.

    Args:
        env: the environment.
        tensordict: ``[k]`` data of those rows, or None.
        rows: ``[k]`` int64, indices into a one-dimensional batch; each at most once.
        env_info: ``[k]`` values that fit ``env_info_spec``.

    Returns:
        ``[k]`` data of the rows after their reset.
    """
    index = checked_rows(env, rows, "reset_at")
    if not env.batch_locked and not env.batch_size:
        return env.reset(tensordict, env_info=env_info)
    data = tensordict if tensordict is not None else TensorDict({}, batch_size=[index.numel()], device=env.device)
    full = full_width(env, data.exclude("next"), index)
    full.set("_reset", _mask(env, index).unsqueeze(-1))
    if env_info is not None:
        wide = env.env_info_spec.zero()
        values = env_info_values(env, env_info, rows=index.numel())
        wide[index] = TensorDict(values, batch_size=[index.numel()])
        env_info = wide
    with env.keeping_rows():
        result = env.reset(full, env_info=env_info)[index]
    env.note_use()
    return result if tensordict is None else tensordict.update(result)


def _mask(env: ResetAndStep, index: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(env.batch_size, dtype=torch.bool, device=CPU)
    mask[index] = True
    return mask if env.device is None else mask.to(env.device)


def full_width(env: ResetAndStep, tensordict: TensorDictBase, index: torch.Tensor) -> TensorDictBase:
    """Scatter the data ``[k]`` of the rows ``index`` to all rows; the other rows repeat some of it."""
    full: TensorDictBase
    if not index.numel():
        full = tensordict.new_zeros(torch.Size((env.batch_size[0], *tensordict.batch_size[1:])))
        return full
    # One indexing operation, because tensordict cannot write rows of text into zeros.
    places = torch.zeros(env.batch_size[0], dtype=torch.int64, device=CPU)
    places[index] = torch.arange(index.numel(), device=CPU)
    full = tensordict[places]
    return full
