"""Compose: a list of transforms."""

from __future__ import annotations

import pytest
import torch

from steppe.errors import SpecError, StateError
from steppe.specs import Unbounded
from steppe.transforms import (
    CallableTransform,
    Compose,
    InitTracker,
    RewardSum,
    StepCounter,
    Transform,
    TransformedEnv,
)
from steppe_testing import CountingEnv


class Writer(Transform):
    """A transform that records the arguments of ``dump``."""

    def dump(self, path, **kwargs):
        self.given = {"path": path, **kwargs}


class Plus(Transform):
    """Adds a number to the observation."""

    def __init__(self, number):
        super().__init__(["observation"], in_keys_inv=["action"])
        self.number = number

    def _apply_transform(self, value):
        return value * 10 + self.number

    def _inv_apply_transform(self, value):
        return value * 10 + self.number


def numbers(compose):
    return [part.number for part in compose]


def test_forward_in_order_and_inverse_in_reverse():
    env = TransformedEnv(CountingEnv(3, action="continuous"), Compose(Plus(1), Plus(2)))
    td = env.reset()

    assert td["observation"].item() == 12
    env.step(td.set("action", torch.zeros(2)))
    assert td["next", "reward"].item() == 2 * 21


def test_a_compose_is_a_list():
    first, second, third = Plus(1), Plus(2), Plus(3)
    compose = Compose(first, second)

    compose.append(third).insert(0, Plus(0)).insert(-1, Plus(9))
    assert numbers(compose) == [0, 1, 2, 9, 3]
    assert compose.pop(3).number == 9
    assert len(compose) == 4
    compose[0] = Plus(7)
    del compose[1]
    assert numbers(compose) == [7, 2, 3]
    assert compose[1] is second
    assert compose[-1] is third
    assert first.container is None
    with pytest.raises(IndexError, match="out of range for 3 transforms"):
        compose[3]
    with pytest.raises(IndexError, match="out of range for 3 transforms"):
        compose.insert(5, Plus(1))


def test_a_compose_accepts_a_list():
    assert numbers(Compose([Plus(1), Plus(2)])) == numbers(Compose(transforms=[Plus(1), Plus(2)])) == [1, 2]


def test_a_slice_is_a_compose_of_clones_that_belongs_to_nothing():
    transform1, transform2, transform3 = Plus(1), Plus(2), Plus(3)
    env = TransformedEnv(CountingEnv(), Compose(transform1, transform2, transform3))

    last_two = env.transform[-2:]

    assert isinstance(last_two, Compose)
    assert last_two.parent is None
    assert last_two[0] is not transform2
    assert isinstance(last_two[0], type(transform2))
    assert last_two[1] is not transform3
    TransformedEnv(CountingEnv(), last_two)


def test_changes_reach_the_environment():
    env = TransformedEnv(CountingEnv(5), Compose(StepCounter()))
    env.rollout(2)

    env.transform.append(CallableTransform(lambda td: td.set("one", torch.ones(1)), {"one": Unbounded((1,))}))

    assert sorted(env.observation_keys) == ["observation", "one", "step_count"]
    assert "one" in env.rollout(2).keys()
    env.transform.pop()
    assert sorted(env.observation_keys) == ["observation", "step_count"]
    assert "one" not in env.rollout(2).keys()
    del env.transform[0]
    assert env.observation_keys == ["observation"]


def test_chains_nest():
    env = TransformedEnv(CountingEnv(3), Compose(Plus(1), Compose(Plus(2), Compose(Plus(3)))))

    assert env.reset()["observation"].item() == 123
    env.transform[1][1].append(Plus(4))
    assert env.reset()["observation"].item() == 1234


def test_a_compose_with_its_own_step_is_one_transform():
    class Loud(Compose):
        def _reset(self, tensordict, tensordict_reset):
            data = super()._reset(tensordict, tensordict_reset)
            return data.set("observation", -data["observation"])

    assert TransformedEnv(CountingEnv(3), Loud(Plus(1), Plus(2))).reset()["observation"].item() == -12


def test_functions_are_transforms():
    def negate(td):
        return td.set("observation", -td["observation"])

    env = TransformedEnv(CountingEnv(3, start=1, action="continuous"), Compose(negate, Plus(5)))

    assert isinstance(env.transform[0], CallableTransform)
    assert env.rollout(3)["observation"].squeeze(-1).tolist() == [-5, -15, -25]
    assert "negate" in repr(env)


def test_a_function_may_end_an_episode():
    def short(td):
        return td.set("done", td["observation"] >= 2).set("truncated", td["observation"] >= 2)

    data = TransformedEnv(CountingEnv(5), short).rollout(6, break_when_any_done=False)

    assert data["observation"].squeeze(-1).tolist() == [0, 1, 0, 1, 0, 1]


def test_compose_refuses_other_values():
    with pytest.raises(SpecError, match="Expected a transform or a function of a TensorDict, found int"):
        Compose(3)
    with pytest.raises(SpecError, match=r"found the class StepCounter: make one, StepCounter\(\)"):
        Compose(StepCounter)
    compose = Compose()
    with pytest.raises(SpecError, match="cannot hold itself"):
        compose.append(compose)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Compose(StepCounter(), [RewardSum()]), SpecError, r"found list. Put several into a Compose"),
        (lambda: Compose(StepCounter(), False), SpecError, "found bool. Pass other arguments by name"),
        (lambda: Compose().insert(StepCounter(), 0), TypeError, r"a place first: insert\(0, transform\), found StepC"),
        (
            lambda: CallableTransform(lambda td: td, StepCounter()),
            SpecError,
            "takes one function; specs is a Composite",
        ),
    ],
)
def test_an_argument_in_the_place_of_another_is_named(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_a_clone_of_a_chain_is_a_chain_of_clones():
    compose = Compose(Plus(1), Compose(Plus(2)))
    TransformedEnv(CountingEnv(), compose)

    twin = compose.clone()

    assert twin.container is None
    assert twin[0] is not compose[0]
    assert twin[1][0].number == 2
    twin.append(Plus(3))
    assert len(compose) == 2


def test_a_compose_that_is_appended_becomes_part_of_the_chain():
    env = TransformedEnv(CountingEnv(3), StepCounter())

    env.append_transform(Compose(InitTracker(), RewardSum()))

    assert [type(part) for part in env.transform] == [StepCounter, InitTracker, RewardSum]
    assert all(part.container is env for part in env.transform)
    env.check_env_specs()


def test_a_part_of_an_unused_chain_can_be_used_alone():
    """A chain cannot get an environment after one of its transforms has got one."""
    transform = StepCounter()
    chain = Compose(transform)
    env = TransformedEnv(CountingEnv(3), transform)

    assert transform.container is env
    with pytest.raises(StateError, match=r"belongs to a TransformedEnv already.*clone"):
        TransformedEnv(CountingEnv(3), chain)


def test_a_transform_is_in_a_chain_of_an_environment_once():
    env = TransformedEnv(CountingEnv(3), Compose(StepCounter()))

    with pytest.raises(StateError, match="has one place"):
        env.append_transform(env.transform[0])


def test_dump_reaches_nested_transforms_with_their_arguments():
    class Chain(Compose):
        pass

    inner = Writer()
    Compose(StepCounter(), Chain(Plus(1), inner)).dump(path="there", step=3)
    assert inner.given == {"path": "there", "step": 3}


def test_dump_of_transforms_that_gather_nothing_takes_anything():
    Compose(StepCounter(), RewardSum()).dump(path="there")
