"""The fast step of a batch returns the same data as other steps."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, TensorDict

from steppe import ArrayEnv, Composite, EnvBase, ParallelEnv, SerialEnv, Unbounded
from steppe.errors import ActionError
from steppe_testing import ACTION_KINDS, ArrayCountingEnv, assert_equal_data

BOTH = pytest.mark.parametrize("batch", [SerialEnv, partial(ParallelEnv, num_processes=2)], ids=["serial", "parallel"])


def _counting() -> ArrayCountingEnv:
    return ArrayCountingEnv(max_steps=3)


def _noted(td: TensorDict, step: int) -> None:
    td["log_prob"] = torch.full((2,), float(step))


def _grouped(td: TensorDict, step: int) -> None:
    td["policy"] = TensorDict({"hidden": torch.full((2, 3), step)}, batch_size=[2])


def _named(td: TensorDict, step: int) -> None:
    td.names = ["env"]


def _with_text(td: TensorDict, step: int) -> None:
    td["text"] = NonTensorData(f"step {step}", batch_size=[2])


def _now_and_then(td: TensorDict, step: int) -> None:
    td.pop("extra", None)
    if step % 2:
        td["extra"] = torch.full((2,), step)


@BOTH
@pytest.mark.parametrize("edit", [None, _noted, _grouped, _named, _with_text, _now_and_then])
def test_usual_steps_give_what_a_step_a_root_and_a_reset_give(batch: Any, edit: Any) -> None:
    with batch(2, _counting) as env, batch(2, _counting) as other:
        roots = env.reset(), other.reset()
        actions = env.full_action_spec.rand((8,))["action"].unbind(0)
        for step, action in enumerate(actions):
            for td in roots:
                td["action"] = action
                if edit is not None:
                    edit(td, step)
            found, root = env.step_and_maybe_reset(roots[0])
            # What a class without a way of its own does.
            expected, other_root = EnvBase.step_and_maybe_reset(other, roots[1])
            assert found is roots[0]
            assert_equal_data(found, expected)
            assert_equal_data(root, other_root.exclude("_reset"))
            assert root.names == other_root.names
            roots = root, other_root.exclude("_reset")


class _Noting(ArrayCountingEnv):
    """An environment that records its actions."""

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        vars(self).setdefault("given", []).append(copy.copy(action))
        return super().step_into(action, out)


class _Watched(ArrayEnv):
    """Counts by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_spec = Unbounded((1,))
        self.full_action_spec = Composite()
        self.reward_spec = Unbounded((1,))

    def reset_into(self, out: Any, seed: Any, env_info: Any) -> None:
        self.count = 0
        out["observation"][0] = 0

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        self.count += 1
        out["observation"][0], out["reward"][0] = self.count, 1
        return False, False


@pytest.mark.parametrize("kind", ACTION_KINDS)
def test_usual_steps_hand_over_actions_as_a_rollout_does(kind: str) -> None:
    envs, alone = [_Noting(action=kind, max_steps=50) for _ in range(2)], _Noting(action=kind, max_steps=50)
    actions = alone.full_action_spec.rand((6, 2))
    with SerialEnv(2, [lambda env=env: env for env in envs]) as batch:
        root = batch.reset()
        for step in actions.unbind(0):
            root = batch.step_and_maybe_reset(root.update(step))[1]
    row = iter(actions[:, 1].unbind(0))
    alone.rollout(6, policy=lambda td: td.update(next(row)))
    assert list(map(type, envs[1].given)) == list(map(type, alone.given))
    np.testing.assert_equal(envs[1].given, alone.given)


@BOTH
def test_environments_without_actions_take_usual_steps(batch: Any) -> None:
    with batch(2, _Watched) as env:
        root = env.reset()
        for _ in range(5):
            root = env.step_and_maybe_reset(root)[1]
    assert root["observation"].tolist() == [[5.0], [5.0]]


@BOTH
def test_a_wrong_action_after_usual_steps_is_refused(batch: Any) -> None:
    """The fast path refuses a wrong action, and the batch stays usable."""
    with batch(2, "gym:CartPole-v1") as env:
        root = env.reset()
        for _ in range(3):
            root = env.step_and_maybe_reset(env.rand_action(root))[1]
        root["action"] = torch.ones(2, 2, dtype=torch.int64)
        with pytest.raises(ActionError):
            env.step_and_maybe_reset(root)
        assert "next" not in root
        env.step_and_maybe_reset(env.rand_action(root))


@BOTH
def test_what_a_usual_step_returned_never_changes(batch: Any) -> None:
    with batch(2, _counting) as env:
        root = env.reset()
        for _ in range(3):
            root = env.step_and_maybe_reset(env.rand_action(root))[1]
        data, after = env.step_and_maybe_reset(env.rand_action(root))
        held = data.clone(), after.clone()
        root = after.copy()
        for _ in range(5):
            root = env.step_and_maybe_reset(env.rand_action(root))[1]
        assert_equal_data(data, held[0])
        assert_equal_data(after, held[1])


def test_moving_a_batch_after_usual_steps_moves_its_data() -> None:
    """If a batch moves to another device after usual steps, its data comes out there."""
    with SerialEnv(2, _counting) as env:
        root = env.reset()
        for _ in range(3):
            root = env.step_and_maybe_reset(env.rand_action(root))[1]
        env.to("cpu")
        root = env.step_and_maybe_reset(env.rand_action(env.reset()))[1]
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
        assert root.device == torch.device("cpu")


def test_specs_that_change_after_usual_steps_hold_from_then_on() -> None:
    class Keeping(SerialEnv):
        """Forgets what a policy wrote."""

        def step_mdp(self, next_tensordict: Any) -> Any:
            return super().step_mdp(next_tensordict).select(*self.observation_keys, *self.done_keys)

    with Keeping(2, _counting) as env:
        root = env.reset()
        for _ in range(4):
            td = env.rand_action(root)
            td["log_prob"] = torch.zeros(2)
            root = env.step_and_maybe_reset(td)[1]
        assert "log_prob" not in root
