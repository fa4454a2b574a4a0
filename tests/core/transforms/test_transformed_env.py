"""TransformedEnv: specs, attributes, masks, rows, delegation to the base."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from steppe.batched import SerialEnv
from steppe.envs import EnvBase
from steppe.errors import ActionError, ClosedError, NotSupported, SpecError, StateError
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
    NestedCountingEnv,
    NestedResetEnv,
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


# -- specs -------------------------------------------------------------------------------------------------------------


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


# -- the base ----------------------------------------------------------------------------------------------------------


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


# -- steps and resets --------------------------------------------------------------------------------------------------


def test_a_missing_or_wrong_action_is_an_error():
    for base in (CountingEnv(3), ArrayCountingEnv(3)):
        env = TransformedEnv(base, StepCounter())
        with pytest.raises(ActionError, match="There is no action at 'action'"):
            env.step(env.reset())
        env.rollout(2)
        with pytest.raises(ActionError, match="one-hot"):
            env.step(env.reset().set("action", torch.zeros(3)))


@EACH
def test_a_step_changes_no_tensors_of_the_base_or_the_caller(base):
    kept = []
    env = TransformedEnv(base(), Compose(RewardSum(), StepCounter(4), InitTracker()))
    td = env.reset()
    for _ in range(6):
        env.rand_action(td)
        kept.append((td.clone(), td))
        _, td = env.step_and_maybe_reset(td)
        copied, original = kept[-1]
        assert all(torch.equal(copied[key], original[key]) for key in copied.keys(True, True))
    for copied, original in kept:
        assert all(torch.equal(copied[key], original[key]) for key in copied.keys(True, True))


@EACH
def test_one_round_trip_equals_two(base):
    actions = list(base().full_action_spec.rand((10,))["action"])
    data = []
    for limit in (None, 10**6):
        env = TransformedEnv(base(), Compose(RewardSum(), StepCounter(limit), InitTracker()))
        data.append(env.rollout(10, actions=actions, break_when_any_done=False))

    assert data[0]["next", "done"].any()
    assert (data[0] == data[1]).all()


def test_a_batch_is_reset_in_the_trip_of_its_step(monkeypatch):
    calls, reset = [], EnvBase.reset

    def watched(self, *args, **kwargs):
        calls.append(type(self))
        return reset(self, *args, **kwargs)

    monkeypatch.setattr(EnvBase, "reset", watched)  # an override in a subclass would be called at each end
    env = TransformedEnv(SerialEnv(2, lambda: ArrayCountingEnv(3)), Compose(RewardSum(), StepCounter()))
    data = env.rollout(10, break_when_any_done=False)

    assert calls.count(SerialEnv) <= 1
    assert squeezed(data[0], "step_count") == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


def test_undeclared_writes_of_done_are_an_error():
    """A class that ends episodes must not set writes_done to False."""

    class Secret(Transform):
        writes_done = False

        def _call(self, next_tensordict):
            return next_tensordict.set("done", next_tensordict["observation"] >= 2)

    env = TransformedEnv(SerialEnv(2, lambda: ArrayCountingEnv(5)), Secret())

    with pytest.raises(StateError, match="writes_done = True"):
        env.rollout(6, break_when_any_done=False)


@pytest.mark.parametrize("base", [BASES["batch"], BASES["serial"], BASES["stateless"]])
def test_rows_that_are_not_stepped_keep_their_values(base):
    env = TransformedEnv(base(), Compose(RewardSum(), StepCounter(), InitTracker()))
    td = env.step_mdp(env.rand_step(env.reset()))
    before = td.clone()

    env.rand_action(td)["_step"] = torch.tensor([True, False])
    env.step(td)

    assert squeezed(td, ("next", "step_count")) == [2, 1]
    key = "observation" if "observation" in td.keys() else "count"
    assert td["next", key][1] == before[key][1]
    assert td["next", "episode_reward"][1] == before["episode_reward"][1]
    assert "_step" not in td.keys()


def test_skipped_rows_are_not_transformed_again():
    env = TransformedEnv(CountingEnv(9, batch_size=(2,)), Tenfold())
    td = env.step_mdp(env.rand_step(env.reset()))

    env.rand_action(td)["_step"] = torch.tensor([True, False])

    assert squeezed(env.step(td), ("next", "observation")) == [20, 10]


@pytest.mark.parametrize("base", [BASES["batch"], BASES["serial"], BASES["stateless"]])
def test_rows_that_are_not_reset_keep_their_values(base):
    env = TransformedEnv(base(), Compose(RewardSum(), StepCounter(), InitTracker()))
    td = env.step_mdp(env.rand_step(env.reset()))
    td["_reset"] = torch.tensor([[True], [False]])

    env.reset(td)

    assert squeezed(td, "step_count") == [0, 1]
    assert squeezed(td, "is_init") == [True, False]
    assert squeezed(td, "observation" if "observation" in td.keys() else "count") == [0, 1]


@pytest.mark.parametrize("base", [BASES["batch"], BASES["serial"]])
def test_some_rows_can_be_stepped_and_reset(base):
    env = TransformedEnv(base(), Compose(Tenfold(), RewardSum(), StepCounter(2), InitTracker()))
    whole = TransformedEnv(base(), Compose(Tenfold(), RewardSum(), StepCounter(2), InitTracker()))
    actions = list(env.full_action_spec.rand((2,))["action"])
    expected = whole.rollout(2, actions=actions)

    rows = torch.tensor([1])
    td = env.reset()[rows]
    for t in range(2):
        td["action"] = actions[t][rows]
        env.step_at(td, rows)
        for key in expected["next"].keys():
            assert torch.equal(td["next", key], expected["next", key][rows, t]), key
        td = env.step_mdp(td)
    fresh = env.reset_at(td, rows)

    assert fresh["step_count"].tolist() == [[0]]
    assert fresh["is_init"].tolist() == [[True]]
    assert env.reset_at(None, rows)["observation"].tolist() == [[0]]


def test_env_info_reaches_the_base():
    for base in (CountingEnv(5, env_info=True), ArrayCountingEnv(5, env_info=True)):
        env = TransformedEnv(base, Compose(Tenfold(), StepCounter()))
        assert list(env.env_info_spec.keys()) == ["start"]
        assert env.reset(env_info={"start": torch.tensor([4])})["observation"].item() == 40


def test_a_step_keeps_entries_that_the_policy_put_under_next():
    env = TransformedEnv(CountingEnv(3), StepCounter())
    td = env.rand_action(env.reset()).set("next", TensorDict(hidden=torch.ones(2)))

    env.step(td)

    assert sorted(td["next"].keys()) == [
        "done", "hidden", "observation", "reward", "step_count", "terminated", "truncated",
    ]  # fmt: skip


def test_rollouts_take_policies_and_callbacks():
    env = TransformedEnv(ArrayCountingEnv(4), everything(3))
    seen = []
    policy = TensorDictModule(lambda count: torch.tensor([False, True, False]), ["step_count"], ["action"])

    data = env.rollout(10, policy, callback=lambda env, td: seen.append(td["step_count"].item()))

    assert seen == [0, 1, 2]
    assert squeezed(data["next"], "episode_reward") == [1, 2, 3]
    again = env.rollout(10, policy)
    assert (again == data).all()


@EACH
def test_rollouts_until_all_have_ended(base):
    env = TransformedEnv(base(), Compose(StepCounter(2)))

    data = env.rollout(10, break_when_all_done=True)

    assert data.shape[-1] == 2
    assert data["next", "truncated"][..., -1, :].all()


# -- levels, dynamic and other data ------------------------------------------------------------------------------------


@pytest.mark.parametrize("root_done", [None, "any", "all"])
def test_each_level_is_counted(root_done):
    env = TransformedEnv(
        NestedCountingEnv(3, root_done=root_done, batch_size=(2,)), Compose(RewardSum(), StepCounter(), InitTracker())
    )

    env.check_env_specs()
    data = env.rollout(5, break_when_any_done=False)

    assert data["agents", "step_count"][0, :, 0, 0].tolist() == [0, 1, 2, 0, 1]
    assert data["agents", "is_init"][0, :, 1, 0].tolist() == [True, False, False, True, False]
    assert data["agents", "episode_reward"].shape == (2, 5, 2, 1)
    assert (data["agents", "episode_reward"][:, 3] == 0).all()
    assert ("step_count" in data.keys()) == (root_done is not None)


def test_groups_that_end_alone_begin_alone():
    env = TransformedEnv(NestedResetEnv(), Compose(StepCounter()))
    env.check_env_specs()
    td = env.step_mdp(env.rand_step(env.reset()))
    prefixes = [key[:-1] for key in env.reset_keys if isinstance(key, tuple)]
    if not prefixes:
        pytest.skip("the environment has one level")
    first, *others = prefixes
    for prefix in prefixes:
        shape = td[(*prefix, "done")].shape
        td[(*prefix, "_reset")] = torch.full(shape, prefix == first)
    env.reset(td)

    assert (td[(*first, "step_count")] == 0).all()
    assert all((td[(*prefix, "step_count")] == 1).all() for prefix in others)


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


# -- training mode ---------------------------------------------------------------------------------------------------


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


# -- arguments -----------------------------------------------------------------------------------------------------


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
