"""Validation of actions, and errors about wrong ones."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch.utils._python_dispatch import TorchDispatchMode

from steppe import SerialEnv
from steppe.envs import ActionRule, EnvBase
from steppe.errors import ActionError
from steppe.specs import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    OneHot,
    Unbounded,
)
from steppe_testing import ACTION_KINDS, ArrayCountingEnv, CountingEnv, MultiKeyCountingEnv, StatelessCountingEnv

T, F = True, False


def fit(leaf, value, lead=()):
    return ActionRule("action", leaf).fit(value, torch.Size(lead))


def refusal(leaf, value, lead=()):
    with pytest.raises(ActionError) as caught:
        fit(leaf, value, lead)
    return str(caught.value)


@pytest.mark.parametrize("kind", ACTION_KINDS)
def test_an_action_of_the_specs_dtype_is_the_same_tensor(kind):
    leaf = CountingEnv(action=kind).action_spec
    actions = leaf.rand((7,))

    assert fit(leaf, actions[0]) is not None
    assert fit(leaf, actions, (7,)) is actions


@pytest.mark.parametrize(
    ("leaf", "value", "expected"),
    [
        (OneHot(3), torch.tensor([0, 1, 0]), [F, T, F]),
        (OneHot(3), torch.tensor([0.0, -0.0, 1.0]), [F, F, T]),
        (OneHot(3, dtype=torch.int64), torch.tensor([F, T, F]), [0, 1, 0]),
        (Categorical(4), torch.tensor(3.0), 3),
        (Categorical(4), torch.tensor(True), 1),
        (Categorical(4, dtype=torch.uint8), torch.tensor(3), 3),
        (MultiCategorical([2, 5]), torch.tensor([1.0, 4.0]), [1, 4]),
        (MultiOneHot([2, 3]), torch.tensor([0, 1, 0, 0, 1]), [F, T, F, F, T]),
        (Binary(2), torch.tensor([1, 0]), [T, F]),
        (Bounded(-1, 1, (2,)), torch.tensor([0.5, -0.25], dtype=torch.float64), [0.5, -0.25]),
        (Bounded(-1, 1, (2,)), torch.tensor([1, 0]), [1.0, 0.0]),
        (Bounded(0, 9, (1,), dtype=torch.int64), torch.tensor([4.0]), [4]),
    ],
)
def test_another_dtype_with_the_same_values_is_converted(leaf, value, expected):
    fitted = fit(leaf, value)

    assert fitted.dtype is leaf.dtype
    assert fitted.tolist() == expected


@pytest.mark.parametrize(
    ("leaf", "value", "found", "fix"),
    [
        (Categorical(4), torch.tensor(1.5), "torch.float32 with the value 1.5", "].project(action)"),
        (Categorical(4), torch.tensor(float("nan")), "the value nan", "look for what has made"),
        (OneHot(2), torch.tensor([0.3, 0.7]), "the value 0.3", "env.full_action_spec['action'].project(action)"),
        (
            OneHot(2),
            torch.tensor([2, 0]),
            "torch.int64 with the value 2",
            "env.full_action_spec['action'].project(action)",
        ),
        (Categorical(4, dtype=torch.uint8), torch.tensor(300), "the value 300", "].project(action)"),
        (Bounded(0, 9, (1,), dtype=torch.int64), torch.tensor([0.5]), "the value 0.5", "action.round()"),
        (Bounded(-1, 1, (1,)), torch.tensor([1e300], dtype=torch.float64), "the value 1e+300", "action.to("),
        (Bounded(-1, 1, (1,)), torch.tensor([1 + 1j]), "torch.complex64", "action.real.to("),
    ],
)
def test_a_dtype_that_loses_something_is_refused(leaf, value, found, fix):
    text = refusal(leaf, value)

    assert text.startswith(f"The action 'action' must have dtype {leaf.dtype}, found")
    assert found in text
    assert fix in text


@pytest.mark.parametrize(
    ("leaf", "value", "expected"),
    [
        (OneHot(2), [F, F], "must be one-hot, a single 1 among 2 entries, found [False, False]"),
        (OneHot(3, dtype=torch.int64), [0, 2, 0], "must be one-hot, a single 1 among 3 entries, found [0, 2, 0]"),
        (OneHot(3, dtype=torch.int64), [1, -1, 1], "must be one-hot"),
        (OneHot(2, shape=(2, 2)), [[T, F], [F, F]], "must be one-hot"),
        (MultiOneHot([2, 2]), [T, F, F, F], "one-hot vectors of [2, 2] entries, with a single 1 in each"),
        (Categorical(3), 3, "must be a whole number from 0 to 2, found 3"),
        (Categorical(3), -1, "must be a whole number from 0 to 2, found -1"),
        (Categorical(3, shape=(2,)), [0, 3], "must be a whole number from 0 to 2, found [0, 3]"),
        (MultiCategorical([2, 3]), [1, 3], "must be whole numbers from 0 to [1, 2], found [1, 3]"),
        (Binary(2, dtype=torch.int8), [0, 2], "must be 0 or 1, found [0, 2]"),
    ],
)
def test_a_choice_out_of_range_is_refused(leaf, value, expected):
    assert expected in refusal(leaf, torch.tensor(value, dtype=leaf.dtype))


def test_bounds_of_continuous_actions_are_not_validated():
    value = torch.tensor([5.0, -7.0])

    assert fit(Bounded(-1, 1, (2,)), value) is value


@pytest.mark.parametrize("n", [3, 100])
def test_the_row_with_the_wrong_choice_is_named(n):
    numbers, rows = torch.zeros(n, dtype=torch.int64), torch.zeros(n, 2, dtype=torch.bool)
    rows[:, 0] = True
    assert fit(Categorical(2), numbers, (n,)) is numbers
    assert fit(OneHot(2), rows, (n,)) is rows
    numbers[2], rows[2] = 9, True

    assert "of environment 2 must be a whole number from 0 to 1, found 9" in refusal(Categorical(2), numbers, (n,))
    assert "of environment 2 must be one-hot" in refusal(OneHot(2), rows, (n,))


SPEC = "env.full_action_spec['action']"
LOGITS = [[0.2, 0.9, 0.4], [-1.5, -3.0, -2.0]]

#: An action that does not fit, what is suggested, and what that makes of it.
HINTS = [
    (OneHot(3), torch.tensor(1), f"{SPEC}.encode(action)", [F, T, F]),
    (OneHot(3), torch.tensor([2, 0]), f"{SPEC}.encode(action)", [[F, F, T], [T, F, F]]),
    (OneHot(3), torch.tensor([[2], [0]]), f"{SPEC}.encode(action.squeeze(-1))", [[F, F, T], [T, F, F]]),
    (OneHot(3), torch.tensor([1.0, 2.0]), f"{SPEC}.encode(action)", [[F, T, F], [F, F, T]]),
    (OneHot(3, (2, 3)), torch.tensor([1, 2]), f"{SPEC}.encode(action)", [[F, T, F], [F, F, T]]),
    (MultiOneHot([2, 3]), torch.tensor([1, 2]), f"{SPEC}.encode(action)", [F, T, F, F, T]),
    (OneHot(3), torch.tensor(LOGITS), f"{SPEC}.project(action)", [[F, T, F], [T, F, F]]),
    (OneHot(3, dtype=torch.float32), torch.tensor(LOGITS), f"{SPEC}.project(action)", [[0, 1, 0], [1, 0, 0]]),
    (OneHot(3, dtype=torch.int64), torch.tensor([0, 5, 2]), f"{SPEC}.project(action)", [0, 1, 0]),
    (MultiOneHot([2, 3]), torch.tensor([0.1, 0.2, 0.9, 0.3, 0.4]), f"{SPEC}.project(action)", [F, T, T, F, F]),
    (Categorical(3), torch.tensor([[2], [0]]), "action.squeeze(-1)", [2, 0]),
    (Categorical(3), torch.tensor([[1], [1]]), "action.squeeze(-1)", [1, 1]),
    (Categorical(3), torch.tensor([2.0]), "action.squeeze(-1)", 2),
    (Categorical(3, (2,)), torch.tensor([[2], [1]]), "action.squeeze(-1)", [2, 1]),
    (Categorical(3), torch.tensor([F, T, F]), "action.int().argmax(-1)", 1),
    (Categorical(3), torch.tensor([[0, 0, 1], [1, 0, 0]]), "action.argmax(-1)", [2, 0]),
    (Categorical(3), torch.tensor([0.0, 0.0, 1.0]), "action.argmax(-1)", 2),
    (Categorical(3), torch.tensor(LOGITS), "action.argmax(-1)", [1, 0]),
    (Categorical(3, (2,)), torch.tensor(LOGITS), "action.argmax(-1)", [1, 0]),
    (Categorical(3), torch.tensor(1.6), f"{SPEC}.project(action)", 2),
    (Categorical(3), torch.tensor(7), f"{SPEC}.project(action)", 2),
    (Categorical(3, dtype=torch.uint8), torch.tensor([-4, 300]), f"{SPEC}.project(action)", [0, 2]),
    (
        MultiCategorical([2, 3]),
        torch.tensor([[F, T, F, F, T]]),
        f"{SPEC}.to_one_hot_spec().to_categorical(action)",
        [[1, 2]],
    ),
    (MultiCategorical([2, 3]), torch.tensor([4, 1]), f"{SPEC}.project(action)", [1, 1]),
    (Binary(2), torch.tensor([3, 0]), f"{SPEC}.project(action)", [1, 0]),
    (Bounded(-1, 1, (1,)), torch.tensor([0.5, 0.25]), "action.reshape((2, 1))", [[0.5], [0.25]]),
    (
        Bounded(-1, 1, (2, 3)),
        torch.arange(6.0) / 6,
        "action.reshape((2, 3))",
        (torch.arange(6.0) / 6).reshape(2, 3).tolist(),
    ),
    (Bounded(-9, 9, (2,), dtype=torch.int64), torch.tensor([1.6, -2.2]), "action.round()", [2, -2]),
    (Bounded(0, 9, (1,), dtype=torch.uint8), torch.tensor([258]), "action.to(torch.uint8)", [2]),
    (Unbounded((1,)), torch.tensor([1 + 2j]), "action.real.to(torch.float32)", [1.0]),
    (Unbounded((2,)), [0.5, 1.5], "torch.as_tensor(action)", [0.5, 1.5]),
    (OneHot(3), np.array([F, T, F]), "torch.as_tensor(action)", [F, T, F]),
]


@pytest.mark.parametrize(("leaf", "action", "suggested", "made"), HINTS, ids=[f"{i}" for i in range(len(HINTS))])
def test_the_hint_of_an_error_fixes_the_action(leaf, action, suggested, made):
    expected = torch.tensor(made)
    rows = expected.shape[: expected.ndim - leaf.ndim]
    told = refusal(leaf, action, rows)
    assert suggested in told
    env = SimpleNamespace(full_action_spec=Composite(action=leaf))
    fixed = eval(suggested, {"env": env, "torch": torch, "action": action})
    assert fit(leaf, fixed, rows).tolist() == made


@pytest.mark.parametrize(
    ("leaf", "action"),
    [
        (Bounded(-1, 1, (3,)), torch.zeros(2)),
        (Bounded(-1, 1, (2, 3)), torch.zeros(3, 2)),
        (Bounded(-1, 1, (3, 4)), torch.zeros(2, 6)),
        (Categorical(4), torch.tensor([1, 2, 3])),
        (Categorical(3), torch.tensor([1, 2, 1])),
        (MultiCategorical([2, 3]), torch.zeros(4)),
        (OneHot(3), torch.zeros(4)),
        (OneHot(3), torch.tensor([0.5, 1.5])),
        (Unbounded((1,)), None),
        (Unbounded((1,)), "left"),
    ],
)
def test_an_error_without_a_known_fix_suggests_no_code(leaf, action):
    told = refusal(leaf, action)
    assert not any(code in told for code in ("action.", "(action)", "env."))


def test_values_that_are_not_finite_are_traced_back():
    for leaf in (Categorical(3), OneHot(2, dtype=torch.float32), Bounded(0, 3, (), dtype=torch.int64)):
        told = refusal(leaf, torch.full(leaf.shape, math.nan))
        assert "look for what has made them" in told or "encode(numbers)" in told


@pytest.mark.parametrize("make", [lambda: MultiKeyCountingEnv(), lambda: SerialEnv(2, MultiKeyCountingEnv)])
def test_a_hint_names_the_action_among_several(make):
    env = make()
    td = env.rand_action(env.reset())
    key = next(key for key in env.action_keys if isinstance(key, tuple))
    right = td[key].clone()
    td[key] = env.full_action_spec[key].to_categorical(right)
    with pytest.raises(ActionError) as caught:
        env.step(td)
    suggested = re.search(r"with (env\.full_action_spec\[.*?\]\.\w+\(action\))", str(caught.value)).group(1)
    td[key] = eval(suggested, {"env": env, "action": td[key]})
    assert torch.equal(td[key], right)
    env.step(td)


def test_an_action_that_is_no_tensor_is_refused():
    assert "must be a tensor of dtype torch.float32, found list" in refusal(Bounded(-1, 1, (1,)), [0.5])
    assert "found ndarray" in refusal(Bounded(-1, 1, (1,)), np.zeros(1))


@pytest.mark.parametrize("size", [3, 100])
def test_a_double_in_the_range_of_floats_is_rounded(size):
    """Doubles are rounded to floats, infinite ones too; larger numbers are refused."""
    for number in (0.1, 3e38, float("inf"), float("-inf"), float("nan")):
        value = torch.full((size,), number, dtype=torch.float64)
        assert torch.equal(fit(Unbounded((size,)), value).nan_to_num(7), value.float().nan_to_num(7))
    assert "with the value 1e+39" in refusal(Unbounded((size,)), torch.full((size,), 1e39, dtype=torch.float64))


class Operations(TorchDispatchMode):
    """Count the operations of torch."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.append(str(operation))
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("spec", [Bounded(-1, 1, (3,)), OneHot(4), Categorical(4)])
def test_an_action_of_the_right_dtype_runs_no_torch_operation(spec):
    rule, action = ActionRule("action", spec), spec.rand()
    with Operations() as counted:
        assert rule.fit(action) is action
    assert counted.names == []


def test_gradients_pass_through_a_conversion():
    value = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    fit(Bounded(-1, 1, (1,)), value).sum().backward()

    assert value.grad.tolist() == [1.0]


def test_rows_that_do_not_act_may_hold_anything():
    env = CountingEnv(batch_size=(2,))
    td = env.reset().set("action", torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, float("nan")]]))
    td = env.step(td.set("_step", torch.tensor([True, False])))

    assert td["next", "observation"].flatten().tolist() == [1, 0]
    td = env.reset().set("action", torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    with pytest.raises(ActionError, match="of environment 1 must be one-hot"):
        env.step(td.set("_step", torch.tensor([False, True])))


def test_a_stateless_env_converts_actions_of_skipped_rows():
    """A partial step also converts the actions of rows that it does not step."""
    env = StatelessCountingEnv()
    td = env.reset(TensorDict({}, [2])).set("action", torch.tensor([[1, 0, 0], [0, 0, 0]]))
    td = env.step(td.set("_step", torch.tensor([True, False])))

    assert td["action"].dtype is torch.bool
    assert td["next", "count"].flatten().tolist() == [1, 0]


def test_each_row_is_validated_against_its_own_spec():
    def make(n):
        env = ArrayCountingEnv(50)
        env.action_spec = Categorical(n)
        return env

    env = SerialEnv(2, [lambda: make(3), lambda: make(6)])
    root = env.reset()

    assert env.step(root.copy().set("action", torch.tensor([2, 5])))["next", "reward"].flatten().tolist() == [2, 5]
    with pytest.raises(ActionError, match="of environment 0 must be a whole number from 0 to 2, found 5"):
        env.step(root.copy().set("action", torch.tensor([5, 5])))
    assert env.step_at(root[1:].set("action", torch.tensor([5])), [1])["next", "reward"].item() == 5
    with pytest.raises(ActionError, match="of environment 0 must be a whole number from 0 to 2, found 5"):
        env.step_at(root[:1].set("action", torch.tensor([5])), [0])


class Agents(EnvBase):
    """Two agents with three actions, which end together or separately."""

    def __init__(self, *, alone: bool) -> None:
        super().__init__()
        agents = Composite(observation=Unbounded((2, 1)), shape=(2,))
        self.observation_spec = Composite(agents=agents)
        self.action_spec = Composite(agents=Composite(action=Categorical(3, shape=(2,)), shape=(2,)))
        self.reward_spec = Composite(agents=Composite(reward=Unbounded((2, 1)), shape=(2,)))
        flag = Binary(shape=(2, 1) if alone else (1,), dtype=torch.bool)
        done = Composite(terminated=flag, shape=(2,) if alone else ())
        self.done_spec = Composite(agents=done) if alone else done

    def _reset(self, tensordict=None):
        return TensorDict({"agents": TensorDict({"observation": torch.zeros(2, 1)}, [2])})

    def _step(self, tensordict):
        chosen = tensordict["agents", "action"].unsqueeze(-1).float()
        return TensorDict({"agents": TensorDict({"observation": chosen, "reward": chosen}, [2])})

    def _set_seed(self, seed):
        """Nothing is random."""


@pytest.mark.parametrize("alone", [True, False])
def test_group_actions_are_validated_where_agents_end_together(alone):
    """If agents end separately, the actions of their group are not validated."""
    env = Agents(alone=alone)
    td = env.reset().set(("agents", "action"), torch.tensor([1, -1]))

    if alone:
        assert env.step(td)["next", "agents", "reward"].flatten().tolist() == [1, -1]
    else:
        with pytest.raises(ActionError, match=r"\('agents', 'action'\) must be a whole number from 0 to 2"):
            env.step(td)


def test_an_error_names_the_wrong_one_of_several_actions():
    """An environment with several actions converts each of them."""
    env = ArrayCountingEnv(actions=True)
    td = env.rand_action(env.reset())
    td["arm", "action"] = td["arm", "action"].float()

    assert env.step(td)["arm", "action"].dtype is torch.bool
    with pytest.raises(ActionError, match=r"\('arm', 'action'\) must be one-hot"):
        env.step(env.rand_action(env.reset()).set(("arm", "action"), torch.zeros(3)))


def test_given_actions_name_the_step_that_is_wrong():
    rows = [torch.tensor([1, 0, 0])] * 150
    for wrong, text in (
        (torch.tensor([1, 1, 0]), "Step 140: The action 'action' must be one-hot"),
        (torch.zeros(2), "Step 140: The action 'action' must have shape"),
        (3, "Step 140: The action 'action' must be a tensor"),
    ):
        with pytest.raises(ActionError, match=text):
            ArrayCountingEnv(1000).rollout(150, actions=[*rows[:140], wrong, *rows[141:]])


def test_a_given_tensordict_without_the_action_names_the_step():
    rows = [TensorDict({"action": torch.tensor([1, 0, 0])}), TensorDict({})]

    with pytest.raises(ActionError, match="Step 1: there is no action at 'action'"):
        ArrayCountingEnv(10).rollout(2, actions=rows)
