"""VMAS in steppe, compared with VMAS itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import vmas
from tensordict import TensorDict
from vmas.scenarios import load

from steppe import (
    Compose,
    MarlGroupMapType,
    ParallelEnv,
    RewardSum,
    SerialEnv,
    StepCounter,
    SyncDataCollector,
    TransformedEnv,
    check_env_specs,
    make_env,
)
from steppe.envs import next_seed
from steppe.errors import ActionError, ArgumentError, EnvNotFound, NotSupported, SpecError
from steppe.registry import env_factory
from steppe.specs import Categorical, OneHot, StackedComposite
from steppe_testing import EnvConformance, PluginConformance
from steppe_vmas import VmasEnv, VmasWrapper

pytestmark = pytest.mark.matrix

N, STEPS, LIMIT = 3, 12, 5
CHOICES = {
    "continuous": {},
    "numbers": {"continuous_actions": False},
    "one-hot": {"continuous_actions": False, "categorical_actions": False},
    "several choices": {"continuous_actions": False, "multidiscrete_actions": True},
}


class TestPlugin(PluginConformance):
    namespace = "vmas"
    smoke = ("balance",)


class TestBalance(EnvConformance):
    env_id = "vmas:balance"
    kwargs = {"num_envs": 3, "max_steps": 6, "n_agents": 2}
    supports_partial_step = False
    independent_rows = False
    max_steps = 8


class TestSpeakerAndListener(EnvConformance):
    env_id = "vmas:simple_speaker_listener"
    kwargs = {"num_envs": 2, "max_steps": 6, "group_map": {"all": ["speaker_0", "listener_0"]}}
    supports_partial_step = False
    independent_rows = False
    max_steps = 8


@pytest.fixture
def env() -> Iterator[VmasEnv]:
    made = VmasEnv("simple_tag", num_envs=N, max_steps=LIMIT, seed=0)
    yield made
    made.close(raise_if_closed=False)


def raw(name: str, **kwargs: Any) -> Any:
    return vmas.make_env(name, num_envs=N, max_steps=LIMIT, terminated_truncated=True, **kwargs)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("scenario", ["balance", "simple_world_comm"])
def test_a_rollout_has_the_data_of_vmas(scenario: str, choice: str) -> None:
    kwargs = CHOICES[choice]
    env = VmasEnv(scenario, num_envs=N, max_steps=LIMIT, **kwargs)
    env.set_seed(3)
    data = env.rollout(LIMIT)
    library = raw(scenario, **{name: value for name, value in kwargs.items() if name != "categorical_actions"})
    library.seed(3)

    observations = library.reset()
    for t in range(LIMIT):
        given = []
        for agent, name in enumerate(env.agent_names):
            group = next(group for group, agents in env.group_map.items() if name in agents)
            place = env.group_map[group].index(name)
            found = data[group]
            torch.testing.assert_close(found["observation"][:, t, place], observations[agent], rtol=0, atol=0)
            action = found["action"][:, t, place]
            given.append(action.int().argmax(-1, keepdim=True) if choice == "one-hot" else action.reshape(N, -1))
        observations, rewards, terminated, truncated, _ = library.step(given)
        for agent, name in enumerate(env.agent_names):
            group = next(group for group, agents in env.group_map.items() if name in agents)
            reward = data["next", group, "reward"][:, t, env.group_map[group].index(name), 0]
            torch.testing.assert_close(reward, rewards[agent], rtol=0, atol=0)
        assert torch.equal(data["next", "terminated"][:, t, 0], terminated)
        assert torch.equal(data["next", "truncated"][:, t, 0], truncated)


def test_steps_and_rollouts_through_rows_give_the_same_data(env: VmasEnv) -> None:
    env.set_seed(1)
    rollout = env.rollout(STEPS, break_when_any_done=False)

    env.set_seed(1)
    td = env.reset()
    for t in range(STEPS):
        for group in env.group_map:
            td[group, "action"] = rollout[group, "action"][:, t]
        frame, td = env.step_and_maybe_reset(td)
        assert (frame.exclude("next") == rollout[:, t].exclude("next")).all()
        assert (frame["next"] == rollout[:, t]["next"]).all()


def test_max_steps_truncates_and_ended_environments_restart(env: VmasEnv) -> None:
    data = env.rollout(2 * LIMIT, break_when_any_done=False)

    assert data["next", "truncated"][0, :, 0].nonzero().flatten().tolist() == [LIMIT - 1, 2 * LIMIT - 1]
    assert not data["next", "terminated"].any()
    assert not data["done"].any()


def test_a_reset_of_some_environments_leaves_the_others_alone(env: VmasEnv) -> None:
    td = env.step_mdp(env.rand_step(env.reset()))
    before = td["agent", "observation"].clone()

    td["_reset"] = torch.tensor([[False], [True], [False]])
    after = env.reset(td)["agent", "observation"]

    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert not torch.equal(after[1], before[1])


def test_environments_of_one_process_do_not_share_random_state() -> None:
    """Steps of one environment do not change the random numbers of another."""
    first, other = (VmasEnv("balance", num_envs=2, max_steps=3) for _ in range(2))
    first.set_seed(5)
    alone = first.rollout(7, break_when_any_done=False)

    first.set_seed(5)
    other.reset()
    td, found = first.reset(), []
    for t in range(7):
        other.rand_step(other.reset())
        frame, td = first.step_and_maybe_reset(td.set(("agents", "action"), alone["agents", "action"][:, t]))
        found.append(frame["agents", "observation"])

    assert torch.equal(torch.stack(found, 1), alone["agents", "observation"])


def test_wrapped_environments_made_together_begin_differently() -> None:
    made = [vmas.make_env("balance", num_envs=1) for _ in range(2)]

    first, second = (VmasWrapper(one).reset()["agents", "observation"] for one in made)

    assert not torch.equal(first, second)


def test_agents_are_grouped_by_name_by_default(env: VmasEnv) -> None:
    assert env.group_map == {"adversary": ["adversary_0", "adversary_1", "adversary_2"], "agent": ["agent_0"]}
    assert env.reset()["adversary", "observation"].shape == (N, 3, 16)
    assert env.full_action_spec["agent", "action"].shape == (N, 1, 2)


def test_agents_are_grouped_as_the_user_says() -> None:
    each = VmasEnv("balance", num_envs=2, group_map=MarlGroupMapType.ONE_GROUP_PER_AGENT)
    two = VmasEnv("balance", num_envs=2, group_map={"left": ["agent_0"], "right": ["agent_2", "agent_1"]})

    assert list(each.group_map) == ["agent_0", "agent_1", "agent_2"]
    assert two.reset()["right", "observation"].shape[:2] == (2, 2)
    with pytest.raises(SpecError, match="agents without a group: \\['agent_2'\\]"):
        VmasEnv("balance", num_envs=2, group_map={"all": ["agent_0", "agent_1"]})


def test_unequal_agents_of_one_group_keep_their_shapes() -> None:
    env = VmasEnv("simple_speaker_listener", num_envs=2, group_map=MarlGroupMapType.ALL_IN_ONE_GROUP)

    td = env.rollout(3)[:, 0]

    assert isinstance(env.full_observation_spec["agents"], StackedComposite)
    assert [td["agents"][:, agent]["observation"].shape[-1] for agent in range(2)] == [3, 11]


def test_discrete_actions_are_numbers_or_one_hot_rows() -> None:
    numbers = VmasEnv("balance", num_envs=2, continuous_actions=False)
    rows = VmasEnv("balance", num_envs=2, continuous_actions=False, categorical_actions=False)

    assert isinstance(numbers.full_action_spec["agents", "action"], Categorical)
    assert numbers.full_action_spec["agents", "action"].shape == (2, 3)
    assert isinstance(rows.full_action_spec["agents", "action"], OneHot)
    assert rows.full_action_spec["agents", "action"].shape == (2, 3, 9)


def test_an_error_for_an_action_out_of_bounds_shows_clipping(env: VmasEnv) -> None:
    td = env.rand_action(env.reset())
    td["agent", "action"] = torch.full((N, 1, 2), 7.0)

    with pytest.raises(ActionError, match=r"agent_0 are out of its range.*clamp_actions=True"):
        env.step(td)


def test_gradients_flow_from_rewards_to_actions() -> None:
    env = VmasEnv("navigation", num_envs=2, grad_enabled=True, n_agents=2, seed=0)
    action = torch.zeros(2, 2, 2, requires_grad=True)
    td = env.reset()
    for _ in range(3):
        td = env.step(td.set(("agents", "action"), action))["next"].exclude("done", "terminated", "truncated")

    gradient = torch.autograd.grad(td["agents", "observation"][..., 2:4].sum(), action)[0]

    # The force acts on the velocity in each step: the observed velocity grows with it, for each agent alike.
    assert (gradient > 0).all()
    assert torch.allclose(gradient, gradient[0, 0, 0].expand_as(gradient), rtol=1e-4)


def test_an_environment_is_drawn_without_a_display(env: VmasEnv) -> None:
    env.reset()

    frame = env.render()

    assert frame.dtype.name == "uint8"
    assert frame.shape[-1] == 3
    assert frame.std() > 0


def test_a_step_of_some_environments_is_refused(env: VmasEnv) -> None:
    td = env.rand_action(env.reset())
    td["_step"] = torch.tensor([True, False, True])

    with pytest.raises(NotSupported, match="all its environments at once"):
        env.step(td)


def test_attributes_come_from_vmas(env: VmasEnv) -> None:
    assert env.scenario is env._env.scenario
    assert [agent.name for agent in env.agents] == env.agent_names
    assert (env.libname, env.git_url.rpartition("/")[2]) == ("vmas", "VectorizedMultiAgentSimulator")


def test_num_envs_alone_sets_the_batch_size() -> None:
    for size in (2, (2,), [2], torch.Size([2])):
        assert VmasEnv("balance", num_envs=2, batch_size=size).batch_size == (2,)
    assert VmasWrapper(raw("balance"), batch_size=[N]).batch_size == (N,)
    for size in (3, [3], [2, 1]):
        with pytest.raises(ArgumentError, match=r"num_envs=2; found batch_size=.*Leave batch_size out"):
            VmasEnv("balance", num_envs=2, batch_size=size)


def test_the_scenarios_are_listed_without_an_environment() -> None:
    assert {"balance", "simple_tag", "waterfall"} <= set(VmasEnv.available_envs)


def test_an_unknown_scenario_suggests_the_closest() -> None:
    with pytest.raises(EnvNotFound, match="Did you mean 'balance'"):
        make_env("vmas:balnce")


def test_vmas_warns_about_arguments_that_no_scenario_takes() -> None:
    for scenario in ("balance", load("balance.py").Scenario()):
        with pytest.warns(UserWarning, match="colour"):
            env = VmasEnv(scenario, num_envs=1, colour=3, n_agents=4)
        assert len(env.agent_names) == 4


def test_scenario_kwargs_are_arguments_of_the_scenario() -> None:
    settings = {"n_agents": 5, "random_package_pos_on_line": False}

    assert len(VmasEnv("balance", num_envs=1, scenario_kwargs=settings).agent_names) == 5
    assert len(VmasEnv("balance", num_envs=1, scenario_kwargs=settings, n_agents=2).agent_names) == 2
    assert settings["n_agents"] == 5


def test_arguments_that_vmas_would_ignore_are_refused() -> None:
    with pytest.raises(NotSupported, match=r"VmasEnv does not repeat actions: .*FrameSkipTransform\(3\)"):
        VmasEnv("balance", num_envs=1, frame_skip=3)
    with pytest.raises(NotSupported, match="PixelRenderTransform"):
        VmasEnv("balance", num_envs=1, from_pixels=True)

    assert VmasEnv("balance", num_envs=2, frame_skip=1, from_pixels=False, pixels_only=True).batch_size == (2,)


def test_a_wrapper_takes_arguments_in_the_order_of_torchrl() -> None:
    env = VmasWrapper(raw("balance", continuous_actions=False), False, MarlGroupMapType.ONE_GROUP_PER_AGENT)

    assert isinstance(env.full_action_spec["agent_0", "action"], OneHot)


@pytest.mark.parametrize("count", [0, True, 2.0])
def test_a_wrong_number_of_environments_is_refused(count: Any) -> None:
    with pytest.raises(ArgumentError, match="num_envs must be an integer >= 1"):
        VmasEnv("balance", num_envs=count)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scenario", [*vmas.scenarios, *vmas.mpe_scenarios, *vmas.debug_scenarios])
def test_specs_of_every_scenario_describe_its_data(scenario: str) -> None:
    check_env_specs(VmasEnv(scenario, num_envs=2, max_steps=3))


def counted(scenario: str = "simple_tag") -> TransformedEnv:
    return TransformedEnv(VmasEnv(scenario, num_envs=2, max_steps=4), Compose(RewardSum(), StepCounter()))


def test_rewards_are_summed_for_each_group() -> None:
    env = counted()
    check_env_specs(env)

    data = env.rollout(4)

    for group in ("adversary", "agent"):
        summed = data["next", group, "reward"].cumsum(1)
        torch.testing.assert_close(data["next", group, "episode_reward"], summed)
    assert data["next", "step_count"][0, :, 0].tolist() == [1, 2, 3, 4]


def test_frame_skip_adds_up_the_rewards_of_each_group() -> None:
    skipping = pytest.importorskip("steppe_time").FrameSkipTransform
    env = TransformedEnv(VmasEnv("balance", num_envs=N, seed=0), Compose(StepCounter(), skipping(2)))
    plain = VmasEnv("balance", num_envs=N, seed=0)
    assert env.no_row_writer_reason is None
    action = env.full_action_spec.rand(generator=torch.Generator().manual_seed(0))
    first = plain.step(plain.reset().update(action))
    second = plain.step(plain.step_mdp(first.clone()).update(action))["next"]
    following = env.step(env.reset().update(action))["next"]

    key = plain.reward_keys[0]
    assert following["step_count"].tolist() == [[2]] * N
    assert torch.equal(following[key], first["next"][key] + second[key])
    for key in plain.observation_keys:
        assert torch.equal(following[key], second[key])


@pytest.mark.parametrize("batch", [SerialEnv, ParallelEnv])
def test_batches_of_vmas_environments_give_the_data_of_each(batch: Any) -> None:
    many = batch(2, counted)
    many.set_seed(0)
    data = many.rollout(9, break_when_any_done=False)
    many.close()

    assert data.batch_size == (2, 2, 9)
    seed: int | None = 0
    for row in range(2):
        one = counted()
        seed = one.set_seed(seed)
        td = one.reset()
        for t in range(9):
            action = data[row, :, t].select(("adversary", "action"), ("agent", "action"))
            frame, td = one.step_and_maybe_reset(td.update(action))
            assert_equal(frame, data[row, :, t])


def assert_equal(first: TensorDict, second: TensorDict) -> None:
    assert set(first.keys(True, True)) == set(second.keys(True, True))
    for key in first.keys(True, True):
        assert torch.equal(first[key], second[key]), key


def test_a_collector_collects_frames_of_all_environments() -> None:
    collector = SyncDataCollector(counted(), None, frames_per_batch=20, total_frames=40)

    batches = list(collector)

    assert [batch.batch_size for batch in batches] == [(2, 10)] * 2
    assert batches[0]["next", "done"].sum() == 2 * 2


def test_inference_mode_may_begin_and_end_between_steps() -> None:
    """Steps under inference mode can be continued outside of it."""
    env = make_env("vmas:balance", num_envs=2, seed=0)
    with torch.inference_mode():
        env.rollout(3)

    data = env.rollout(3)

    assert data["next", "agents", "reward"].shape[:2] == (2, 3)


@pytest.mark.parametrize("use", ["rollout", "step"])
def test_a_use_in_between_begins_new_trajectories(use: str) -> None:
    base = VmasEnv("balance", num_envs=N, seed=0)
    env = TransformedEnv(base, StepCounter())
    td = env.rand_action(env.reset())
    with SyncDataCollector(env, frames_per_batch=4 * N) as collector:
        next(collector)
        assert next(collector)["step_count"][:, 0].eq(4).all()
        if use == "rollout":
            base.rollout(2)
        else:
            env.step_and_maybe_reset(td)
        with pytest.warns(UserWarning, match="an environment of its own"):
            assert next(collector)["step_count"][:, 0].eq(0).all()


def assert_equal_to_library(data: Any, seed: int, scenario: str = "balance", **kwargs: Any) -> None:
    """Take the actions of data ``[n, T]`` of one group with VMAS, reset ended rows by their number, and compare."""
    library = vmas.make_env(scenario, num_envs=len(data), terminated_truncated=True, **kwargs)
    library.seed(seed)
    observations = library.reset()
    for t in range(data.shape[1]):
        row, following = data[:, t], data["next"][:, t]
        assert torch.equal(row["agents", "observation"], torch.stack(observations, 1))
        observations, rewards, terminated, truncated, _ = library.step(list(row["agents", "action"].unbind(1)))
        assert torch.equal(following["agents", "observation"], torch.stack(observations, 1))
        assert torch.equal(following["agents", "reward"][..., 0], torch.stack(rewards, 1))
        assert torch.equal(following["terminated"][:, 0], terminated)
        assert torch.equal(following["truncated"][:, 0], truncated)
        ended = following["done"][:, 0]
        if ended.all():
            observations = library.reset()
        elif ended.any():
            for index in ended.nonzero()[:, 0].tolist():
                library.reset_at(index, return_observations=False)
            (observations,) = library.get_from_scenario(True, False, False, False)


def test_partial_resets_equal_the_library() -> None:
    env = VmasEnv("balance", num_envs=6, max_steps=60)
    env.set_seed(2)

    data = env.rollout(120, break_when_any_done=False)

    ends = data["next", "done"][..., 0]
    assert (ends.any(0) & ~ends.all(0)).any(), "rows end at different steps"
    assert_equal_to_library(data, 2, max_steps=60)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind: Any) -> None:
    batch = kind(2, env_factory("vmas:balance", num_envs=3, max_steps=60))
    batch.set_seed(4)
    data = batch.rollout(80, break_when_any_done=False)
    batch.close()

    for rows, seed in zip(data, (4, next_seed(4)), strict=True):
        assert_equal_to_library(rows, seed, max_steps=60)


def test_a_collector_equals_the_library() -> None:
    env = VmasEnv("balance", num_envs=6, max_steps=60)
    env.set_seed(9)
    collector = SyncDataCollector(env, None, frames_per_batch=360, total_frames=720)
    data = torch.cat([batch.clone() for batch in collector], -1)
    collector.shutdown()

    assert_equal_to_library(data, 9, max_steps=60)
