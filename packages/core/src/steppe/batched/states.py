"""States of the environments of a batch, for ``load_state_dict`` and ``env[i] = other``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steppe.batched.attributes import NO_CALL
from steppe.batched.backends.in_process import InProcess
from steppe.errors import NotSupported, SpecError

if TYPE_CHECKING:
    from steppe.batched.base import BatchedEnv

__all__ = ["put_states", "states_of_rows"]


def states_of_rows(state_dict: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """Divide the state of a batch among ``n`` environments; the state of one environment is used for all.

    Raises:
        SpecError: the state has other rows than the batch.
    """
    if not any(str(key).startswith("worker") for key in state_dict):
        return [state_dict] * n
    names = [f"worker{row}" for row in range(n)]
    if set(state_dict) != set(names):
        raise SpecError(f"A state of {n} environments is needed, found {sorted(state_dict)}.")
    return [state_dict[name] for name in names]


def put_states(batch: BatchedEnv, rows: list[int], source: Any) -> None:
    """Put environments of a batch into the state of others; see ``BatchedEnv.__setitem__``."""
    others = _sources(source)
    if len(others) != len(rows):
        raise SpecError(f"{len(rows)} rows need as many environments, found {len(others)}.")
    able = batch._have("__setitem__")
    if not all(able[row] for row in rows):
        raise NotSupported(
            "env[i] = other needs environments whose class defines __setitem__(slice(None), other), which copies "
            "the state of the other. Without it use load_state_dict, or reset to a state."
        )
    calls: list[Any] = [NO_CALL] * batch.num_workers
    for row, other in zip(rows, others, strict=True):
        calls[row] = ((slice(None), other), {})
    batch._ask(("__setitem__",), calls)


def _sources(source: Any) -> list[Any]:
    """Return the source environments: those of a list or a SerialEnv, or a single environment."""
    from steppe.batched.base import BatchedEnv

    if isinstance(source, (list, tuple)):
        return list(source)
    if not isinstance(source, BatchedEnv):
        return [source]
    backend = source.start()._backend
    if not isinstance(backend, InProcess):
        raise NotSupported("The environments of a ParallelEnv are in other processes: use a SerialEnv.")
    return list(backend.envs)
