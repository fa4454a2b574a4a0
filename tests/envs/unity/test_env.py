"""Unity games in steppe, compared with what ML-Agents returns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("mlagents_envs")

from steppe import ParallelEnv, SerialEnv, SyncDataCollector, TransformedEnv, check_env_specs, make_env
from steppe.errors import ActionError, ArgumentError, EnvNotFound, NotSupported, SpecError
from steppe_unity import UnityMLAgentsEnv, UnityMLAgentsWrapper
from tests.envs.unity.games import Relay, mock_game

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


def make_relay(seed=0, **kwargs):
    return UnityMLAgentsWrapper(Relay(seed=seed), **kwargs)


def places_of(game, group):
    """The agents of the double by their place: runner i keeps it under all of its numbers."""
    decisions, terminals = game.get_steps(group)
    return {int(number) % 100 if group == "runner" else 0: i for i, number in enumerate(decisions.agent_id)}, {
        int(number) % 100 if group == "runner" else 0: i for i, number in enumerate(terminals.agent_id)
    }


def assert_equal_to_library(data, seed=0):
    """Take the actions of data ``[T]`` with a second game of the same seed, and compare all entries.

    Agents that end begin again without a reset of the game.
    """
    game = Relay(seed=seed)
    game.reset()
    shown = {
        group: {name: np.zeros(value.shape[1:]) for name, value in data[group, "observation"].items()}
        for group in ("runner", "guard")
    }
    names = {"runner": ["eyes", "observation_1"], "guard": ["ears"]}
    for t, row in enumerate(data.unbind(0)):
        for group in ("runner", "guard"):
            decisions, _ = game.get_steps(group)
            deciding, _ = places_of(game, group)
            for place in range(len(row[group, "mask"])):
                assert row[group, "mask"][place].item() == (place in deciding)
                if place in deciding:
                    for name, values in zip(names[group], decisions.obs, strict=True):
                        shown[group][name][place] = values[deciding[place]]
                for name in names[group]:
                    np.testing.assert_array_equal(row[group, "observation", name][place], shown[group][name][place])
            if group == "runner":
                first = torch.ones(len(row[group, "mask"]), 3, dtype=torch.bool)
                first[[*deciding], game.t % 3] = False
                assert torch.equal(row[group, "action_mask"][:, :3], first)
        game.step()
        for group in ("runner", "guard"):
            decisions, terminals = game.get_steps(group)
            deciding, over = places_of(game, group)
            following = row["next", group]
            for place in range(len(following["mask"])):
                at = (terminals, over[place]) if place in over else (decisions, deciding.get(place))
                reward, group_reward = (0.0, 0.0) if at[1] is None else (at[0].reward[at[1]], at[0].group_reward[at[1]])
                assert following["reward"][place].item() == reward, (t, group, place)
                assert following["group_reward"][place].item() == group_reward
                assert following["done"][place].item() == (place in over)
                assert following["truncated"][place].item() == (place in over and group == "guard")
                for name, values, last in zip(names[group], decisions.obs, terminals.obs, strict=True):
                    if place in over:
                        np.testing.assert_array_equal(following["observation", name][place], last[over[place]])
                        shown[group][name][place] = 0
                    elif place in deciding:
                        np.testing.assert_array_equal(following["observation", name][place], values[deciding[place]])


@pytest.mark.parametrize("categorical", [True, False])
def test_a_rollout_equals_the_library_without_resets_of_the_game(categorical):
    env = make_relay(categorical_actions=categorical)

    data = env.rollout(40, break_when_any_done=False)

    assert env.resets == 1
    assert data["next", "runner", "terminated"].any()
    assert data["next", "guard", "truncated"].any()
    assert_equal_to_library(data)


def test_a_step_loop_equals_the_library():
    env = make_relay(seed=4)
    root, steps = env.reset(), []
    for _ in range(30):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        steps.append(step)

    assert_equal_to_library(torch.stack(steps), seed=4)


@pytest.mark.parametrize("around", [lambda env: env, TransformedEnv], ids=["alone", "transformed"])
@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind, around):
    batch = kind(2, [lambda: around(make_relay(1)), lambda: around(make_relay(2))])
    data = batch.rollout(25, break_when_any_done=False)
    batch.close()

    for row, seed in zip(data, (1, 2), strict=True):
        assert_equal_to_library(row, seed=seed)


def test_a_collector_equals_the_library():
    collector = SyncDataCollector(make_relay(seed=3), None, frames_per_batch=30, total_frames=60)
    data = torch.cat([one.clone() for one in collector])
    collector.shutdown()

    assert_equal_to_library(data, seed=3)


def on_tensordicts(env):
    """Let all steps of an environment go through TensorDicts."""
    env._step = env._step
    assert env.row_writer is None
    return env


def equal(first, second):
    """Whether data has the same keys and values."""
    keys = set(first.keys(True, True))
    return keys == set(second.keys(True, True)) and all(torch.equal(first[key], second[key]) for key in keys)


@pytest.mark.parametrize("categorical", [True, False])
@pytest.mark.parametrize("ends", [{"break_when_any_done": False}, {}, {"break_when_all_done": True}])
def test_rows_and_tensordicts_give_equal_data(ends, categorical):
    groups = {"last": ["runner_1"], "others": ["runner_2", "runner_0"], "guard": ["guard_0"]}
    make = lambda: UnityMLAgentsWrapper(Relay(3, seed=6), group_map=groups, categorical_actions=categorical)  # noqa: E731
    rows, steps = make(), on_tensordicts(make())
    assert rows.no_row_writer_reason is None

    torch.manual_seed(2)
    first = [rows.rollout(19, **ends), rows.rollout(23, **ends)]
    torch.manual_seed(2)
    second = [steps.rollout(19, **ends), steps.rollout(23, **ends)]

    assert all(map(equal, first, second))
    assert rows.resets == steps.resets


def test_a_reset_after_a_step_on_rows_resets_the_game():
    env = make_relay()
    ended = env.rollout(9)[-1:]
    assert ended["next", "runner", "done"].any()
    assert env.resets == 1

    env.reset()
    assert env.resets == 2
    env.rollout(9)
    assert env.resets == 3


def test_agents_that_ended_on_rows_are_reset_by_masks():
    env = make_relay(seed=5)
    last = env.rollout(5)[-1]
    root = env.maybe_reset(env.step_mdp(last.clone()))

    assert env.resets == 1
    assert last["next", "runner", "done"].tolist() == [[True], [False]]
    assert not root["runner", "done"].any()
    decisions, _ = env.get_steps("runner")
    np.testing.assert_array_equal(root["runner", "observation", "eyes"][0], decisions.obs[0][0])
    np.testing.assert_array_equal(root["guard", "observation", "ears"], last["next", "guard", "observation", "ears"])


def test_each_requested_episode_begins_with_a_reset_of_the_game(monkeypatch):
    game, resets = mock_game(), []  # an agent of this game ends in each step
    reset = game.reset
    monkeypatch.setattr(game, "reset", lambda: (resets.append(1), reset()))
    collector = SyncDataCollector(UnityMLAgentsWrapper(game), None, frames_per_batch=10)
    collector.execute(n_episodes=4)
    episodes = collector.get()
    collector.shutdown()

    assert len(episodes) == len(resets) == 4


def test_random_actions_respect_the_masks_in_a_hundred_episodes():
    env = make_relay()

    # The double refuses masked actions.
    data = env.rollout(600, break_when_any_done=False)

    assert data["next", "runner", "done"].sum() > 100


def test_actions_reach_the_agents_that_decide():
    env = make_relay(categorical_actions=True)
    td = env.rand_action(env.reset())
    for _ in range(12):
        t, deciding = env.t, td["runner", "mask"]
        td = env.step(td)
        sent = [entry for entry in env.sent if entry[0] == t and entry[1] == "runner"]
        if not deciding.any():
            assert sent == []
        else:
            np.testing.assert_array_equal(sent[0][2], td["runner", "continuous_action"][deciding])
            np.testing.assert_array_equal(sent[0][3], td["runner", "discrete_action"][deciding])
        td = env.rand_action(env.maybe_reset(env.step_mdp(td)))


@pytest.mark.parametrize("categorical", [True, False], ids=["categorical", "one-hot"])
def test_choices_that_a_branch_lacks_are_refused(categorical):
    env = make_relay(categorical_actions=categorical)
    td = env.rand_action(env.reset())
    while not td["runner", "mask"].all():
        td = env.rand_action(env.maybe_reset(env.step_mdp(env.step(td))))
    sent = len(env.sent)
    if categorical:
        td["runner", "discrete_action"][1, 0] = 3
    else:
        td["runner", "discrete_action"][1, :3] = 0

    with pytest.raises(ActionError, match="'runner_1' must choose one of the values 0 to 2 in branch 0"):
        env.step(td)
    assert len([entry for entry in env.sent[sent:] if entry[1] == "runner"]) == 0


def test_actions_of_agents_that_do_not_decide_are_ignored():
    env = make_relay(categorical_actions=True)
    td = env.rand_action(env.reset())
    while td["runner", "mask"].all():
        td = env.rand_action(env.maybe_reset(env.step_mdp(env.step(td))))
    td["runner", "discrete_action"][~td["runner", "mask"]] = 9

    assert env.step(td)["next", "runner", "reward"].shape == td["runner", "done"].shape


def test_the_mock_of_ml_agents_returns_its_values():
    env = UnityMLAgentsWrapper(mock_game())
    data = env.rollout(5, break_when_any_done=False)

    assert env.group_map == {"RealFakeBrain": [f"RealFakeBrain_{i}" for i in range(3)]}
    assert data["next", "RealFakeBrain", "done"][..., 0].tolist() == [[False, False, True]] * 5
    assert (data["next", "RealFakeBrain", "reward"] == 1).all()
    sensor = data["next", "RealFakeBrain", "observation", "observation_0"]
    assert torch.equal(sensor, torch.tensor([1.0, 2.0, 3.0]).expand(5, 3, 3))


def test_agents_in_the_middle_of_an_episode_are_reset_together():
    env = make_relay()
    td = env.rand_step(env.reset())["next"].exclude(*env.reward_keys)
    mask = torch.tensor([[True], [False]])

    with pytest.raises(NotSupported, match="runner_0"):
        env.reset(td.clone().set(("runner", "_reset"), mask).set(("guard", "_reset"), torch.tensor([[False]])))
    before = env.resets
    env.reset(td.set(("runner", "_reset"), ~mask | mask).set(("guard", "_reset"), torch.tensor([[True]])))
    assert env.resets == before + 1


def test_agents_are_grouped_as_asked():
    groups = {"first": ["runner_0"], "rest": ["runner_1"], "guard": ["guard_0"]}
    env = make_relay(group_map=groups)

    assert env.group_map == groups
    assert_equal_data = env.rollout(10, break_when_any_done=False)
    whole = make_relay().reset()
    assert torch.equal(
        assert_equal_data["first", "observation", "eyes"][0, 0], whole["runner", "observation", "eyes"][0]
    )
    check_env_specs(make_relay(group_map=groups))
    with pytest.raises(SpecError, match="several behaviors"):
        make_relay(group_map={"all": ["runner_0", "runner_1", "guard_0"]})


def test_a_growing_number_of_agents_is_refused():
    game = Relay()
    env = UnityMLAgentsWrapper(game)
    td = env.rand_action(env.reset())
    game.runners = 3
    game.numbers.append(50)
    game.births.append(-3)

    with pytest.raises(NotSupported, match="must not grow"):
        env.rollout(4, auto_reset=False, tensordict=td, break_when_any_done=False)


def test_the_registry_without_a_network_is_an_error_with_advice():
    with pytest.raises(EnvNotFound, match="needs a network"):
        make_env("unity:NoSuchGame")


def test_a_file_and_a_registered_name_exclude_each_other():
    with pytest.raises(ArgumentError, match="found both"):
        UnityMLAgentsEnv("a", "b")


def test_objects_of_other_libraries_are_refused():
    with pytest.raises(TypeError, match="UnityEnvironment"):
        UnityMLAgentsWrapper(object())


def test_a_game_made_elsewhere_cannot_be_seeded():
    with pytest.raises(NotSupported, match="UnityMLAgentsEnv"):
        make_relay().set_seed(0)


def test_a_game_is_started_again_with_another_seed(monkeypatch):
    started = []

    def start(file_name, registered_name, *, seed, settings):
        started.append((file_name, seed, settings))
        return Relay(seed=seed)

    monkeypatch.setattr("steppe_unity.env.start", start)
    env = UnityMLAgentsEnv("game", seed=3, no_graphics=True)
    first = env._env
    env.set_seed(8)

    assert started == [("game", 3, {"no_graphics": True}), ("game", 8, {"no_graphics": True})]
    assert first.closed
    assert_equal_to_library(env.rollout(12, break_when_any_done=False), seed=8)
