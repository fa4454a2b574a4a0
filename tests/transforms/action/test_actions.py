"""Conversion of the caller's actions to the environment's."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tensordict import TensorDict

from steppe import ParallelEnv, SerialEnv, TransformedEnv, check_env_specs
from steppe.errors import ActionError, NotSupported, SpecError, StateError
from steppe.specs import Binary, Bounded, Categorical, MultiCategorical, MultiOneHot, OneHot, Unbounded
from steppe.transforms import Compose, StepCounter
from steppe_action import (
    ActionDiscretizer,
    ActionMask,
    ActionScaling,
    ConditionalPolicySwitch,
    DiscreteActionProjection,
    FlattenAction,
    MultiAction,
)
from steppe_testing import ArrayCountingEnv, CountingEnv, MultiAgentCountingEnv
from steppe_testing.data_env import DataEnv

Sampling = ActionDiscretizer.SamplingStrategy
EACH_BASE = pytest.mark.parametrize("base", [ArrayCountingEnv, CountingEnv])


def takes(leaf):
    """An environment with an action."""
    return DataEnv({"observation": Unbounded((1,))}, action=leaf)


def given(transform, leaf, action):
    """Return the environment's action for an action of the caller."""
    env = TransformedEnv(takes(leaf), transform)
    check_env_specs(env)
    return env.transform.inv(TensorDict(action=action))["action"]


# -- ActionScaling ---------------------------------------------------------------------------------------------------

BOX = Bounded(torch.tensor([-2.0, 0.1]), torch.tensor([2.0, 0.7]))


def test_actions_from_minus_one_to_one_cover_the_bounds():
    for action, expected in (([-1.0, -1.0], [-2, 0.1]), ([0.0, 0.0], [0, 0.4]), ([1.0, 1.0], [2, 0.7])):
        assert torch.allclose(given(ActionScaling(), BOX, torch.tensor(action)), torch.tensor(expected))
    half = given(ActionScaling(standard_normal=False), BOX, torch.tensor([0.5, 0.0]))
    assert torch.allclose(half, torch.tensor([0.0, 0.1]))
    assert TransformedEnv(takes(BOX), ActionScaling()).action_spec == Bounded(-1.0, 1.0, (2,))


ROWS = torch.stack([Bounded(-1.0, 1.0, (2,)), Bounded(-2.0, 4.0, (2,))])


@pytest.mark.parametrize(
    ("transform", "action"),
    [
        (ActionScaling(), torch.ones(2, 2)),
        (ActionDiscretizer(3, sampling=Sampling.HIGH), torch.full((2, 2), 2)),
    ],
)
def test_each_row_of_a_stack_of_bounds_has_its_own(transform, action):
    base = DataEnv({"observation": Unbounded((2, 1))}, action=ROWS, reward=Unbounded((2, 1)), batch_size=(2,))
    env = TransformedEnv(base, transform)
    assert env.action_spec.shape == (2, 2)

    assert env.transform.inv(TensorDict(action=action, batch_size=2))["action"].tolist() == [[1, 1], [4, 4]]


@EACH_BASE
def test_rewards_follow_the_scaled_actions(base):
    env = TransformedEnv(base(9, action="continuous"), ActionScaling(loc=0.25, scale=0.5))
    batch = SerialEnv(2, lambda: TransformedEnv(base(9, action="continuous"), ActionScaling(loc=0.25, scale=0.5)))

    assert env.action_spec == Bounded(-2.5, 1.5, (2,))
    assert env.rollout(2, actions=[torch.ones(2)] * 2)["next", "reward"].flatten().tolist() == [1.5, 1.5]
    assert batch.rollout(1, actions=[torch.ones(2, 2)])["next", "reward"].flatten().tolist() == [1.5, 1.5]


def test_actions_of_a_data_set_are_scaled_and_back():
    scaling = ActionScaling.from_stats(mean=[1.0, 2.0], std=[2.0, 0.0])
    data = TensorDict(action=torch.tensor([[3.0, 2.0]]), batch_size=[1])

    assert scaling(data.clone())["action"].tolist() == [[1, 0]]
    assert torch.allclose(scaling.inv(scaling(data.clone()))["action"], data["action"])
    assert ActionScaling.from_stats(low=[0.0], high=[4.0]).normalize(torch.tensor([4.0])).tolist() == [1]
    alone = ActionScaling(in_keys_inv=[], loc=1.0, scale=2.0)
    assert alone.inv(data)["action"].tolist() == [[3, 2]]
    assert alone(data.clone())["action"].tolist() == [[1, 0.5]]


def test_a_given_scale_keeps_an_action_unbounded():
    env = TransformedEnv(takes(Unbounded((2,))), ActionScaling(loc=0.0, scale=2.0))

    assert isinstance(env.action_spec, Unbounded)
    with pytest.raises(SpecError, match="two finite bounds"):
        _ = TransformedEnv(takes(Unbounded((2,))), ActionScaling()).action_spec


def test_actions_of_agents_are_scaled():
    env = TransformedEnv(
        MultiAgentCountingEnv(4, action="continuous"), ActionScaling([("agents", "action")], loc=0.0, scale=0.5)
    )
    check_env_specs(env)
    td = env.reset()
    td["agents", "action"] = torch.ones(3, 2)

    assert env.step(td)["next", "agents", "reward"].flatten().tolist() == [1, 1, 1]


# -- ActionDiscretizer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [(None, [-0.5, 0.5]), (Sampling.LOW, [-1.0, 0.0]), (Sampling.HIGH, [0.0, 1.0]), (Sampling.MEDIAN, [-0.5, 0.5])],
)
def test_a_number_is_a_value_of_its_interval(sampling, expected):
    numbers = torch.tensor([0, 1])

    assert given(ActionDiscretizer(2, sampling=sampling), Bounded(-1.0, 1.0, (2,)), numbers).tolist() == expected
    one_hot = torch.tensor([True, False, False, True])
    found = given(ActionDiscretizer(2, sampling=sampling, categorical=False), Bounded(-1.0, 1.0, (2,)), one_hot)
    assert found.tolist() == expected


def test_each_number_of_an_action_has_its_own_intervals():
    leaf = Bounded(torch.tensor([0.0, -1.0]), torch.tensor([3.0, 1.0]))
    make = partial(ActionDiscretizer, torch.tensor([3, 4]))

    assert given(make(), leaf, torch.tensor([2, 0])).tolist() == [2.5, -0.75]
    assert TransformedEnv(takes(leaf), make()).action_spec == MultiCategorical([3, 4])
    assert TransformedEnv(takes(leaf), make(categorical=False)).action_spec == MultiOneHot([3, 4])
    assert given(ActionDiscretizer(4), Bounded(-1.0, 1.0, ()), torch.tensor(3)).item() == 0.75
    assert TransformedEnv(takes(Bounded(-1.0, 1.0, ())), ActionDiscretizer(4)).action_spec == Categorical(4)


def test_a_random_value_is_in_its_interval_and_follows_the_seed():
    def values(env):
        env.set_seed(3)
        actions = [torch.tensor([[0, 3], [1, 2]])] * 50
        return env.rollout(50, actions=list(actions), break_when_any_done=False)["next", "reward"]

    make = partial(ActionDiscretizer, 4, sampling=Sampling.RANDOM)
    inside = SerialEnv(2, lambda: TransformedEnv(CountingEnv(99, action="continuous"), make()))
    around = TransformedEnv(SerialEnv(2, lambda: CountingEnv(99, action="continuous")), make())
    found = values(inside)

    assert torch.equal(found, values(around))
    assert torch.equal(found, values(inside))
    # The sums of numbers of [-1, -0.5] and [0.5, 1], and of [-0.5, 0] and [0, 0.5].
    assert found.abs().max() <= 0.5
    assert found.unique().numel() > 90


def test_the_action_may_have_another_key():
    env = TransformedEnv(CountingEnv(9, action="continuous"), ActionDiscretizer(2, out_action_key="number"))
    check_env_specs(env)
    td = env.reset().set("number", torch.tensor([1, 1]))

    assert env.action_keys == ["number"]
    assert env.step(td)["next", "reward"].item() == 1


# -- DiscreteActionProjection ----------------------------------------------------------------------------------------


@EACH_BASE
def test_actions_that_the_base_lacks_are_replaced(base):
    """An action that the base does not have becomes a random one."""
    env = TransformedEnv(base(99, action="one_hot"), DiscreteActionProjection(3, 5))
    check_env_specs(env)
    env.set_seed(0)
    actions = [torch.eye(5, dtype=torch.bool)[i] for i in [0, 1, 2] + [4] * 40]
    rewards = env.rollout(43, actions=actions)["next", "reward"].flatten().tolist()

    assert env.action_spec == OneHot(5)
    assert rewards[:3] == [0, 1, 2]
    assert set(rewards[3:]) == {0, 1, 2}


def test_stored_actions_are_padded_to_the_policys_width():
    data = TensorDict(action=torch.tensor([[False, True]]), batch_size=[1])

    assert DiscreteActionProjection(2, 4)(data.clone())["action"].tolist() == [[False, True, False, False]]
    assert DiscreteActionProjection(2, 4, include_forward=False)(data.clone())["action"].tolist() == [[False, True]]


# -- FlattenAction ---------------------------------------------------------------------------------------------------


def test_dimensions_of_an_action_are_one_for_the_caller():
    flat = torch.arange(6.0) / 6
    leaf = Bounded(-1.0, 1.0, (2, 3))

    assert torch.equal(given(FlattenAction(), leaf, flat), flat.reshape(2, 3))
    assert torch.equal(given(FlattenAction(0, 1, allow_positive_dim=True), leaf, flat), flat.reshape(2, 3))
    assert torch.equal(
        given(FlattenAction(-3, -2), Bounded(-1.0, 1.0, (2, 1, 3)), flat.reshape(2, 3)), flat.reshape(2, 1, 3)
    )
    assert TransformedEnv(SerialEnv(2, partial(takes, leaf)), FlattenAction()).action_spec.shape == (2, 6)


def test_stored_actions_are_flattened_and_back():
    data = TensorDict(action=torch.rand(4, 2, 3), batch_size=[4])
    flatten = FlattenAction(action_shape=(2, 3))

    assert flatten(data.clone())["action"].shape == (4, 6)
    assert torch.equal(flatten.inv(flatten(data.clone()))["action"], data["action"])
    with pytest.raises(SpecError, match="action_shape"):
        FlattenAction().inv(data)


# -- ActionMask ------------------------------------------------------------------------------------------------------


class Masked(CountingEnv):
    """Allows the action of the number of steps alone, modulo 3."""

    def __init__(self, max_steps=5):
        super().__init__(max_steps)
        self.observation_spec = self.observation_spec.clone().update({"action_mask": Binary(3, dtype=torch.bool)})

    def _with_mask(self, data):
        return data.set("action_mask", torch.eye(3, dtype=torch.bool)[int(data["observation"]) % 3])

    def _reset(self, tensordict=None, **kwargs):
        return self._with_mask(super()._reset(tensordict, **kwargs))

    def _step(self, tensordict):
        return self._with_mask(super()._step(tensordict))


def test_only_what_the_mask_allows_is_drawn_in_each_row():
    env = TransformedEnv(SerialEnv(2, [partial(Masked, n) for n in (4, 7)]), ActionMask())
    data = env.rollout(15, break_when_any_done=False)

    assert torch.equal(data["action"], data["action_mask"])
    inside = SerialEnv(2, [lambda n=n: TransformedEnv(Masked(n), ActionMask()) for n in (4, 7)])
    data = inside.rollout(15, break_when_any_done=False)
    assert torch.equal(data["action"], data["action_mask"])
    assert TransformedEnv(Masked(9), ActionMask()).rollout(5)["action"].int().argmax(-1).tolist() == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("batch", [SerialEnv, ParallelEnv])
def test_some_rows_change_their_masks_and_no_others(batch):
    env = TransformedEnv(batch(3, partial(Masked, 8)), ActionMask())

    def allowed():
        return env.action_spec.mask.int().argmax(-1).tolist()

    td = env.step_mdp(env.step(env.rand_action(env.reset())))
    assert allowed() == [1, 1, 1]
    some = env.step_at(env.rand_action(td.clone())[[2, 0]], [2, 0])
    assert (some["next", "action_mask"].int().argmax(-1).tolist(), allowed()) == ([2, 2], [2, 1, 2])
    again = env.reset_at(None, torch.tensor([0]))
    assert (again["action_mask"].tolist(), allowed()) == ([[True, False, False]], [0, 1, 2])
    again = env.reset_at(env.step_mdp(some)[:1], [2])
    assert (again["action_mask"].tolist(), allowed()) == ([[True, False, False]], [0, 1, 0])
    td["action_mask"] = torch.eye(3, dtype=torch.bool)[[0, 1, 0]]
    data = env.rand_action(td)
    assert torch.equal(data["action"], td["action_mask"])
    data["_step"] = torch.tensor([True, False, False])
    td = env.step_mdp(env.step(data))
    assert (td["action_mask"].int().argmax(-1).tolist(), allowed()) == ([1, 1, 0], [1, 1, 0])
    td["_reset"] = torch.tensor([[True], [True], [False]])
    assert (env.reset(td)["action_mask"].int().argmax(-1).tolist(), allowed()) == ([0, 0, 0], [0, 0, 0])
    env.close()


@pytest.mark.parametrize("how", ["rows", "mask"])
def test_rows_that_do_not_act_keep_their_masks(how):
    env = TransformedEnv(SerialEnv(3, [partial(Masked, n) for n in (4, 7, 9)]), ActionMask())
    td, rows = env.rand_action(env.reset()), torch.tensor([True, False, True])
    if how == "rows":
        env.step_at(td[rows], rows)
    else:
        env.step(td.set("_step", rows))
    assert env.action_spec.mask.int().argmax(-1).tolist() == [1, 0, 1]

    env.reset_at(None, [2])
    assert env.action_spec.mask.int().argmax(-1).tolist() == [1, 0, 0]


def test_without_a_mask_any_action_is_drawn_if_that_is_tolerated():
    mask = ActionMask()
    mask.set_missing_tolerance(True)
    env = TransformedEnv(CountingEnv(30), mask)

    assert (env.action_masks, TransformedEnv(Masked(), ActionMask()).action_masks) == ({}, {"action": "action_mask"})
    assert env.rollout(30)["action"].any(0).all()


def test_a_missing_mask_or_action_is_named():
    with pytest.raises(SpecError, match=r"no mask 'action_mask'. Found \['observation'\]"):
        TransformedEnv(CountingEnv(3), ActionMask()).reset()
    with pytest.raises(SpecError, match="no action 'move'"):
        TransformedEnv(Masked(), ActionMask("move")).reset()
    with pytest.raises(NotSupported, match="Append it"):
        ActionMask()(TensorDict({}, []))
    with pytest.raises(StateError, match="has no environment"):
        _ = ActionMask().action_spec


# -- MultiAction -----------------------------------------------------------------------------------------------------


@EACH_BASE
@pytest.mark.parametrize("where", ["inside", "around"])
def test_multi_action_takes_actions_up_to_the_episodes_end(base, where):
    """Actions are taken one after another until the episode ends."""
    rows = [partial(base, n, action="continuous") for n in (4, 7)]
    make = lambda: Compose(StepCounter(), MultiAction(stack_observations=True))  # noqa: E731
    if where == "inside":
        env = SerialEnv(2, [lambda row=row: TransformedEnv(row(), make()) for row in rows])
    else:
        env = TransformedEnv(SerialEnv(2, rows), make())
    td = env.reset()
    found = []
    for _ in range(2):
        td["action"] = torch.tensor([0.0, 0.25, 0.5]).reshape(1, 3, 1).expand(2, 3, 2).clone()
        frame, td = env.step_and_maybe_reset(td)
        found.append(frame["next"])

    assert found[0]["reward"][..., 0].tolist() == [[0, 0.5, 1]] * 2
    assert found[0]["observation"][..., 0].tolist() == [[1, 2, 3]] * 2
    assert found[1]["reward"][..., 0].tolist() == [[0, 0, 0], [0, 0.5, 1]]
    assert found[1]["observation"][..., 0].tolist() == [[4, 4, 4], [4, 5, 6]]
    assert found[1]["step_count"].flatten().tolist() == [4, 6]
    assert found[1]["done"].flatten().tolist() == [True, False]


def test_only_the_last_reward_may_be_kept():
    env = TransformedEnv(CountingEnv(2, action="continuous"), MultiAction(stack_rewards=False))
    td = env.reset().set("action", torch.tensor([[0.0, 0], [0.5, 0.5], [1, 1]]))

    assert env.step(td)["next", "reward"].tolist() == [1]


def test_actions_may_have_another_key():
    env = TransformedEnv(CountingEnv(9, action="continuous"), MultiAction.from_vla())
    check_env_specs(env)
    td = env.reset().set(("vla_action", "chunk"), torch.ones(2, 2))

    assert env.step(td)["next", "reward"].flatten().tolist() == [2, 2]
    with pytest.raises(ActionError, match="chunk"):
        env.step(env.reset())


# -- ConditionalPolicySwitch -----------------------------------------------------------------------------------------


def all_ones(td):
    return td.set("action", torch.ones(*td.batch_size, 2))


@EACH_BASE
@pytest.mark.parametrize("where", ["inside", "around"])
def test_another_policy_acts_while_a_condition_holds(base, where):
    rows = [partial(base, n, action="continuous") for n in (4, 5)]
    make = lambda: ConditionalPolicySwitch(all_ones, lambda td: td["observation"][..., 0] % 3 == 1)  # noqa: E731
    if where == "inside":
        env = SerialEnv(2, [lambda row=row: TransformedEnv(row(), make()) for row in rows])
    else:
        env = TransformedEnv(SerialEnv(2, rows), make())
    check_env_specs(env)
    data = env.rollout(7, actions=[torch.zeros(2, 2)] * 7, break_when_any_done=False)

    # 0 -> 1, and 2 by the other one; 3 -> 4, where the first row ends and the second goes on to 5.
    assert data["observation"][..., 0].tolist() == [[0, 2, 3, 0, 2, 3, 0], [0, 2, 3, 0, 2, 3, 0]]
    assert data["next", "observation"][..., 0].tolist() == [[2, 3, 4, 2, 3, 4, 2], [2, 3, 5, 2, 3, 5, 2]]
    assert data["next", "reward"][..., 0].tolist() == [[2, 0, 0, 2, 0, 0, 2], [2, 0, 2, 2, 0, 2, 2]]


@EACH_BASE
def test_another_policy_may_begin(base):
    env = TransformedEnv(
        SerialEnv(2, [partial(base, n, action="continuous") for n in (3, 5)]),
        ConditionalPolicySwitch(all_ones, lambda td: td["observation"][..., 0] == 0),
    )
    data = env.rollout(5, break_when_any_done=False)

    assert data["observation"][..., 0].tolist() == [[1, 2, 1, 2, 1], [1, 2, 3, 4, 1]]


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ActionScaling(["a", "b"]), "scales one action"),
        (lambda: ActionScaling(loc=1.0), "both loc and scale, or neither"),
        (lambda: ActionScaling(loc=1.0, scale=0.0), "scale must not contain 0"),
        (lambda: ActionScaling([]), "pass loc and scale"),
        (lambda: ActionScaling.from_stats(mean=1.0), "pass either mean and std"),
        (lambda: ActionDiscretizer(0), "num_intervals must be a whole number >= 1"),
        (lambda: DiscreteActionProjection(4, 2), "found 4 and 2"),
        (lambda: FlattenAction(0, 1), "first_dim must be negative"),
        (lambda: FlattenAction(-1, -2), "first_dim must be <= last_dim"),
        (lambda: MultiAction(dim=0), "dim must be a whole number >= 1"),
        (lambda: ConditionalPolicySwitch(None, all_ones), "policy must be a function of a TensorDict, found NoneType"),
    ],
)
def test_bad_arguments_are_refused(make, says):
    with pytest.raises(SpecError, match=says):
        make()


@pytest.mark.parametrize(
    ("transform", "leaf", "says"),
    [
        (ActionScaling(["move"]), BOX, r"no action 'move'. It takes \['action'\]"),
        (ActionScaling(), OneHot(3), "an action of floats"),
        (ActionDiscretizer(3), Unbounded((2,)), "two finite bounds"),
        (ActionDiscretizer(torch.tensor([2, 3])), Bounded(-1.0, 1.0, (3,)), "has 2 numbers, but the action has 3"),
        (DiscreteActionProjection(3, 4), OneHot(2), "one-hot actions of 3"),
        (FlattenAction(), BOX, "the action has 1 dimensions"),
    ],
)
def test_an_environment_with_other_actions_is_refused(transform, leaf, says):
    with pytest.raises(SpecError, match=says):
        _ = TransformedEnv(takes(leaf), transform.clone()).action_spec


def test_a_condition_of_another_kind_is_refused():
    env = TransformedEnv(CountingEnv(3), ConditionalPolicySwitch(all_ones, lambda td: 1.0))

    with pytest.raises(SpecError, match=r"a bool tensor of shape \(\); found float"):
        env.reset()
