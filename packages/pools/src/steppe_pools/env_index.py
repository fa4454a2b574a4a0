"""Select environments of a pool by ``env_index``, and split data by environment."""

from __future__ import annotations

from operator import index
from typing import Any

from tensordict import TensorDictBase

from steppe.errors import SpecError

__all__ = ["parse_env_index", "split_by_env"]


def parse_env_index(value: object, n: int, what: str) -> list[int]:
    """Return the environments that an ``env_index`` names.

    Args:
        value: an int, or a list, array, tensor or NonTensorData of ints.
        n: number of environments.
        what: the call, for errors.

    Raises:
        SpecError: ``value`` is empty, or names an environment twice or one that does not exist.
    """
    listed = value.tolist() if hasattr(value, "tolist") else value
    entries: list[Any] = list(listed) if isinstance(listed, (list, tuple, range)) else [listed]
    while entries and all(isinstance(entry, list) and len(entry) == 1 for entry in entries):
        entries = [entry[0] for entry in entries if isinstance(entry, list)]
    try:
        rows = [index(entry) for entry in entries if not isinstance(entry, bool)]
    except TypeError:
        rows = []
    if not rows or len(rows) < len(entries):
        raise SpecError(f"{what}: env_index must be a whole number or a list of them, found {listed!r}.")
    if any(not 0 <= row < n for row in rows):
        raise SpecError(f"{what}: env_index must be from 0 to {n - 1}, found {rows}.")
    if len(set(rows)) != len(rows):
        raise SpecError(f"{what}: env_index must not repeat an environment, found {rows}.")
    return rows


def split_by_env(
    tensordict: TensorDictBase | None, env_index: object, n: int, what: str
) -> dict[int, TensorDictBase | None]:
    """Return a copy of each environment's data, by row.

    The copies have no ``"env_index"`` and no masks.

    Args:
        tensordict: data of the environments, or None.
        env_index: the environments. None: those of ``tensordict["env_index"]``, or all.
        n: number of environments.
        what: the call, for errors.

    Raises:
        SpecError: the data does not name its environments, or has another batch size.
    """
    if env_index is None and tensordict is not None:
        env_index = tensordict.get("env_index", None)
        if env_index is None and tensordict.batch_size != (n,):
            raise SpecError(
                f"{what}: data of batch size {tuple(tensordict.batch_size)} does not name its environments. "
                f'Pass env_index=..., or write td["env_index"]. Only data of all {n} environments needs neither.'
            )
    rows = list(range(n)) if env_index is None else parse_env_index(env_index, n, what)
    if tensordict is None:
        return dict.fromkeys(rows)
    size = tuple(tensordict.batch_size)
    if size != (len(rows),) and not (size == () and len(rows) == 1):
        raise SpecError(
            f"{what}: data for the {len(rows)} environments {rows} must have batch size [{len(rows)}], found {size}."
        )
    data = tensordict.exclude("env_index", "_reset", "_step").detach().clone()
    return dict(zip(rows, [data] if size == () else data.unbind(0), strict=True))
