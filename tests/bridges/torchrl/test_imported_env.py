"""from_torchrl: environments of TorchRL in steppe, and there and back."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

import steppe
from steppe.errors import EnvNotFound, SpecError
from steppe_testing import EnvConformance, PluginConformance, assert_equal_data
from tests.bridges.torchrl.mocks import LIBRARIES, MOCKS, SPECS

envs = pytest.importorskip("torchrl.envs")
bridge = pytest.importorskip("steppe_torchrl")
as_torchrl, from_torchrl = bridge.as_torchrl, bridge.from_torchrl

OWN = {
    "PendulumEnv": lambda: envs.PendulumEnv(),
    "TicTacToeEnv": lambda: envs.TicTacToeEnv(),
    "GymEnv": lambda: envs.GymEnv("CartPole-v1"),
    "a batch": lambda: envs.SerialEnv(2, lambda: envs.GymEnv("CartPole-v1")),
    "a group": lambda: envs.VmasEnv("balance", num_envs=3),
    "transforms": lambda: envs.TransformedEnv(envs.GymEnv("CartPole-v1"), envs.StepCounter(5)),
    "masks": lambda: envs.PettingZooEnv("tictactoe_v3", parallel=False, use_mask=True),
}

NEEDS_VMAS = pytest.mark.skipif(find_spec("vmas") is None, reason="the libraries of environments are not installed")
MORE = ("a batch", "processes", "VMAS", "transforms")
THERE_AND_BACK = [*MOCKS, *(pytest.param(name, marks=NEEDS_VMAS) for name in MORE)]


class TestPlugin(PluginConformance):
    namespace = "torchrl"
    library = "torchrl"


class TestPendulum(EnvConformance):
    env_id = "torchrl:PendulumEnv"
    batch_locked = False
    ends = False
    seed_matters = True
    supports_set_state = True


class TestBatch(EnvConformance):
    """A batch of TorchRL's, which resets and steps its rows by masks."""

    max_steps = 500

    def make_env(self, **kwargs):
        return from_torchrl(envs.SerialEnv(2, lambda: envs.GymEnv("CartPole-v1")))


@pytest.mark.matrix
@pytest.mark.parametrize("name", THERE_AND_BACK)
def test_there_and_back_gives_equal_specs_and_data(name):
    make = {**MOCKS, **LIBRARIES}[name]
    env, back = make(), from_torchrl(as_torchrl(make()))
    for kind in SPECS:
        expected = without_memory(getattr(env, kind)).to("cpu")
        assert getattr(back, kind).to("cpu") == expected, kind
    assert (back.batch_size, back.batch_locked, back.device) == (env.batch_size, env.batch_locked, env.device)
    assert_equal_rollouts(name, env, back, seed=3, steps=12)
    for each in (env, back):
        each.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", MOCKS)
def test_long_runs_of_mocks_come_back_equal(name):
    """Many episodes, which end and begin in both environments, from two seeds."""
    env, back = MOCKS[name](), from_torchrl(as_torchrl(MOCKS[name]()))
    for seed in (0, 11):
        assert_equal_rollouts(name, env, back, seed=seed, steps=200)
    for each in (env, back):
        each.close()


def assert_equal_rollouts(name, env, back, *, seed, steps):
    assert env.set_seed(seed) == back.set_seed(seed)
    data, repeated = (each.rollout(steps, break_when_any_done=False) for each in (env, back))
    if name == "PlaceEnv":  # TorchRL indexes TensorDicts only: the tensorclass comes back as one
        data["place"], data["next", "place"] = data["place"].to_tensordict(), data["next", "place"].to_tensordict()
    assert_equal_data(repeated, data)


def without_memory(spec):
    """The memory of transforms is not exported: ``as_torchrl`` keeps it."""
    spec = spec.clone()
    for key in [key for key in spec.keys(True, True) if steppe.specs.is_memory(key)]:
        del spec[key]
    return spec


@pytest.mark.parametrize("name", OWN)
def test_environments_of_torchrl_pass_the_check_of_steppe(name):
    env = from_torchrl(OWN[name]())
    steppe.check_env_specs(env)
    batch = steppe.SerialEnv(2, lambda: from_torchrl(OWN[name]()))
    steppe.check_env_specs(batch)
    data = batch.rollout(8, break_when_any_done=False)
    assert data.shape == (2, *env.batch_size, 8)
    for each in (env, batch):
        each.close()


@pytest.mark.parametrize("name", ["PendulumEnv", "GymEnv", "a batch", "transforms"])
def test_given_actions_give_the_data_of_torchrl(name):
    theirs, ours = OWN[name](), from_torchrl(OWN[name]())
    ours.set_seed(7)
    data = ours.rollout(20, break_when_any_done=False)
    theirs.set_seed(7)
    actions = iter(data["action"].unbind(-2))
    expected = theirs.rollout(20, lambda td: td.set("action", next(actions)), break_when_any_done=False)
    ours.close()
    if not theirs.is_closed:
        theirs.close()

    keys = [key for key in expected.keys(True, True) if key in data.keys(True, True)]
    assert ("next", "reward") in keys
    assert_equal_data(data.select(*keys), expected.select(*keys))


def test_masks_that_torchrl_writes_choose_random_actions():
    env = from_torchrl(OWN["masks"]())
    data = env.rollout(6, break_when_any_done=False)

    assert env.action_masks
    for action, mask in env.action_masks.items():
        acting = data[(*action[:-1], "mask")]
        assert bool(data[mask].gather(-1, data[action].unsqueeze(-1)).squeeze(-1)[acting].all())


def test_worker_processes_contain_it():
    env = steppe.ParallelEnv(2, "torchrl:PendulumEnv")
    env.set_seed(0)
    serial = steppe.SerialEnv(2, "torchrl:PendulumEnv")
    serial.set_seed(0)
    data, expected = env.rollout(10), serial.rollout(10)
    env.close()
    assert_equal_data(data, expected)


@pytest.mark.matrix
def test_a_state_is_set_only_on_request():
    env = from_torchrl(envs.PendulumEnv())
    state = env.reset().update({"th": torch.tensor(0.25), "thdot": torch.tensor(0.5)})

    assert env.reset(state.clone(), set_state=True)["th"].item() == 0.25
    assert env.reset(state.clone())["th"].item() != 0.25


def test_ids_name_classes_of_torchrl_and_of_other_modules():
    assert {"PendulumEnv", "TicTacToeEnv"} <= set(steppe.list_envs("torchrl"))
    env = steppe.make_env("torchrl:torchrl.envs.custom.pendulum:PendulumEnv")
    assert type(env.env) is envs.PendulumEnv
    assert steppe.make_env("torchrl:GymEnv", env_name="CartPole-v1").batch_locked
    with pytest.raises(EnvNotFound, match="Did you mean 'PendulumEnv'"):
        steppe.make_env("torchrl:PendulumEn")


def test_other_values_are_refused():
    with pytest.raises(SpecError, match=r"a spec of torchrl\.data or an environment of TorchRL, found int"):
        from_torchrl(3)
    with pytest.raises(TypeError, match="expected a function that makes an environment of TorchRL"):
        from_torchrl(lambda: 3)
