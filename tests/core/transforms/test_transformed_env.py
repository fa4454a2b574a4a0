"""TransformedEnv: specs, attributes, masks, rows, delegation to the base."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from tensordict import TensorDict

from steppe.batched import SerialEnv
from steppe.envs import EnvBase
from steppe.errors import ClosedError, NotSupported, SpecError
from steppe.specs import Categorical, Composite, Unbounded
from steppe.transforms import (
    AutoResetEnv,
    CallableTransform,
    Compose,
    DoubleToFloat,
    InitTracker,
    RewardSum,
    StepCounter,
    Transform,
    TransformedEnv,
)
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
    DynamicSpecEnv,
    HeterogeneousCountingEnv,
    IncrementingEnv,
    StatelessCountingEnv,
    TextCountingEnv,
    assert_equal_data,
)


class Tenfold(Transform):
    """Ten times the observation."""

    def __init__(self):
        super().__init__(["observation"])

    def _apply_transform(self, value):
        return 10 * value


def everything(limit=None):
    return Compose(Tenfold(), RewardSum(), StepCounter(limit), InitTracker(), DoubleToFloat())


def squeezed(data, key):
    return data[key].squeeze(-1).tolist()


BASES = {
    "tensordict": lambda: CountingEnv(3),
    "arrays": lambda: ArrayCountingEnv(3),
    "batch": lambda: CountingEnv(3, batch_size=(2,)),
    "deep batch": lambda: CountingEnv(3, batch_size=(2, 3)),
    "serial": lambda: SerialEnv(2, lambda: ArrayCountingEnv(3)),
    "stateless": lambda: StatelessCountingEnv(3, batch_size=(2,)),
    "double": lambda: CountingEnv(3, dtype=torch.float64),
}


EACH = pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())


@EACH
@pytest.mark.parametrize("limit", [None, 2])
def test_data_is_what_the_specs_say(base, limit):
    TransformedEnv(base(), Compose(RewardSum(), StepCounter(limit), InitTracker(), DoubleToFloat())).check_env_specs()


@EACH
def test_without_a_transform_nothing_changes(base):
    env, counted, bare = TransformedEnv(base()), TransformedEnv(base(), StepCounter()), base()
    for one in (env, counted, bare):
        one.set_seed(0)
    expected = bare.rollout(7, break_when_any_done=False)

    assert env.observation_spec == bare.observation_spec
    assert env.batch_size == bare.batch_size
    assert_equal_data(env.rollout(7, break_when_any_done=False), expected)
    assert_equal_data(counted.rollout(7, break_when_any_done=False), expected, exclude=("step_count",))


def test_specs_are_locked():
    assert TransformedEnv(CountingEnv(3), StepCounter()).observation_spec.is_locked
    assert not TransformedEnv(CountingEnv(3), spec_locked=False).observation_spec.is_locked


def test_specs_are_not_assigned():
    env = TransformedEnv(CountingEnv(3), StepCounter())

    with pytest.raises(NotSupported, match=r"Assign env\.base_env\.observation_spec"):
        env.observation_spec = Composite(a=Unbounded((1,)))
    with pytest.raises(NotSupported, match="BatchSizeTransform"):
        env.batch_size = (2,)


def test_new_specs_of_the_base_are_noticed():
    base = CountingEnv(3)
    env = TransformedEnv(base, StepCounter())
    env.rollout(2)

    base.full_done_spec = Composite(done=Categorical(2, (1,), dtype=torch.bool))

    assert env.done_keys == ["done", "terminated"]
    env.add_truncated_keys()
    assert env.done_keys == ["done", "terminated", "truncated"]


def test_the_base_may_be_given_under_its_older_name():
    base = CountingEnv(3)
    env = TransformedEnv(env=base, transform=StepCounter())

    assert env.base_env is base
    env.check_env_specs()
    assert env.rollout(3)["next", "step_count"].flatten().tolist() == [1, 2, 3]
    for wrong in ({}, {"base_env": base, "env": CountingEnv(3)}):
        with pytest.raises(TypeError, match="takes one environment"):
            TransformedEnv(**wrong)


def test_attributes_come_from_the_base():
    env = TransformedEnv(CountingEnv(7), StepCounter())

    assert env.max_steps == 7
    assert env.base_env.max_steps == 7
    with pytest.raises(AttributeError, match="no_such"):
        env.no_such  # noqa: B018
    with pytest.raises(AttributeError, match="_hidden"):
        env._hidden  # noqa: B018


def test_a_transformed_environment_in_another_is_made_into_one():
    inner = TransformedEnv(CountingEnv(3), Tenfold())
    outer = TransformedEnv(inner, StepCounter())

    assert outer.base_env is inner.base_env
    assert [type(part) for part in outer.transform] == [Tenfold, StepCounter]
    assert squeezed(outer.rollout(3), "observation") == [0, 10, 20]
    assert isinstance(inner.transform, Tenfold), "the inner one stays as it is"
    assert inner.transform.container is inner


@EACH
def test_kept_apart_they_give_the_same_data(base):
    actions = list(base().full_action_spec.rand((8,))["action"])
    one = TransformedEnv(TransformedEnv(base(), RewardSum()), Compose(StepCounter(2), InitTracker()))
    two = TransformedEnv(TransformedEnv(base(), RewardSum()), Compose(StepCounter(2), InitTracker()), auto_unwrap=False)

    first, second = (env.rollout(8, actions=actions, break_when_any_done=False) for env in (one, two))

    assert isinstance(two.base_env, TransformedEnv)
    assert (first == second).all()


def test_transforms_are_appended_and_inserted():
    env = CountingEnv(3).append_transform(StepCounter())
    assert isinstance(env, TransformedEnv)
    assert env.append_transform(InitTracker()) is env
    env.insert_transform(0, Tenfold())

    assert [type(part) for part in env.transform] == [Tenfold, StepCounter, InitTracker]
    env.transform = DoubleToFloat()
    assert env.observation_keys == ["observation"]


def test_the_base_is_not_replaced():
    with pytest.raises(NotSupported, match="make a new TransformedEnv"):
        TransformedEnv(CountingEnv(3)).base_env = CountingEnv(4)


def test_seeds_reach_the_base():
    base, env = IncrementingEnv(3), TransformedEnv(IncrementingEnv(3), StepCounter())

    assert env.set_seed(5) == base.set_seed(5)
    assert env.reset()["observation"].item() == 5
    assert env.set_seed(5, static_seed=True) == 5


def test_a_base_that_draws_its_own_actions_is_asked():
    class Stubborn(CountingEnv):
        def rand_action(self, tensordict=None):
            tensordict = super().rand_action(tensordict)
            return tensordict.set("action", torch.tensor([True, False, False]))

    env = TransformedEnv(Stubborn(5), StepCounter())

    assert env.rollout(5)["action"][:, 0].all()


def test_closing_closes_the_base_and_the_transforms():
    closed = []

    class Tidy(Transform):
        def close(self):
            closed.append(True)

    base = CountingEnv(3)
    env = TransformedEnv(base, Compose(Tidy(), StepCounter()))
    env.close()

    assert base.is_closed
    assert closed == [True]
    with pytest.raises(ClosedError):
        env.reset()
    env.close()
    assert closed == [True]
    with TransformedEnv(CountingEnv(3)) as env:
        env.base_env.close()
        assert env.is_closed


def test_state_training_and_evaluation_are_about_the_transforms():
    class Learned(Transform):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

    env = TransformedEnv(CountingEnv(3), Compose(Learned(), StepCounter()))
    other = TransformedEnv(CountingEnv(3), Compose(Learned(), StepCounter()))
    env.transform[0].seen += 2

    other.load_state_dict(env.state_dict())

    assert other.transform[0].seen.item() == 2
    assert not env.transform.training
    assert env.train().transform[0].training
    assert not env.eval().transform[0].training


@pytest.mark.parametrize("base", [base for name, base in BASES.items() if name != "serial"])
def test_pickles_and_copies_continue_equally(base):
    env = TransformedEnv(base(), everything(2) if "observation" in base().observation_keys else StepCounter(2))
    env.set_seed(0)
    env.rollout(2)
    actions = list(env.full_action_spec.rand((5,))["action"])
    twins = [pickle.loads(pickle.dumps(env)), copy.deepcopy(env)]

    expected = env.rollout(5, actions=actions, break_when_any_done=False)

    for twin in twins:
        assert twin.transform.container is twin
        assert (twin.rollout(5, actions=actions, break_when_any_done=False) == expected).all()


def test_a_clone_has_clones_of_the_transforms_on_the_same_base():
    env = TransformedEnv(CountingEnv(3), Compose(StepCounter()))

    twin = env.clone()

    assert twin.base_env is env.base_env
    assert twin.transform[0] is not env.transform[0]


def test_moving_moves_specs_and_transforms():
    env = TransformedEnv(CountingEnv(3), StepCounter()).to("cpu")

    assert env.device == torch.device("cpu")
    assert env.observation_spec["step_count"].device == torch.device("cpu")
    assert TransformedEnv(CountingEnv(3), device="cpu").device == torch.device("cpu")
    assert env.reset().device == torch.device("cpu")


def test_env_info_reaches_the_base():
    for base in (CountingEnv(5, env_info=True), ArrayCountingEnv(5, env_info=True)):
        env = TransformedEnv(base, Compose(Tenfold(), StepCounter()))
        assert list(env.env_info_spec.keys()) == ["start"]
        assert env.reset(env_info={"start": torch.tensor([4])})["observation"].item() == 40


@pytest.mark.parametrize("base", [DynamicSpecEnv, HeterogeneousCountingEnv, TextCountingEnv])
def test_unusual_data_passes(base):
    env = TransformedEnv(base(3), Compose(StepCounter(2), InitTracker()))

    env.check_env_specs()
    data = env.rollout(4, break_when_any_done=False)

    assert squeezed(data, "step_count") == [0, 1, 0, 1]


def test_environments_that_take_any_batch_still_do():
    env = TransformedEnv(StatelessCountingEnv(3), Compose(RewardSum(), StepCounter(2), InitTracker()))

    data = env.rollout(5, tensordict=TensorDict(batch_size=[4]), break_when_any_done=False)

    assert data.batch_size == (4, 5)
    assert squeezed(data[2], "step_count") == [0, 1, 0, 1, 0]
    assert squeezed(data[2], "count") == [0, 1, 0, 1, 0]


def test_self_resetting_bases_are_not_reset_again():
    from steppe_testing import AutoResettingCountingEnv

    base = AutoResettingCountingEnv(3)
    env = TransformedEnv(base, Compose(RewardSum(), StepCounter()))

    data = env.rollout(7, break_when_any_done=False)

    assert base.resets == 1
    assert squeezed(data, "step_count") == [0, 1, 2, 0, 1, 2, 0]
    assert data["next", "observation"].isnan().squeeze(-1).tolist() == [False, False, True] * 2 + [False]


def test_the_print_says_what_is_in_it():
    text = repr(TransformedEnv(CountingEnv(3), Compose(Tenfold(), StepCounter(5))))

    assert "CountingEnv" in text
    assert "StepCounter(max_steps=5)" in text
    assert "Tenfold(in_keys=['observation']" in text


def test_a_function_may_add_entries():
    one = CallableTransform(lambda td: td.set("one", torch.ones(1)), {"one": Unbounded((1,))})
    env = TransformedEnv(CountingEnv(3), one)

    assert isinstance(env, EnvBase)
    env.check_env_specs()


def test_transforms_begin_in_evaluation_mode():
    """Appended, inserted, and assigned transforms are all in evaluation mode."""
    given, composed, appended, inserted, assigned, third, put, late = (StepCounter() for _ in range(8))
    TransformedEnv(CountingEnv(), given)
    env = TransformedEnv(CountingEnv(), Compose(composed))
    env.append_transform(appended)
    env.insert_transform(0, inserted)
    env.transform.append(third)
    env.transform[1] = put
    other = TransformedEnv(CountingEnv())
    other.transform = assigned
    fresh = CountingEnv().append_transform(late)

    for transform in (given, composed, appended, inserted, assigned, third, put, late):
        assert not transform.training
    assert not any(module.training for env in (env, other, fresh) for module in env.transform.modules())


def test_adding_a_transform_leaves_the_mode_of_the_others():
    env = TransformedEnv(CountingEnv(), StepCounter())
    env.train()

    env.append_transform(InitTracker())

    assert [part.training for part in env.transform] == [True, False]


def test_a_clone_has_the_mode_of_the_original():
    chain = Compose(StepCounter(), Compose(InitTracker()))
    chain.train()

    assert all(module.training for module in chain.clone().modules())


@pytest.mark.parametrize(
    ("base", "text"),
    [
        ("gym:CartPole-v1", r"make_env\('gym:CartPole-v1'\), or GymWrapper\(env\)"),
        (object(), r"make_env\('gym:CartPole-v1'\), or GymWrapper\(env\)"),
        (StepCounter(), "TransformedEnv takes an environment first, found StepCounter"),
    ],
    ids=["a name", "an object", "a transform"],
)
def test_transformed_env_refuses_other_environments(base, text):
    with pytest.raises(SpecError, match=text):
        TransformedEnv(base, CountingEnv())


def twice(td):
    return td.set("twice", 2 * td["observation"])


@pytest.mark.parametrize("kind", [TransformedEnv, AutoResetEnv])
def test_transforms_are_given_one_after_another(kind):
    env = kind(CountingEnv(7), StepCounter(), twice, None, RewardSum())

    assert type(env) is kind
    assert [type(part) for part in env.transform] == [StepCounter, CallableTransform, RewardSum]
    data = env.rollout(3)["next"]
    assert (data["step_count"][-1], data["twice"][-1]) == (3, 6)
    assert data["episode_reward"][-1] == data["reward"].sum()
    several = TransformedEnv(TransformedEnv(CountingEnv(7), StepCounter()), InitTracker(), RewardSum())
    assert [type(part) for part in several.transform] == [StepCounter, InitTracker, RewardSum]


def test_a_single_transform_stays_what_it_is():
    counter = StepCounter()

    assert TransformedEnv(CountingEnv(7), counter).transform is counter
    assert TransformedEnv(CountingEnv(7), transform=counter.clone()).transform.step_count_key == "step_count"
    assert len(TransformedEnv(CountingEnv(7), None).transform) == 0


def test_other_arguments_are_given_by_name():
    assert TransformedEnv(CountingEnv(7), StepCounter(), cache_specs=False).cache_specs is False
    with pytest.raises(SpecError, match=r"found bool. Pass other arguments by name.*cache_specs=True"):
        TransformedEnv(CountingEnv(7), StepCounter(), True)
    with pytest.raises(SpecError, match=r"found list.*Compose\(first, second\).*TransformedEnv\(env, first, second\)"):
        TransformedEnv(CountingEnv(7), [StepCounter(), RewardSum()])
    with pytest.raises(SpecError, match=r"getattr\(steppe.transforms, 'StepCounter'\)"):
        TransformedEnv(CountingEnv(7), "StepCounter")
    with pytest.raises(TypeError, match="give all transforms in order, or one of them as transform="):
        TransformedEnv(CountingEnv(7), StepCounter(), transform=RewardSum())
