"""Transform: methods of subclasses, container and copies."""

from __future__ import annotations

import pickle

import pytest
import torch
from tensordict import TensorDict

from steppe.batched import SerialEnv
from steppe.errors import SpecError, StateError
from steppe.specs import Unbounded
from steppe.transforms import (
    Compose,
    DoubleToFloat,
    ObservationTransform,
    StepCounter,
    Transform,
    TransformedEnv,
    apply_to_composite,
    apply_to_composite_inv,
)
from steppe_testing import ArrayCountingEnv, CountingEnv

BOTH = pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])


class Doubled(Transform):
    """Twice the value."""

    def _apply_transform(self, value):
        return 2 * value


class Widened(ObservationTransform):
    """The observation twice."""

    def _apply_transform(self, value):
        return torch.cat([value, value], -1)

    @apply_to_composite
    def transform_observation_spec(self, spec):
        return Unbounded((*spec.shape[:-1], 2 * spec.shape[-1]), dtype=spec.dtype)


class Halved(Transform):
    """The caller gives twice the action."""

    def _inv_apply_transform(self, value):
        return value / 2

    @apply_to_composite_inv
    def transform_action_spec(self, spec):
        return Unbounded(spec.shape, dtype=spec.dtype)


@BOTH
def test_specs_follow_leaf_by_leaf(make):
    env = TransformedEnv(make(3), Widened())

    assert env.observation_spec["observation"].shape == (2,)
    env.check_env_specs()


def test_the_inverse_is_applied_to_what_the_environment_is_given():
    env = TransformedEnv(CountingEnv(3, action="continuous"), Halved(in_keys_inv=["action"]))
    td = env.reset().set("action", torch.tensor([3.0, 1.0]))

    env.step(td)

    assert td["next", "reward"].item() == 2
    assert td["action"].tolist() == [3.0, 1.0], "what the caller holds stays as it is"
    env.check_env_specs()


def test_the_caller_may_write_the_action_under_another_name():
    env = TransformedEnv(CountingEnv(3, action="continuous"), Halved(in_keys_inv=["action"], out_keys_inv=["push"]))

    assert env.action_keys == ["push"]
    data = env.rollout(3)
    assert "action" not in data.keys()
    assert torch.allclose(data["next", "reward"], data["push"].sum(-1, keepdim=True) / 2)


def test_a_missing_entry_is_named():
    env = TransformedEnv(CountingEnv(2), Doubled(["observatoin"]))

    with pytest.raises(KeyError, match=r"Doubled: there is no entry 'observatoin' in the data\. Found"):
        env.rand_step(env.reset())


def test_missing_entries_can_be_tolerated():
    transform = Doubled(["a", "b"])
    with transform.set_missing_tolerance(True):
        assert transform(TensorDict(a=torch.ones(1)))["a"].item() == 2
    assert not transform.missing_tolerance
    with pytest.raises(KeyError, match="'b'"):
        transform(TensorDict(a=torch.ones(1)))


def test_calling_a_transform_changes_given_data():
    data = TensorDict(a=torch.ones(4, 1), batch_size=[4])

    assert Doubled(["a"], ["b"])(data)["b"].tolist() == [[2]] * 4
    assert Halved(in_keys_inv=["a"]).inv(data)["a"].tolist() == [[0.5]] * 4
    assert data["a"].tolist() == [[1]] * 4


def test_a_transform_over_time_refuses_data_without_time():
    """The error says which data it needs, and where it can be appended instead."""
    with pytest.raises(SpecError, match=r"data \[\*B, T\] with 'next'.*append it to the environment"):
        StepCounter()(TensorDict())


def test_gradients_pass():
    class Scaled(Transform):
        def __init__(self):
            super().__init__(["observation"])
            self.scale = torch.nn.Parameter(torch.tensor(3.0))

        def _apply_transform(self, value):
            return value * self.scale

    transform = Scaled()
    data = TransformedEnv(CountingEnv(3), transform).rollout(3)
    data["next", "observation"].sum().backward()

    assert transform.scale.grad.item() == 6


@pytest.mark.parametrize("name", ["transform_observation_spec", "transform_action_spec", "transform_env_batch_size"])
def test_a_typo_in_a_method_about_specs_is_named(name):
    def broken(self, *args):
        raise AttributeError("'Bounded' object has no attribute 'shpae'")

    transform = type("Broken", (Transform,), {name: broken})
    for use in (
        lambda make: make().observation_spec,
        lambda make: make().action_spec,
        lambda make: make().reset(),
        lambda make: make().rollout(3),
        lambda make: SerialEnv(2, make).reset(),
    ):
        with pytest.raises(AttributeError, match="'Bounded' object has no attribute 'shpae'"):
            use(lambda: TransformedEnv(CountingEnv(3), transform()))


def test_a_typo_in_a_property_of_a_transform_is_named():
    class Broken(Transform):
        @property
        def width(self):
            return self.nonsense

    with pytest.raises(AttributeError, match="'Broken' object has no attribute 'nonsense'"):
        _ = Compose(Broken())[0].width


def test_a_transform_belongs_to_one_environment():
    transform = StepCounter()
    env = TransformedEnv(CountingEnv(), transform)

    assert transform.container is env
    with pytest.raises(StateError, match=r"belongs to a TransformedEnv already.*transform\.clone\(\)"):
        TransformedEnv(CountingEnv(), transform)
    TransformedEnv(CountingEnv(), transform.clone())


def test_a_transform_is_free_after_its_environment_is_deleted():
    transform = StepCounter()
    TransformedEnv(CountingEnv(), transform)

    TransformedEnv(CountingEnv(), transform)


def test_a_transform_without_an_environment_has_no_parent():
    assert StepCounter().parent is None
    assert StepCounter().container is None
    assert Compose(StepCounter())[0].parent is None


def test_the_parent_is_the_environment_before_the_transform():
    base = CountingEnv(3)
    env = TransformedEnv(base, Compose(Doubled(["observation"]), StepCounter(), DoubleToFloat()))

    parent = env.transform[1].parent

    assert isinstance(parent, TransformedEnv)
    assert parent.base_env is base
    assert [type(part) for part in parent.transform] == [Doubled]
    assert parent.transform[0] is not env.transform[0]
    assert "step_count" not in parent.observation_keys
    assert len(env.transform[0].parent.transform) == 0
    assert env.transform[1].parent is parent, "it is kept"


def test_the_parent_follows_what_is_done_to_the_chain():
    env = TransformedEnv(CountingEnv(3), Compose(StepCounter(), DoubleToFloat()))
    last = env.transform[1]
    before = last.parent

    env.insert_transform(0, Doubled(["observation"]))

    assert last.parent is not before
    assert len(last.parent.transform) == 2


def test_parents_of_nested_chains():
    env = TransformedEnv(CountingEnv(3), Compose(StepCounter(), Compose(Doubled(["observation"]), DoubleToFloat())))

    assert [type(part) for part in env.transform[1][1].parent.transform] == [StepCounter, Doubled]
    assert [type(part) for part in env.transform[1].parent.transform] == [StepCounter]


def test_a_clone_shares_buffers_and_belongs_to_nothing():
    class Counted(Transform):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def _call(self, next_tensordict):
            self.calls += 1
            return next_tensordict

    transform = Counted()
    TransformedEnv(CountingEnv(3), transform).rollout(3)
    twin = transform.clone()
    TransformedEnv(CountingEnv(3), twin).rollout(3)

    assert transform.calls is twin.calls
    assert twin.calls.item() == 6


def test_transforms_can_be_pickled_without_their_environment():
    env = TransformedEnv(CountingEnv(3), Compose(Doubled(["observation"]), StepCounter(4)))
    env.rollout(2)

    again = pickle.loads(pickle.dumps(env.transform))

    assert again.container is None
    assert again[1].max_steps == 4
    assert again[0].container is again
