"""Actions that transforms make, on their way to an environment that writes rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe import ArrayEnv, SerialEnv, TransformedEnv
from steppe.errors import ActionError
from steppe.specs import Binary, Bounded, Composite, OneHot, Unbounded
from steppe.transforms import Compose, DoubleToFloat, RewardSum, StepCounter
from steppe_action import (
    ActionDiscretizer,
    ActionMask,
    ActionScaling,
    ConditionalPolicySwitch,
    DiscreteActionProjection,
    FlattenAction,
)
from steppe_testing import ArrayCountingEnv
from tests.transforms.alike import alike, stepped


class ShowsAction(ArrayEnv):
    """An environment that observes its last action, with five steps."""

    def __init__(self, action, shape):
        super().__init__()
        self.observation_spec = Composite(observation=Unbounded(shape))
        self.reward_spec = Unbounded((1,))
        self.action_spec = action
        self.steps = 0

    def reset_into(self, out, seed, env_info):
        self.steps = 0
        out["observation"][...] = 0

    def step_into(self, action, out):
        self.steps += 1
        out["observation"][...] = action
        out["reward"][...] = 1
        return self.steps == 5, False


class Negated(ActionScaling):
    """Another inverse than that of the class, whose kernel is not to be used."""

    def _inv_apply_transform(self, value):
        return -super()._inv_apply_transform(value)


BOX = Bounded(-2.0, 2.0, (2, 3))
CHAINS = {
    "projection": (lambda: DiscreteActionProjection(3, 6), OneHot(3), ()),
    "scaling": (ActionScaling, BOX, (2, 3)),
    "flatten": (FlattenAction, BOX, (2, 3)),
    "discretizer": (lambda: ActionDiscretizer(4), Bounded(-1.0, 1.0, (3,)), (3,)),
    "numbers": (lambda: ActionDiscretizer(4, categorical=True), Bounded(-1.0, 1.0, (3,)), (3,)),
    "unequal": (lambda: ActionDiscretizer(torch.tensor([2, 5, 3])), Bounded(-1.0, 1.0, (3,)), (3,)),
    "one-hot": (lambda: ActionDiscretizer(4, categorical=False), Bounded(-1.0, 1.0, (3,)), (3,)),
    "one number": (lambda: ActionDiscretizer(4), Bounded(-1.0, 1.0, ()), ()),
    "one row": (lambda: ActionDiscretizer(4, categorical=False), Bounded(-1.0, 1.0, ()), ()),
    "two": (lambda: Compose(FlattenAction(), ActionScaling(), StepCounter()), BOX, (2, 3)),
    "numbers of a scale": (lambda: Compose(ActionScaling(), ActionDiscretizer(4)), BOX, (2, 3)),
    "one without a kernel": (lambda: Compose(ActionScaling(), Negated()), BOX, (2, 3)),
    "one with a kernel": (lambda: Compose(Negated(), ActionScaling()), BOX, (2, 3)),
    "cast": (lambda: Compose(DoubleToFloat(), ActionScaling()), Bounded(-2.1, 0.7, (3,), dtype=torch.float64), (3,)),
    "cast first": (
        lambda: Compose(ActionScaling(), DoubleToFloat()),
        Bounded(-2.1, 0.7, (3,), dtype=torch.float64),
        (3,),
    ),
}


@pytest.fixture(params=CHAINS)
def make(request):
    transform, action, shape = CHAINS[request.param]

    def env(**kwargs):
        found = TransformedEnv(ShowsAction(action, shape), transform(), **kwargs)
        found.set_seed(3)
        return found

    return env


def test_a_step_writes_rows_as_a_rollout_does(make):
    alike(make, 23)


@pytest.mark.parametrize(
    "outer", [lambda: ActionDiscretizer(4), ActionScaling, StepCounter], ids=["number", "scale", "none"]
)
def test_a_nested_transformed_env_gets_the_same_actions(outer):
    """The actions are those of the joined chain, and wrong ones are refused."""

    def make(**kwargs):
        inner = TransformedEnv(ShowsAction(Bounded(-2.0, 1.0, (3,)), (3,)), ActionScaling())
        return TransformedEnv(inner, outer(), **kwargs)

    nested, joined = make(auto_unwrap=False), make()
    assert isinstance(nested.base_env, TransformedEnv)
    assert not isinstance(joined.base_env, TransformedEnv)
    actions = joined.full_action_spec.rand((9,))["action"]
    assert torch.equal(stepped(nested, actions)["next", "observation"], stepped(joined, actions)["next", "observation"])
    wrong = actions[0].new_full((2,), 1)
    with pytest.raises(ActionError, match="must have shape"):
        nested.step(nested.reset().set("action", wrong))


def test_replaced_actions_are_equal_in_a_batch_and_alone():
    def make():
        return TransformedEnv(ShowsAction(OneHot(3), ()), DiscreteActionProjection(3, 6))

    alone, batch = make(), SerialEnv(1, make)
    actions = alone.full_action_spec.rand((20,))
    for env in (alone, batch):
        env.set_seed(5)
    whole = alone.rollout(20, actions=actions, break_when_any_done=False)["next", "observation"]
    inside = batch.rollout(20, actions=actions["action"].unsqueeze(1).unbind(0), break_when_any_done=False)
    assert torch.equal(inside["next", "observation"][0], whole)
    assert len(whole.unique()) == 3


def test_an_invalid_action_is_refused_before_the_base_steps():
    env = TransformedEnv(ShowsAction(OneHot(3), ()), DiscreteActionProjection(3, 6))
    td = env.reset()
    for wrong, says in ((torch.ones(6), "single 1 among 6"), (torch.ones(3), r"shape \(6,\)")):
        with pytest.raises(ActionError, match=says):
            env.step(td.clone().set("action", wrong.to(torch.int64)))
    assert env.base_env.steps == 0


def test_the_result_of_an_inverse_is_validated():
    """An action that an inverse has computed must fit the spec of the base."""

    class Broken(ActionScaling):
        def _inv_apply_transform(self, value):
            return value[:1]

    env = TransformedEnv(ShowsAction(BOX, (2, 3)), Broken())
    with pytest.raises(ActionError, match=r"shape \(2, 3\), found \(1, 3\)"):
        env.step(env.rand_action(env.reset()))


def test_values_that_an_inverse_keeps_never_change():
    class Keeps(ActionScaling):
        def __init__(self):
            super().__init__()
            self.kept = []

        def shared_key(self):
            return None

        def _inv_apply_transform(self, value):
            self.kept.append((value, value.clone()))
            return super()._inv_apply_transform(value)

    transform = Keeps()
    with SerialEnv(1, lambda: TransformedEnv(ShowsAction(BOX, (2, 3)), transform)) as env:
        env.rollout(4)
    assert len({float(was.sum()) for _, was in transform.kept}) == 4
    assert all(torch.equal(value, was) for value, was in transform.kept)


def given(env, action):
    """Return the environment's action of a step, as bytes."""
    return env.step(env.reset().set("action", action))["next", "observation"].numpy().tobytes()


EDGES = torch.tensor([-0.0, 0.0, 1.0, -1.0, 0.3, 7.0, -7.0, float("inf"), float("nan"), 1e-45])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"standard_normal": False},
        {"loc": 0.1, "scale": 3.0},
        {"loc": torch.linspace(0.1, 1, 10), "scale": torch.linspace(-3, 3.1, 10), "standard_normal": False},
    ],
    ids=["bounds", "from 0", "given", "given for each"],
)
@pytest.mark.parametrize("bounds", [(-2.3, 1.7), (0.0, 0.9), (-0.7, 0.0)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_action_is_scaled_to_the_same_bits_on_each_path(settings, bounds, dtype):
    def make(**kwargs):
        env = ShowsAction(Bounded(*bounds, (10,), dtype=dtype), (10,))
        env.observation_spec = Composite(observation=Unbounded((10,), dtype=dtype))
        return TransformedEnv(env, ActionScaling(**settings), **kwargs)

    fast, slow = make(), make(run_type_checks=True)
    assert fast.row_steps is not None
    for action in (EDGES, torch.rand(10), 2 * torch.rand(10) - 1):
        action = action.to(dtype)
        assert given(fast, action) == given(slow, action)


@pytest.mark.parametrize("name", ["scaling", "flatten", "discretizer", "one-hot", "one number"])
def test_a_loop_of_steps_makes_an_action_without_tensors(name, monkeypatch):
    transform, action, shape = CHAINS[name]
    env = TransformedEnv(ShowsAction(action, shape), transform())
    actions = env.full_action_spec.rand((3,))["action"]
    wanted = stepped(env, actions)["next", "observation"]
    owner = type(env.transform)

    def refuse(self, value):
        raise AssertionError("this takes three times as long")

    monkeypatch.setattr(owner, "_inv_apply_transform", refuse)
    assert torch.equal(stepped(env, actions)["next", "observation"], wanted)


def test_a_scale_that_is_given_later_holds_from_then_on():
    base = ShowsAction(Bounded(-2.0, 2.0, (3,)), (3,))
    env = TransformedEnv(base, ActionScaling(loc=torch.zeros(3), scale=torch.ones(3)))
    ones = torch.ones(3)
    assert env.step(env.reset().set("action", ones))["next", "observation"].tolist() == [1, 1, 1]
    env.transform.load_state_dict({"loc": torch.zeros(3), "scale": torch.tensor([0.5, 1.0, 1.5])})
    assert env.step(env.reset().set("action", ones))["next", "observation"].tolist() == [0.5, 1, 1.5]
    env.transform.scale = torch.full((3,), 0.25)
    assert env.step(env.reset().set("action", ones))["next", "observation"].tolist() == [0.25] * 3


@pytest.mark.parametrize(
    "transform", [ActionScaling, lambda: ActionDiscretizer(2, sampling=2)], ids=["scale", "number"]
)
def test_new_bounds_of_the_base_hold_from_the_next_step(transform):
    base = ShowsAction(Bounded(-2.0, 2.0, (3,)), (3,))
    env = TransformedEnv(base, transform())
    best = torch.ones(3, dtype=env.action_spec.dtype)
    found = [env.step(env.reset().set("action", best))["next", "observation"].tolist()]
    base.action_spec = Bounded(-1.0, 0.5, (3,))
    found.append(env.step(env.reset().set("action", best))["next", "observation"].tolist())
    assert found == [[2] * 3, [0.5] * 3]


def test_a_number_without_an_interval_is_refused_in_a_loop():
    env = TransformedEnv(ShowsAction(Bounded(-1.0, 1.0, (3,)), (3,)), ActionDiscretizer(4))
    for wrong in ([0, 4, 0], [-1, 0, 0]):
        with pytest.raises(ActionError, match="from 0 to"):
            env.step(env.reset().set("action", torch.tensor(wrong)))
    assert env.base_env.steps == 0


def test_an_env_that_writes_into_its_action_changes_no_data(make):
    class Wipes(ShowsAction):
        def step_into(self, action, out):
            flags = super().step_into(action, out)
            if isinstance(action, np.ndarray):
                action[...] = 99
            return flags

    env = make()
    base = env.base_env
    wiping = TransformedEnv(Wipes(base.action_spec, base.observation_spec["observation"].shape), env.transform.clone())
    action = env.full_action_spec.rand((9,))
    wanted, kept = stepped(env, action["action"]), action.clone()
    found = stepped(wiping, action["action"])
    assert torch.equal(action["action"], kept["action"])
    if not isinstance(base.action_spec, OneHot):
        assert torch.equal(found["next", "observation"], wanted["next", "observation"])


def test_an_action_with_gradients_is_stepped():
    env = TransformedEnv(ShowsAction(BOX, (2, 3)), ActionScaling())
    td = env.step(env.reset().set("action", torch.zeros(2, 3, requires_grad=True)))
    assert not td["next", "observation"].requires_grad


# -- ActionMask ------------------------------------------------------------------------------------------------------


class Allows(ArrayEnv):
    """Allows one of three actions: that of the number of its steps, halved, so that each mask comes twice."""

    def __init__(self, dtype=torch.bool):
        super().__init__()
        self.observation_spec = Composite(action_mask=Binary(3, dtype=dtype))
        self.reward_spec = Unbounded((1,))
        self.action_spec = OneHot(3)
        self.steps = 0

    def _show(self, out):
        out["action_mask"][...] = np.arange(3) == self.steps // 2 % 3

    def reset_into(self, out, seed, env_info):
        self.steps = 0
        self._show(out)

    def step_into(self, action, out):
        self.steps += 1
        out["reward"][...] = 1
        self._show(out)
        return self.steps == 5, False


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_the_spec_shows_the_mask_of_each_step(dtype):
    env = TransformedEnv(Allows(dtype), ActionMask())
    td, kept = env.reset(), []
    for _ in range(7):
        assert torch.equal(env.action_spec.mask, td["action_mask"].bool())
        kept.append((env.action_spec.mask, td["action_mask"].bool()))
        _, td = env.step_and_maybe_reset(env.rand_action(td))
    assert all(torch.equal(mask, shown) for mask, shown in kept)  # what somebody has kept stays as it was


@pytest.mark.parametrize("change", [lambda spec: spec.update_mask(None), lambda spec: spec.mask.fill_(True)])
def test_a_changed_mask_is_replaced_after_a_step(change):
    """The next step restores a mask in the spec that other code has changed."""
    env = TransformedEnv(Allows(), ActionMask())
    td = env.reset()
    for _ in range(2):
        _, td = env.step_and_maybe_reset(env.rand_action(td))
    change(env.action_spec)
    env.step(td.set("action", torch.tensor([1, 0, 0])))  # the mask of this step is that of the one before
    assert env.action_spec.mask.tolist() == [False, True, False]


def test_rebuilt_specs_have_the_mask():
    env = TransformedEnv(Allows(), ActionMask())
    td = env.step(env.rand_action(env.reset()))
    env.empty_cache()
    env.step(env.rand_action(env.step_mdp(td)))
    assert env.action_spec.mask.tolist() == [False, True, False]


# -- ConditionalPolicySwitch -----------------------------------------------------------------------------------------


def switching(policy, **kwargs):
    """The opponent moves once the count is even; the action of the caller is flat."""
    condition = lambda td: td["observation"] % 2 == 0  # noqa: E731
    chain = Compose(StepCounter(), ConditionalPolicySwitch(policy, condition), ActionScaling(), RewardSum())
    return TransformedEnv(ArrayCountingEnv(9, action="continuous"), chain, **kwargs)


def test_another_policy_acts_equally_on_every_path():
    def make(**kwargs):
        return switching(lambda td: td.set("action", torch.full((2,), 0.25)), **kwargs)

    data = alike(make, 15, "row_writer")["next", "observation"]
    assert data.flatten().tolist() == [3, 5, 7, 9, 3, 5, 7, 9, 3, 5, 7, 9, 3, 5, 7]


def test_another_policy_sees_what_the_caller_has_in_the_data():
    seen = []

    def policy(td):
        seen.append(float(td["mine"]) if "mine" in td.keys() else None)
        return td.set("action", torch.zeros(2))

    env = switching(policy)
    td = env.reset().set("mine", torch.tensor(7.0))
    seen.clear()
    for _ in range(3):
        _, td = env.step_and_maybe_reset(env.rand_action(td))
    assert seen == [7.0, 7.0, 7.0]
