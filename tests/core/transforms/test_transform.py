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
from steppe_testing import ArrayCountingEnv, CountingEnv, DataEnv, NestedCountingEnv

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
def test_an_entry_is_transformed_after_each_step_and_each_reset(make):
    env = TransformedEnv(make(3, start=1), Doubled(["observation"]))

    data = env.rollout(5, break_when_any_done=False)

    assert data["observation"].squeeze(-1).tolist() == [2, 4, 6, 2, 4]
    assert data["next", "observation"].squeeze(-1).tolist() == [4, 6, 8, 4, 6]


def test_a_result_may_go_to_another_key():
    env = TransformedEnv(CountingEnv(3, start=1), Doubled(["observation"], ["twice"]))

    root = env.reset()

    assert (root["observation"].item(), root["twice"].item()) == (1, 2)


def test_a_reward_is_transformed_after_a_step_only():
    env = TransformedEnv(CountingEnv(3), Doubled(["reward"]))

    data = env.rollout(3, actions=torch.eye(3, dtype=torch.bool))

    assert data["next", "reward"].squeeze(-1).tolist() == [0, 2, 4]
    assert "reward" not in data.keys()


def test_nested_keys_are_keys():
    env = TransformedEnv(NestedCountingEnv(3, root_done="any"), Doubled([("agents", "observation")]))

    data = env.rollout(3)

    assert data["next", "agents", "observation"][:, 0, 0].tolist() == [2, 4, 6]


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


def test_call_and_reset_may_be_written_instead():
    class Both(Transform):
        def _call(self, next_tensordict):
            return next_tensordict.set("kind", torch.zeros(1))

        def _reset(self, tensordict, tensordict_reset):
            return tensordict_reset.set("kind", torch.ones(1))

        def transform_observation_spec(self, observation_spec):
            observation_spec["kind"] = Unbounded((1,))
            return observation_spec

    data = TransformedEnv(CountingEnv(2), Both()).rollout(4, break_when_any_done=False)

    assert data["kind"].squeeze(-1).tolist() == [1, 0, 1, 0]


def test_a_step_sees_the_root_that_it_began_from():
    class Gain(Transform):
        def _step(self, tensordict, next_tensordict):
            return next_tensordict.set("gain", next_tensordict["observation"] - tensordict["observation"])

        def _reset(self, tensordict, tensordict_reset):
            return tensordict_reset.set("gain", torch.zeros(1))

        def transform_observation_spec(self, observation_spec):
            observation_spec["gain"] = Unbounded((1,))
            return observation_spec

    data = TransformedEnv(CountingEnv(2), Gain()).rollout(4, break_when_any_done=False)

    assert data["next", "gain"].unique().tolist() == [1]


def test_each_transform_sees_the_root_of_its_own_level():
    """In a step, a transform sees the action before the inverses of inner transforms."""
    seen = {}

    class Watch(Transform):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def _step(self, tensordict, next_tensordict):
            seen[self.name] = tensordict["action"].tolist()
            return next_tensordict

    first, second = Watch("inner"), Watch("outer")
    env = TransformedEnv(CountingEnv(2, action="continuous"), Compose(first, Halved(in_keys_inv=["action"]), second))
    env.step(env.reset().set("action", torch.tensor([2.0, 4.0])))

    assert seen == {"inner": [1.0, 2.0], "outer": [2.0, 4.0]}


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


def test_keys_must_be_as_many():
    with pytest.raises(
        SpecError, match=r"Doubled: in_keys and out_keys must have the same length, found \['a'\] and \['b', 'c'\]"
    ):
        Doubled(["a"], ["b", "c"])
    with pytest.raises(SpecError, match="Halved: in_keys_inv and out_keys_inv must have the same length"):
        Halved(in_keys_inv=["a"], out_keys_inv=["b", "c"])


class Together(Transform):
    """Many entries side by side in one."""

    def __init__(self, in_keys, name):
        super().__init__(in_keys=in_keys, out_keys=[name])

    def _call(self, next_tensordict):
        parts = [next_tensordict[key] for key in self.in_keys]
        return next_tensordict.set(self.out_keys[0], torch.cat(parts, -1))

    def _reset(self, tensordict, tensordict_reset):
        return self._call(tensordict_reset)

    def transform_observation_spec(self, observation_spec):
        observation_spec[self.out_keys[0]] = Unbounded((*observation_spec.shape, len(self.in_keys)))
        return observation_spec


@pytest.mark.parametrize("base", [CountingEnv, ArrayCountingEnv])
def test_a_transform_with_call_may_read_any_number_of_keys(base):
    """A transform that overrides _call may have more in_keys than out_keys."""
    env = TransformedEnv(base(3), Compose(StepCounter(), Together(["observation", "observation"], "both")))

    env.check_env_specs()
    assert env.rollout(3)["next", "both"].tolist() == [[1, 1], [2, 2], [3, 3]]


def test_calling_a_transform_changes_given_data():
    data = TensorDict(a=torch.ones(4, 1), batch_size=[4])

    assert Doubled(["a"], ["b"])(data)["b"].tolist() == [[2]] * 4
    assert Halved(in_keys_inv=["a"]).inv(data)["a"].tolist() == [[0.5]] * 4
    assert data["a"].tolist() == [[1]] * 4


def test_an_episode_transform_refuses_stored_data():
    """The error says to append the transform to an environment."""
    with pytest.raises(NotImplementedError, match="Append it to the environment"):
        StepCounter()(TensorDict())


def test_a_default_key_is_one_that_the_environment_has():
    env = TransformedEnv(ArrayCountingEnv(2, pixels=(4, 4)), Widened())
    transform = env.transform

    env.reset()

    assert transform.in_keys == ["observation", "pixels"]
    unknown = DataEnv({"position": Unbounded((2,))})
    with pytest.raises(SpecError, match=r"none of \['observation', 'pixels'\].*give in_keys.*\['position'\]"):
        TransformedEnv(unknown, Widened()).reset()


def test_default_keys_are_the_groups_without_root_keys():
    """If the root lacks the usual entry, the default keys are those of groups."""
    env = TransformedEnv(ArrayCountingEnv(2, nested=True), Widened())
    transform = env.transform

    assert transform.in_keys == [("data", "observation")]
    wide, plain = (one.rollout(2)["data", "observation"] for one in (env, env.base_env))
    assert wide.shape[-1] == 2 * plain.shape[-1]
    assert TransformedEnv(ArrayCountingEnv(2), transform.clone()).transform.in_keys == ["observation"]


def test_default_keys_come_from_the_specs_before_the_transform():
    class Halved(Transform):
        keeps_nothing = True

        def default_keys(self, specs):
            return ["reward"] if specs is None else list(specs.reward.keys(True, True))

        def _apply_transform(self, value):
            return value / 2

    alone, env = Halved(), TransformedEnv(NestedCountingEnv(3), Compose(Halved(), Halved()))
    rewards = env.base_env.reward_keys

    assert alone.in_keys == ["reward"]
    assert env.transform[1].in_keys == rewards != ["reward"]
    actions = env.full_action_spec.rand((3,))
    data, plain = (one.rollout(3, actions=actions) for one in (env, env.base_env))
    for key in rewards:
        torch.testing.assert_close(data["next"].get(key), plain["next"].get(key) / 4)


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


# -- mistakes ---------------------------------------------------------------------------------------------------------


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


# -- where a transform belongs ---------------------------------------------------------------------------------------


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
