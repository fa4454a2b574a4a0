"""as_torchrl: environments of steppe in TorchRL's batches, transforms and collectors."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tensordict import TensorDict

import steppe
import steppe_testing as kit
from steppe.errors import ActionError, SpecError
from steppe_testing import assert_equal_data
from tests.bridges.torchrl.mocks import LIBRARIES, MOCKS, with_transforms

envs = pytest.importorskip("torchrl.envs")
bridge = pytest.importorskip("steppe_torchrl")
collectors = pytest.importorskip("torchrl.collectors")
as_torchrl = bridge.as_torchrl


@pytest.fixture
def exported():
    """Export an environment, and close it after the test."""
    made = []

    def export(env):
        made.append(as_torchrl(env))
        return made[-1]

    yield export
    for env in made:
        env.close(raise_if_closed=False)


@pytest.mark.matrix
@pytest.mark.parametrize("name", MOCKS)
def test_mocks_pass_the_check_of_torchrl(name, exported):
    envs.check_env_specs(exported(MOCKS[name]()))


@pytest.mark.parametrize("name", LIBRARIES)
def test_transformed_environments_pass_the_check(name, exported):
    env = exported(LIBRARIES[name]())
    envs.check_env_specs(env)
    around = envs.TransformedEnv(env, envs.StepCounter(4, step_count_key="steps", truncated_key="truncated"))
    envs.check_env_specs(around)
    assert around.rollout(9, break_when_any_done=False).shape == (*env.batch_size, 9)


@pytest.mark.parametrize("name", ["CountingEnv", "StatelessCountingEnv", "MultiAgentCountingEnv", "NestedResetEnv"])
def test_batches_of_torchrl_contain_it(name):
    batch = envs.SerialEnv(2, lambda: as_torchrl(MOCKS[name]()))
    try:
        envs.check_env_specs(batch)
    finally:
        batch.close()


def test_processes_of_torchrl_contain_it():
    batch = envs.ParallelEnv(2, partial(as_torchrl, "gym:CartPole-v1"), mp_start_method="spawn")
    try:
        batch.set_seed(0)
        data = batch.rollout(30, break_when_any_done=False)
    finally:
        batch.close()
    assert data.shape == (2, 30)
    assert data["next", "done"].any()


@pytest.mark.parametrize("name", ["gym", "a batch", "processes", "VMAS", "transforms", "transforms around a batch"])
def test_given_actions_give_the_data_of_steppe(name, exported):
    ours, theirs = LIBRARIES[name](), exported(LIBRARIES[name]())
    assert theirs.set_seed(5) == ours.set_seed(5)
    data = ours.rollout(25, break_when_any_done=False)
    actions = iter(data.select(*ours.action_keys).unbind(-1))
    repeated = theirs.rollout(25, lambda td: td.update(next(actions)), break_when_any_done=False)
    ours.close()

    assert_equal_data(repeated, data)


def test_episodes_that_end_are_skipped_in_partial_steps(exported):
    def make(i):
        return lambda: kit.CountingEnv(max_steps=2 + i)

    env = exported(steppe.SerialEnv(3, [make(i) for i in range(3)]))
    data = env.rollout(9, break_when_all_done=True, break_when_any_done=False)

    assert data["next", "done"].squeeze(-1).sum(-1).tolist() == [3, 2, 1]
    assert data["next", "observation"][..., -1, 0].tolist() == [2, 3, 4]


@pytest.mark.parametrize("make", [kit.CountingEnv, lambda: with_transforms(steppe.make_env("gym:CartPole-v1"))])
def test_masks_select_the_rows_of_steps_and_resets(make, exported):
    ours, theirs = steppe.SerialEnv(3, make), exported(steppe.SerialEnv(3, make))
    for env in (ours, theirs):
        env.set_seed(0)
    first, second = ours.reset(), theirs.reset()
    for number in range(6):
        acted = ours.rand_action(first)
        second.update(acted.select("action"))
        if number % 2:
            mask = torch.tensor([True, number % 3 > 0, False])
            acted["_step"] = mask
            second["_step"] = mask
        first, second = ours.step(acted), theirs.step(second)
        assert_equal_data(second.select("next"), first.select("next").exclude(("next", "__frames_observation")))
        first, second = ours.step_mdp(first), theirs.step_mdp(second)
        if number % 3 == 2:
            mask = torch.tensor([[False], [True], [False]])
            first, second = (env.reset(td.update({"_reset": mask})) for env, td in ((ours, first), (theirs, second)))


def test_masks_of_actions_reach_the_spec(exported):
    env = exported(steppe.make_env("pettingzoo:classic/tictactoe_v3"))
    env.set_seed(0)
    root, legal = env.reset(), []
    for _ in range(5):
        root = env.rand_action(root)
        for action, mask in env.env.action_masks.items():
            acting = root[(*action[:-1], "mask")]
            chosen = root[mask].gather(-1, root[action].unsqueeze(-1)).squeeze(-1)
            legal.append(bool(chosen[acting].all()))
        root = env.step_mdp(env.step(root))

    assert all(legal)
    assert len(legal) == 10


def test_environments_without_a_batch_lock_take_any_batch(exported):
    env = exported(kit.StatelessCountingEnv())
    root = env.reset(TensorDict(batch_size=[4]))
    data = env.step(env.rand_action(root))

    assert not env.batch_locked
    assert data["next", "count"].shape == (4, 1)


def test_collectors_of_torchrl_step_batches_of_steppe():
    env = as_torchrl(steppe.ParallelEnv(4, "gym:CartPole-v1"))
    collector = collectors.Collector(env, None, frames_per_batch=80, total_frames=160)
    batches = list(collector)
    collector.shutdown()

    assert [batch.shape for batch in batches] == [(4, 20)] * 2
    assert len(set(batches[0]["collector", "traj_ids"].unique().tolist())) >= 4


def test_attributes_come_from_the_environment(exported):
    env = exported(steppe.make_env("gym:CartPole-v1"))

    assert env.unwrapped.spec.id == "CartPole-v1"
    assert not hasattr(env, "base_env")
    with pytest.raises(AttributeError):
        env.nothing_of_that_name  # noqa: B018


def test_closing_closes_the_environment():
    env = as_torchrl("gym:CartPole-v1")
    inner = env.env
    assert not env.is_closed
    env.close()
    assert env.is_closed
    assert inner.is_closed


def test_rows_of_different_shapes_are_an_error():
    with pytest.raises(SpecError, match=r"\['observation'\], with the shapes \[\(4,\), \(6,\)\]"):
        as_torchrl(steppe.SerialEnv(2, ["gym:CartPole-v1", "gym:Acrobot-v1"]))


def test_arguments_that_make_no_environment_are_an_error():
    with pytest.raises(TypeError, match="an id or a function that makes one, found int"):
        as_torchrl(3)
    with pytest.raises(TypeError, match=r"not for an environment: {'max_steps': 3}"):
        as_torchrl(kit.CountingEnv(), max_steps=3)
    with pytest.raises(SpecError, match="Use as_torchrl for an environment"):
        bridge.to_torchrl(kit.CountingEnv())


def test_an_action_that_does_not_fit_is_an_error(exported):
    env = exported(steppe.make_env("gym:CartPole-v1"))
    with pytest.raises(ActionError, match="action"):
        env.step(env.reset())
