"""check_env_specs: list all disagreements between an environment's specs and its data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from tensordict import LazyStackedTensorDict, TensorDictBase, is_non_tensor, is_tensor_collection

from steppe.arguments import ignored_argument
from steppe.envs.checks.disagreements import Finding, compare, rewards_at_reset, spec_of_data
from steppe.envs.checks.runtime import Expectation
from steppe.envs.seeding import random_state_kept
from steppe.errors import SpecError
from steppe.specs import SPEC_KINDS

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = ["check_env_specs"]


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
    """Compare the data of a few random steps with the specs of an environment.

    Buffers, batches and collectors are laid out from specs, so this must pass before an environment is used in one.
    The conformance kit also finds entries that an array environment does not write, and values that numpy changes in a
    cast (``check_written_rows`` of steppe-testing).

    Args:
        env: the environment; it is reset and stepped. The random states of torch, numpy, Python and the environment's
            random actions are restored at the end. The generator of the environment itself cannot be.
        return_contiguous: an argument of TorchRL, without an effect and with a warning.
        check_dtype: compare dtypes too.
        seed: seed for the environment and the random actions during the check.
        tensordict: data to reset from, for environments that take a state. It is not changed.
        break_when_any_done: False continues after the end of an episode, which also checks automatic resets (default);
            True stops there; ``"both"`` does both.
        steps: maximum number of steps.

    Raises:
        SpecError: listing every disagreement with its key, the expected value, the value found, and a likely cause.
    """
    if return_contiguous is not None:
        ignored_argument("check_env_specs", "return_contiguous", "steps are compared one by one, and never stacked")
    for key, leaf in ((key, leaf) for kind in SPEC_KINDS for key, leaf in env._full_spec(kind).items(True, True)):
        if leaf is not None and leaf.device is not None and leaf.device.type == "meta":
            raise SpecError(
                f"{type(env).__name__}: {key!r} is on the device 'meta', whose tensors have no values to compare with "
                "the specs. Move the environment first: env.to('cpu')."
            )
    modes = [True, False] if break_when_any_done == "both" else [bool(break_when_any_done)]
    findings: dict[Finding, str] = {}
    env.settle_reward_spec(tensordict)
    with random_state_kept(env), _validation_left_out(env):
        for stop_at_done in modes:
            if seed is not None:
                torch.manual_seed(seed)
                env.set_seed(seed)
            for where, finding in _episode(env, tensordict, steps, stop_at_done):
                if check_dtype or finding.kind != "dtype":
                    findings.setdefault(finding, where)
    if findings:
        lines = "\n".join(f"  - {_said(env, finding)} [{where}]" for finding, where in findings.items())
        places = "1 place" if len(findings) == 1 else f"{len(findings)} places"
        raise SpecError(f"{type(env).__name__}: the data does not fit the specs in {places}:\n{lines}")


def _said(env: EnvBase, finding: Finding) -> str:
    hint = env.spec_hint(finding.entry) if finding.key else ""
    return f"{finding.text} {hint}" if hint else finding.text


def _episode(
    env: EnvBase, start: TensorDictBase | None, steps: int, stop_at_done: bool
) -> Iterator[tuple[str, Finding]]:
    """Reset and step at random; yield each finding with the call that returned the data."""
    root_spec, next_spec = spec_of_data(env, "reset"), spec_of_data(env, "step")
    kept_at_root = set(env.state_keys) | set(env.action_keys)
    if start is not None:
        kept_at_root |= set(start.keys(include_nested=True, leaves_only=True))
    where = "reset"
    returned: list[Any] = []
    try:
        root = env.reset(start.clone() if start is not None else None)
        returned += _noted(root, where)
        for finding in compare(root_spec, root, spare=kept_at_root, what="reset"):
            yield where, finding
        for finding in rewards_at_reset(env, root):
            yield where, finding
        for step in range(1, steps + 1):
            where = f"step {step}"
            root = env.rand_action(root)
            for finding in compare(env.full_action_spec, root, spare=None, what="action"):
                yield where, finding
            frame = env.step(root)
            following = frame.get("next")
            returned += _noted(following, where)
            for finding in compare(next_spec, following, prefix=("next",), spare=set(env.state_keys), what="step"):
                yield where, finding
            for key in env.state_keys:
                if key not in env.observation_keys and frame.get(key, None) is None:
                    yield where, Finding("missing", key, f"{key!r} is in the state spec but not in the data.")
            root = env.step_mdp(frame)
            if env.any_done(root):
                if stop_at_done:
                    break
                where = f"reset after step {step}"
                known = kept_at_root.union(root.keys(include_nested=True, leaves_only=True))
                root = env.reset(root, select_reset_only=True)
                for finding in compare(root_spec, root, spare=known, what="reset"):
                    yield where, finding
        yield from _changed(returned)
    except SpecError as error:
        yield where, Finding("stopped", None, str(error))


def _noted(data: Any, where: str, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any, torch.Tensor, torch.Tensor]]:
    """Yield the tensors of returned data, each with a copy of its current values."""
    if isinstance(data, LazyStackedTensorDict):
        for row in data.unbind(data.stack_dim):
            yield from _noted(row, where, path)
        return
    for name in data.keys():
        value, key = data.get(name), (*path, name)
        if is_tensor_collection(value) and not is_non_tensor(value):
            yield from _noted(value, where, key)
        elif isinstance(value, torch.Tensor) and not value.is_nested:
            yield where, key if len(key) > 1 else name, value, value.detach().clone()


def _changed(returned: list[Any]) -> Iterator[tuple[str, Finding]]:
    """Yield a finding for each tensor that has changed since it was returned."""
    for where, key, now, then in returned:
        current, previous = now.detach(), then
        if current.is_floating_point():
            current, previous = current.nan_to_num(), previous.nan_to_num()
        if not torch.equal(current, previous):
            text = (
                f"{key!r} was changed after it had been returned: the environment has written into that tensor again. "
                "Return a copy of a buffer that is kept: tensor.clone(), or array.copy()."
            )
            yield where, Finding("buffer", key, text)


@contextmanager
def _validation_left_out(env: EnvBase) -> Iterator[None]:
    """Turn off the environment's own check of its first reset and step, which would raise at the first finding."""
    for kind in SPEC_KINDS:
        env._full_spec(kind)  # default specs are made when they are first read, which turns the check on again
    state = env.base_state
    before, checks = state.validated, state.run_type_checks
    state.validated, state.run_type_checks = {"reset", "step"}, False
    strict = Expectation(env, casts=False)
    cache = state.cache = {**(state.cache or {}), "expectation": strict}
    try:
        yield
    finally:
        state.validated, state.run_type_checks = before, checks
        cache.pop("expectation")
