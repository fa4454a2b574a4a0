"""check_env_specs: all disagreements between an environment's specs and its data, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase

from steppe.errors import SpecError

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = ["check_env_specs", "disagreements"]


def check_env_specs(
    env: EnvBase,
    return_contiguous: bool | None = None,
    check_dtype: bool = True,
    seed: int | None = None,
    tensordict: TensorDictBase | None = None,
    break_when_any_done: bool | str | None = None,
    *,
    steps: int = 3,
) -> None:
    """Hold a short random rollout against the specs of an environment.

    Buffers, batches and collectors are laid out from specs, so this must pass before an environment goes into one.

    Args:
        env: the environment; it is reset and stepped. torch's random state is left as it was.
        return_contiguous: passed to ``rollout``; by default False for dynamic specs.
        check_dtype: compare dtypes too.
        seed: seed for torch's global generator during the check.
        tensordict: data to reset from, for environments that take a state.
        break_when_any_done: passed to ``rollout``; ``"both"`` checks both.
        steps: length of the rollout.

    Raises:
        SpecError: listing every disagreement with its key, what was expected, what was found, and a likely cause.
    """
    with torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.manual_seed(seed)
        modes = [True, False] if break_when_any_done == "both" else [break_when_any_done]
        found: list[str] = []
        for mode in modes:
            start = tensordict.clone() if tensordict is not None else None
            data = env.rollout(
                steps, tensordict=start, return_contiguous=bool(return_contiguous), break_when_any_done=mode
            )
            found += [text for text in disagreements(env, data, check_dtype=check_dtype) if text not in found]
    if found:
        lines = "\n".join(f"  - {text}" for text in found)
        raise SpecError(f"{type(env).__name__}: the data does not fit the specs in {len(found)} places:\n{lines}")


def disagreements(env: EnvBase, data: TensorDictBase, *, check_dtype: bool = True) -> list[str]:
    """List the places where a rollout, time last, is not what the specs of ``env`` say."""
    found: list[str] = []
    time = data.batch_dims - 1
    steps = [data[(slice(None),) * time + (t,)] for t in range(data.batch_size[time])]
    expected_root = _leaves(env, ("observation", "done", "action", "state"))
    expected_next = _leaves(env, ("observation", "done", "reward"))
    carried = set(_leaves(env, ("state",)))
    for where, expected in (("", expected_root), ("next", expected_next)):
        first = steps[0].get("next") if where else steps[0]
        actual = {
            key
            for key in first.keys(include_nested=True, leaves_only=True)
            if where or (key if isinstance(key, str) else key[0]) != "next"
        }
        for key in sorted(set(expected) - actual, key=str):
            found.append(_missing(env, where, key))
        for key in sorted(actual - set(expected) - (carried if where else set()), key=str):
            found.append(
                f"{_at(where, key)} is in the data but in no spec. "
                f"Add it to {'observation_spec' if where else 'observation_spec or state_spec'}, or do not return it."
            )
    for t, step in enumerate(steps):
        for where, expected in (("", expected_root), ("next", expected_next)):
            level = step.get("next") if where else step
            for key, leaf in expected.items():
                value = level.get(key, None)
                if value is None or leaf is None:
                    continue
                text = _compare(leaf, value, check_dtype=check_dtype)
                if text and not any(line.startswith(_at(where, key) + " ") for line in found):
                    found.append(f"{_at(where, key)} {text} (step {t})")
    return found


def _leaves(env: EnvBase, kinds: tuple[str, ...]) -> dict[Any, Any]:
    leaves: dict[Any, Any] = {}
    for kind in kinds:
        leaves.update(dict(env._full_spec(kind).items(include_nested=True, leaves_only=True)))
    return leaves


def _at(where: str, key: Any) -> str:
    if not where:
        return repr(key)
    return repr((where, *((key,) if isinstance(key, str) else key)))


def _missing(env: EnvBase, where: str, key: Any) -> str:
    kind = next(
        k for k in ("reward", "done", "action", "state", "observation") if key in set(getattr(env, f"{k}_keys"))
    )
    source = "_step" if where else "_reset"
    return f"{_at(where, key)} is in the {kind} spec but not in the data: return it from {source}, or drop its spec."


def _compare(leaf: Any, value: Any, *, check_dtype: bool) -> str | None:
    if not isinstance(value, torch.Tensor):
        if leaf.dtype is not None:
            return f"must be a tensor of dtype {leaf.dtype}, found {type(value).__name__}: convert it, or use NonTensor"
        return None
    if leaf.dtype is None:
        return f"must be non-tensor data, found a tensor of dtype {value.dtype}: use Unbounded for it"
    if check_dtype and value.dtype is not leaf.dtype:
        return f"must have dtype {leaf.dtype}, found {value.dtype}: cast it, or give the spec dtype={value.dtype}"
    shape = tuple(leaf.shape)
    actual = tuple(value.shape)
    fits = len(shape) == len(actual) and all(want in (-1, have) for want, have in zip(shape, actual, strict=True))
    if not fits:
        if len(actual) >= len(shape) and actual[len(actual) - len(shape) :] == shape:
            return None
        hint = "reshape it" if value.numel() == leaf.shape.numel() else f"give the spec shape={actual}"
        return f"must have shape {shape}, found {actual}: {hint}"
    if -1 not in shape and not leaf.is_in(value):
        return f"is outside its domain {leaf!r}: found values from {value.min().item()} to {value.max().item()}"
    return None
