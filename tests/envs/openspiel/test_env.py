"""Games of OpenSpiel in steppe, compared with OpenSpiel itself."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

pytest.importorskip("pyspiel")

import pyspiel

from steppe import MarlGroupMapType, ParallelEnv, SerialEnv, SyncDataCollector, check_env_specs, make_env
from steppe.errors import ActionError, ArgumentError, NotSupported, StateError
from steppe.registry import env_factory
from steppe_openspiel import OpenSpielEnv, OpenSpielWrapper

pytestmark = [pytest.mark.library, pytest.mark.matrix]

#: Sequential games with and without chance nodes, and simultaneous ones.
GAMES = ["connect_four", "leduc_poker(players=3)", "backgammon", "goofspiel(num_cards=5)", "markov_soccer", "oshi_zumo"]


def middle(actions, probabilities):
    """A chance sampler without randomness, for the library and for steppe."""
    return actions[len(actions) // 2]


class Game:
    """A game as the library plays it: chance nodes are played by ``middle``."""

    def __init__(self, game_string):
        self.game = pyspiel.load_game(game_string)
        self.begin()

    def begin(self):
        self.state = self.game.new_initial_state()
        self._chance()

    def _chance(self):
        while self.state.is_chance_node():
            self.state.apply_action(middle(*zip(*self.state.chance_outcomes(), strict=True)))

    def masks(self):
        """The legal actions of each player, as the library reports them."""
        masks = np.zeros((self.game.num_players(), self.game.num_distinct_actions()), bool)
        for player, mask in enumerate(masks):
            legal = [] if self.state.is_terminal() else self.state.legal_actions(player)
            mask[legal or [0]] = True
        return masks

    def play(self, actions):
        """Play the actions of all players, and return the change of their returns."""
        before = np.array(self.state.returns())
        if self.state.is_simultaneous_node():
            self.state.apply_actions([int(action) for action in actions])
        else:
            self.state.apply_action(int(actions[self.state.current_player()]))
        self._chance()
        return np.array(self.state.returns()) - before


def assert_equal_to_library(game_string, data):
    """Play the recorded actions of one environment ``[T]`` with the library, and compare all entries."""
    game = Game(game_string)
    for row in data.unbind(0):
        for at in (row, row["next"]):
            if at is row["next"]:
                actions = row["agents", "action"].int().argmax(-1)
                masks = row["agents", "action_mask"]
                acting = range(len(actions)) if game.state.is_simultaneous_node() else [game.state.current_player()]
                assert all(masks[player, actions[player]] for player in acting)
                reward = game.play(actions.tolist())
                np.testing.assert_array_equal(at["agents", "reward"][:, 0].numpy(), reward.astype(np.float32))
                assert at["terminated"].item() == at["done"].item() == game.state.is_terminal()
                assert not at["truncated"].item()
            for name in ("observation", "information_state"):
                if name in at["agents"].keys():
                    for player, value in enumerate(at["agents", name]):
                        raw = getattr(game.state, f"{name}_tensor")(player)
                        np.testing.assert_array_equal(value.flatten().numpy(), np.array(raw, np.float32))
            np.testing.assert_array_equal(at["agents", "action_mask"].numpy(), game.masks())
            assert at["current_player"].item() == game.state.current_player()
        if game.state.is_terminal():
            game.begin()


@pytest.mark.parametrize("game_string", GAMES)
def test_a_rollout_equals_the_library_over_several_games(game_string):
    env = OpenSpielEnv(game_string, chance_sampler=middle)
    env.set_seed(0)

    data = env.rollout(200, break_when_any_done=False)

    assert_equal_to_library(game_string, data)


@pytest.mark.parametrize("game_string", ["connect_four", "goofspiel(num_cards=5)"])
def test_a_step_loop_equals_the_library(game_string):
    env = OpenSpielEnv(game_string, chance_sampler=middle)
    root, steps = env.reset(), []
    for _ in range(60):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        steps.append(step)

    assert_equal_to_library(game_string, torch.stack(steps))


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
@pytest.mark.parametrize("game_string", ["leduc_poker", "goofspiel(num_cards=5)"])
def test_rows_of_a_batch_equal_the_library(game_string, kind):
    batch = kind(3, env_factory(f"openspiel:{game_string}", chance_sampler=middle))
    batch.set_seed(0)
    data = batch.rollout(40, break_when_any_done=False)
    batch.close()

    for row in data:
        assert_equal_to_library(game_string, row)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_a_collector_equals_the_library(kind):
    game_string = "leduc_poker"
    batch = kind(2, env_factory(f"openspiel:{game_string}", chance_sampler=middle))
    collector = SyncDataCollector(batch, None, frames_per_batch=60, total_frames=120)
    collector.set_seed(3)
    data = torch.cat([one.clone() for one in collector], -1)
    collector.shutdown()

    ends = data["next", "done"][..., 0].nonzero()[:, 1].tolist()
    assert len(set(ends)) > 4, "rows end at different steps, so that resets are partial"
    for row in data:
        assert_equal_to_library(game_string, row)


@pytest.mark.parametrize("game_string", ["tic_tac_toe", "leduc_poker", "goofspiel", "hex(board_size=4)", "liars_dice"])
def test_random_actions_are_legal_in_a_hundred_games(game_string):
    """OpenSpiel takes illegal actions without an error, so they are compared with its lists of legal ones."""
    env = OpenSpielEnv(game_string, chance_sampler=middle)
    env.set_seed(1)

    for _ in range(100):
        data, game = env.rollout(400), Game(game_string)
        for action in data["agents", "action"].int().argmax(-1).tolist():
            state = game.state
            players = range(len(action)) if state.is_simultaneous_node() else [state.current_player()]
            assert all(action[player] in state.legal_actions(player) for player in players)
            game.play(action)
        assert game.state.is_terminal()


def test_an_illegal_action_raises_an_error():
    env = OpenSpielEnv("tic_tac_toe", categorical_actions=True)
    td = env.step(env.reset().set(("agents", "action"), torch.tensor([4, 0])))["next"]

    with pytest.raises(ActionError, match=r"action 4 of player_1 is illegal. Legal actions: \[0, 1, 2, 3, 5"):
        env.step(td.set(("agents", "action"), torch.tensor([0, 4])))


def test_a_simultaneous_illegal_action_raises_an_error():
    env = OpenSpielEnv("goofspiel", categorical_actions=True)
    td = env.step(env.reset().set(("agents", "action"), torch.tensor([3, 5])))["next"]

    with pytest.raises(ActionError, match="action 5 of player_1 is illegal"):
        env.step(td.set(("agents", "action"), torch.tensor([4, 5])))


def test_a_step_after_the_end_raises_an_error():
    env = OpenSpielEnv("matrix_rps")
    td = env.rand_step(env.reset())

    with pytest.raises(StateError, match=r"call env.reset\(\)"):
        env.step(env.rand_action(td["next"].exclude(("agents", "reward"))))


def test_rewards_are_changes_of_the_returns():
    env = OpenSpielEnv("oshi_zumo")
    env.set_seed(0)

    data = env.rollout(100)

    total = data["next", "agents", "reward"].sum(0)[:, 0]
    np.testing.assert_allclose(total.numpy(), env._env.returns())


def test_chance_nodes_follow_the_seed():
    def hands(seed):
        env = OpenSpielEnv("kuhn_poker")
        env.set_seed(seed)
        return [env.reset()["agents", "observation"].flatten().tolist() for _ in range(40)]

    assert hands(0) == hands(0) != hands(1)
    assert len({tuple(hand) for hand in hands(0)}) == 6, "all ways to deal two of three cards"


def test_chance_nodes_have_the_probabilities_of_the_game():
    env = OpenSpielEnv("pig")  # one die: a 1 passes the turn
    env.set_seed(0)
    outcomes = []
    draw = pyspiel.load_game("pig").new_initial_state()
    draw.apply_action(0)
    actions, probabilities = zip(*draw.chance_outcomes(), strict=True)

    for _ in range(3000):
        state = draw.clone()
        env.wrap_library(state)
        env._play_chance()
        outcomes.append(state.history()[-1])

    counts = np.bincount(outcomes, minlength=max(actions) + 1)[list(actions)]
    np.testing.assert_allclose(counts / 3000, probabilities, atol=0.03)


def test_games_with_their_own_generator_follow_the_seed():
    def first(seed):
        env = OpenSpielEnv("negotiation")
        env.set_seed(seed)
        return torch.stack([env.reset()["agents", "observation"] for _ in range(5)])

    assert torch.equal(first(4), first(4))
    assert not torch.equal(first(4), first(5))


@pytest.mark.parametrize("game_string", ["chess", "leduc_poker", "goofspiel(num_cards=5)"])
def test_a_game_continues_from_a_state_in_the_data(game_string):
    env = OpenSpielEnv(game_string, return_state=True, chance_sampler=middle)
    saved = env.rand_step(env.reset())["next"]
    later = env.step(env.rand_action(saved.exclude(("agents", "reward"))))["next"]
    env.rollout(3)

    restored = env.reset(saved.exclude(("agents", "reward")))

    for key in ("observation", "action_mask"):
        if key in saved["agents"].keys():
            assert torch.equal(restored["agents", key], saved["agents", key])
    assert restored["state"] == saved["state"]
    assert later["state"] != saved["state"]
    assert env.reset(saved.select("state"), set_state=False)["state"] != saved["state"]


def test_automatic_resets_begin_new_games():
    env = OpenSpielEnv("tic_tac_toe", return_state=True)

    data = env.rollout(20, break_when_any_done=False)

    after = data["next", "done"][:-1, 0].nonzero()[:, 0] + 1
    assert len(after)
    assert (data["current_player"][after] == 0).all()


def test_states_pass_through_worker_processes():
    factory = env_factory("openspiel:tic_tac_toe", return_state=True)
    found = []
    for kind in (SerialEnv, ParallelEnv):
        batch = kind(2, factory)
        batch.set_seed(0)
        found.append(batch.rollout(12, break_when_any_done=False))
        batch.close()

    assert torch.equal(found[0]["agents", "observation"], found[1]["agents", "observation"])
    assert found[0]["state"].tolist() == found[1]["state"].tolist()


@pytest.mark.parametrize(
    ("group_map", "groups"),
    [
        (MarlGroupMapType.ALL_IN_ONE_GROUP, {"agents": ["player_0", "player_1", "player_2"]}),
        (None, {"player_0": ["player_0"], "player_1": ["player_1"], "player_2": ["player_2"]}),
        ({"a": ["player_2", "player_0"], "b": ["player_1"]},) * 2,
    ],
)
def test_players_are_grouped_as_asked(group_map, groups):
    env = OpenSpielEnv("kuhn_poker", parameters={"players": 3}, group_map=group_map)
    env.set_seed(0)
    raw = OpenSpielEnv("kuhn_poker", parameters={"players": 3})
    raw.set_seed(0)

    seen, all_players = env.reset(), raw.reset()["agents", "observation"]

    assert env.group_map == groups
    for group, names in groups.items():
        assert torch.equal(seen[group, "observation"], all_players[[int(name[-1]) for name in names]])
    check_env_specs(env)


def test_an_environment_is_pickled_with_its_position():
    env = OpenSpielEnv("connect_four", categorical_actions=True)
    td = env.rand_step(env.reset())["next"].exclude(("agents", "reward"))

    copy = pickle.loads(pickle.dumps(env))

    action = env.rand_action(td)
    assert torch.equal(
        env.step(action.clone())["next", "agents", "observation"], copy.step(action)["next", "agents", "observation"]
    )


def test_parameters_that_the_game_refuses_are_named():
    with pytest.raises(ArgumentError, match=r"cannot load 'kuhn_poker' with the parameters \{'players': 99\}"):
        OpenSpielEnv("kuhn_poker", parameters={"players": 99})


def test_objects_that_are_no_states_are_refused():
    with pytest.raises(TypeError, match="new_initial_state"):
        OpenSpielWrapper(pyspiel.load_game("chess"))


def test_a_game_that_needs_parameters_names_them():
    with pytest.raises(ArgumentError, match=r"cannot load 'nfg_game' .* takes \['filename'\]"):
        OpenSpielEnv("nfg_game")


def test_games_that_cannot_be_stepped_are_refused():
    listed = {*OpenSpielEnv.available_envs}
    registered = {game.short_name for game in pyspiel.registered_games()}
    for name, reason in (("mfg_crowd_modelling", "mean-field"), ("crossword", "not numbers")):
        assert name not in listed
        if name in registered:  # crossword came with OpenSpiel 2
            with pytest.raises(NotSupported, match=reason):
                OpenSpielEnv(name)


def test_a_batch_size_is_refused():
    with pytest.raises(NotSupported, match="ParallelEnv"):
        make_env("openspiel:chess", batch_size=[2])


#: colored_trails takes a minute.
_LEFT_OUT = {"colored_trails"}
_LOADABLE = {game.short_name for game in pyspiel.registered_games() if game.default_loadable}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(_LOADABLE & {*OpenSpielEnv.available_envs} - _LEFT_OUT))
def test_every_game_fits_its_specs(name):
    check_env_specs(OpenSpielEnv(name), seed=0)
