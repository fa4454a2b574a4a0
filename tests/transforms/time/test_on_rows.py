"""Transforms of whole episodes, in single steps and rollouts of environments that write rows."""

from __future__ import annotations

import itertools

import pytest
import torch

from steppe import TransformedEnv
from steppe.transforms import Compose, StepCounter, Transform
from steppe_testing import ArrayCountingEnv
from steppe_time import TerminateTransform, gSDENoise
from tests.transforms.alike import alike, stepped

# -- TerminateTransform ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write_done", [True, False])
@pytest.mark.parametrize(
    "stop",
    [
        lambda td: td["observation"] >= 3,
        lambda td: (td["observation"] >= 3).float(),
        lambda td: bool(td["observation"] >= 3),
    ],
)
def test_episodes_terminate_equally_on_every_path(stop, write_done):
    def make(**kwargs):
        chain = Compose(StepCounter(), TerminateTransform(stop, write_done=write_done), StepCounter(step_count_key="n"))
        return TransformedEnv(ArrayCountingEnv(5), chain, **kwargs)

    data = alike(make)
    ends = (data["next", "observation"] >= 3).reshape(-1)
    assert torch.equal(data["next", "terminated"].reshape(-1), ends | (data["next", "observation"] == 5).reshape(-1))
    assert bool(data["next", "done"].any())


def test_data_that_a_condition_keeps_never_changes():
    kept = []

    def stop(td):
        kept.append((td, td["observation"], td["observation"].clone()))
        return False

    env = TransformedEnv(ArrayCountingEnv(50), TerminateTransform(stop))
    env.rollout(9)
    stepped(env, env.full_action_spec.rand((9,))["action"])
    assert len({float(was) for _, _, was in kept}) == 9
    assert all(torch.equal(value, was) and torch.equal(td["observation"], was) for td, value, was in kept)


def test_writes_of_a_condition_stay_out_of_the_data():
    def make(**kwargs):
        def stop(td):
            td["observation"] = td["observation"] + 100
            return td["observation"] >= 103

        return TransformedEnv(ArrayCountingEnv(9), TerminateTransform(stop), **kwargs)

    assert int(alike(make)["next", "observation"].max()) == 3


def test_a_condition_sees_what_a_step_returns():
    asked = []
    stop = TerminateTransform(lambda td: asked.append(td) is not None)
    env = TransformedEnv(ArrayCountingEnv(9), Compose(StepCounter(), stop))
    frame, _ = env.step_and_maybe_reset(env.rand_action(env.reset()))
    following = frame["next"]
    assert asked[0] is not following
    assert set(asked[0].keys()) == set(following.keys())
    assert all(torch.equal(value, following[key]) for key, value in asked[0].items())


def test_a_condition_that_writes_into_its_data_changes_nothing():
    def make(condition):
        return TransformedEnv(ArrayCountingEnv(5), Compose(StepCounter(), TerminateTransform(condition)))

    def spoils(td):
        return bool(td.apply_(lambda value: value.zero_())["observation"])

    plain = make(lambda td: False)
    actions = plain.full_action_spec.rand((12,))
    wanted = plain.rollout(12, actions=actions, break_when_any_done=False)
    with torch.inference_mode():
        inferred = stepped(make(spoils), actions["action"])
    for data in (stepped(make(spoils), actions["action"]), inferred):
        assert torch.equal(data["next", "observation"], wanted["next", "observation"])
        assert torch.equal(data["next", "step_count"], wanted["next", "step_count"])


@pytest.mark.parametrize("order", [*itertools.permutations(("three", "four", "count"))], ids="-".join)
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_several_conditions_in_any_order_give_the_same_data(order, nested):
    key = ("data", "observation") if nested else "observation"
    parts = {
        "three": lambda: TerminateTransform(lambda td: td[key] == 3, write_done=False),
        "four": lambda: TerminateTransform(lambda td: (td[key] == 4) & td.get("terminated").logical_not()),
        "count": lambda: StepCounter(7),
    }

    def make(**kwargs):
        return TransformedEnv(ArrayCountingEnv(9, nested=nested), Compose(*(parts[name]() for name in order)), **kwargs)

    data = alike(make)
    assert bool(data["next", "terminated"].any())
    assert bool(data["next", "done"].any())


def test_a_step_after_an_error_returns_what_it_has_made_itself():
    class Fails(TerminateTransform):
        failing = False

    last = Fails(lambda td: 1 / (not last.failing) == 0)
    env = TransformedEnv(ArrayCountingEnv(9), Compose(TerminateTransform(lambda td: False), last))
    _, td = env.step_and_maybe_reset(env.rand_action(env.reset()))
    last.failing = True
    with pytest.raises(ZeroDivisionError):
        env.step(env.rand_action(td.clone()))
    last.failing = False
    assert env.step(env.rand_action(td))["next", "observation"].item() == 3


def test_an_error_of_a_condition_names_the_transform():
    def stop(td):
        raise ValueError("no such thing")

    env = TransformedEnv(ArrayCountingEnv(9), TerminateTransform(stop))
    for call in (lambda: env.rollout(2), lambda: env.step(env.rand_action(env.reset()))):
        with pytest.raises(ValueError, match="no such thing") as caught:
            call()
        assert any("TerminateTransform" in note for note in caught.value.__notes__)


def test_a_subclass_that_writes_its_own_step_is_followed():
    class Never(TerminateTransform):
        def _step(self, tensordict, next_tensordict):
            return next_tensordict

    env = TransformedEnv(ArrayCountingEnv(9), Never(lambda td: True))
    assert not env.rollout(5)["next", "done"].any()


# -- gSDENoise -------------------------------------------------------------------------------------------------------


class ShownNoise(Transform):
    """Batches of data leave the noise out: its name begins with an underscore."""

    def __init__(self):
        super().__init__(["_eps_gSDE"], ["noise"])

    def _apply_transform(self, value):
        return value.clone()

    def transform_observation_spec(self, observation_spec):
        observation_spec["noise"] = observation_spec["_eps_gSDE"].clone()
        return observation_spec


def test_noise_is_equal_on_every_path():
    def make(*others, **kwargs):
        env = TransformedEnv(ArrayCountingEnv(4), Compose(gSDENoise(3, 2), *others), **kwargs)
        env.set_seed(3)
        return env

    env = make(ShownNoise())
    assert env.no_row_writer_reason is None
    actions = env.full_action_spec.rand((17,))
    drawn = env.rollout(17, actions=actions, break_when_any_done=False)["next", "noise"]
    assert len(drawn[:, 0, 0].unique()) == 5  # one an episode
    assert make().row_steps is not None
    for other in (make(), make(run_type_checks=True)):
        assert torch.equal(stepped(other, actions["action"])["next", "_eps_gSDE"], drawn)
