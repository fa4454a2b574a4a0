"""rollout, with all its arguments, on both code paths."""

from __future__ import annotations

import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict
from tensordict.nn import TensorDictModule

from steppe.envs import step_mdp
from steppe.errors import ActionError, NotSupported, SpecError
from steppe.specs import Binary, Composite, Unbounded
from steppe.transforms import StepCounter, TransformedEnv
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
    DoNothingEnv,
    DynamicSpecEnv,
    HeterogeneousCountingEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    StatelessCountingEnv,
    TextCountingEnv,
)

BOTH = pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])


def counts(data, key="observation"):
    return data[key].squeeze(-1).tolist()


def ones(td):
    """A policy: always the second of three actions."""
    action = torch.zeros(*td.batch_size, 3, dtype=torch.bool)
    action[..., 1] = True
    return td.set("action", action)


@BOTH
def test_a_rollout_ends_with_the_episode(make):
    data = make(3).rollout(10)

    assert data.batch_size == (3,)
    assert counts(data) == [0, 1, 2]
    assert counts(data["next"]) == [1, 2, 3]
    assert data["next", "done"].squeeze(-1).tolist() == [False, False, True]
    assert data.names == ["time"]


@BOTH
def test_it_goes_on_after_the_end_where_asked_to(make):
    data = make(3).rollout(7, break_when_any_done=False)

    assert counts(data) == [0, 1, 2, 0, 1, 2, 0]
    assert counts(data["next"]) == [1, 2, 3, 1, 2, 3, 1]
    assert not data["done"].any()


@BOTH
def test_a_second_rollout_begins_with_a_reset(make):
    env = make(10)
    env.rollout(4)

    assert counts(env.rollout(2)) == [0, 1]


@BOTH
def test_it_goes_on_where_another_one_ended(make):
    env = make(10)
    first = env.rollout(4)
    second = env.rollout(3, auto_reset=False, tensordict=step_mdp(first[-1]))

    assert counts(second) == [4, 5, 6]


@BOTH
def test_data_to_go_on_from_is_reset_where_it_has_ended(make):
    env = make(3)
    first = env.rollout(10)
    second = env.rollout(10, auto_reset=False, tensordict=step_mdp(first[-1]))

    assert counts(second) == [0, 1, 2]


def test_going_on_needs_data():
    with pytest.raises(TypeError, match="needs tensordict="):
        CountingEnv().rollout(3, auto_reset=False)


@pytest.mark.parametrize("steps", [0, -1, 2.5, True])
def test_the_length_is_a_whole_number_from_one_on(steps):
    with pytest.raises(SpecError, match="max_steps"):
        CountingEnv().rollout(steps)


@BOTH
def test_both_ways_of_stopping_contradict_each_other(make):
    with pytest.raises(TypeError, match="cannot both be True"):
        make().rollout(3, break_when_any_done=True, break_when_all_done=True)


class Staggered(CountingEnv):
    """Rows end after 2, 3 and 4 steps."""

    def __init__(self, **kwargs):
        super().__init__(batch_size=(3,), **kwargs)
        self.max_steps = torch.tensor([[2], [3], [4]])


def test_a_batch_stops_when_any_row_has_ended():
    assert Staggered().rollout(10).batch_size == (3, 2)


def test_a_batch_stops_when_all_rows_have_ended():
    env = Staggered()
    data = env.rollout(10, break_when_all_done=True)

    assert data.batch_size == (3, 4)
    assert counts(data["next"]) == [[1, 2, 2, 2], [1, 2, 3, 3], [1, 2, 3, 4]]
    assert data["next", "done"].squeeze(-1).tolist() == [[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]]
    assert env.count.squeeze(-1).tolist() == [2, 3, 4]


def test_a_batch_resets_each_row_by_itself_where_it_never_stops():
    data = Staggered().rollout(6, break_when_any_done=False)

    assert counts(data) == [[0, 1, 0, 1, 0, 1], [0, 1, 2, 0, 1, 2], [0, 1, 2, 3, 0, 1]]


def test_all_groups_must_end_where_there_is_no_root():
    data = MultiKeyCountingEnv({"left": 2, "right": 4}).rollout(10, break_when_all_done=True)

    assert data.batch_size == (4,)


def test_an_environment_without_an_end_runs_to_max_steps():
    assert DoNothingEnv(batch_size=(2,)).rollout(6).batch_size == (2, 6)


@BOTH
def test_a_policy_acts(make):
    assert counts(make().rollout(3, ones), ("next", "reward")) == [1, 1, 1]


@BOTH
def test_a_policy_may_return_new_data(make):
    def fresh(td):
        return ones(TensorDict({"extra": torch.ones(2)}, td.batch_size))

    data = make().rollout(3, fresh, trust_policy=True)
    assert counts(data, ("next", "reward")) == [1, 1, 1]
    assert data["extra"].shape == (3, 2)


@BOTH
def test_a_module_may_write_more_than_the_action(make):
    policy = TensorDictModule(
        lambda obs: (torch.tensor([False, True, False]), obs * 2), in_keys=["observation"], out_keys=["action", "twice"]
    )
    data = make().rollout(4, policy)

    assert torch.equal(data["twice"], data["observation"] * 2)


@BOTH
def test_gradients_reach_through_what_the_policy_wrote(make):
    net = torch.nn.Linear(1, 2)
    data = make(action="continuous").rollout(3, TensorDictModule(net, in_keys=["observation"], out_keys=["action"]))
    data["action"].sum().backward()

    assert net.bias.grad.tolist() == [3, 3]


@BOTH
def test_a_callback_sees_every_step(make):
    seen = []
    make().rollout(4, callback=lambda env, td: seen.append(td["next", "observation"].item()))

    assert seen == [1, 2, 3, 4]


@BOTH
@pytest.mark.parametrize("as_td", [False, True])
def test_given_actions_are_played(make, as_td):
    env = make(10)
    actions = torch.eye(3, dtype=torch.bool)[torch.tensor([2, 0, 1, 1])]
    given = list(actions) if not as_td else [TensorDict({"action": a}) for a in actions]
    data = env.rollout(4, actions=given)

    assert torch.equal(data["action"], actions)
    assert counts(data, ("next", "reward")) == [2, 0, 1, 1]


@BOTH
def test_a_generator_of_actions_is_read_as_far_as_needed(make):
    def stream():
        for i in range(3):
            yield torch.eye(3, dtype=torch.bool)[i]

    assert counts(make(10).rollout(3, actions=stream()), ("next", "reward")) == [0, 1, 2]


@BOTH
def test_too_few_actions_say_so(make):
    with pytest.raises(SpecError, match="fewer entries than steps"):
        make(10).rollout(4, actions=iter([torch.tensor([True, False, False])] * 3))
    with pytest.raises(SpecError, match="fewer entries than steps"):
        make(10).rollout(4, actions=[])


@BOTH
def test_a_list_of_actions_limits_the_steps(make):
    actions = torch.eye(3, dtype=torch.bool)

    assert counts(make(10).rollout(100, actions=actions), ("next", "reward")) == [0, 1, 2]
    assert make(2).rollout(100, actions=list(actions), break_when_any_done=False).shape == (3,)


def test_actions_of_a_group_are_played():
    env = NestedCountingEnv(max_steps=10)
    actions = [env.rand_action().select(("agents", "action")) for _ in range(3)]

    data = env.rollout(5, actions=[action["agents"] for action in actions])

    assert data["agents", "action"].equal(torch.stack(actions)["agents", "action"])


@BOTH
def test_wrong_given_actions_say_so(make):
    with pytest.raises(ActionError, match="must be one-hot"):
        make().rollout(2, actions=torch.ones(2, 3))


def test_a_policy_and_actions_contradict_each_other():
    with pytest.raises(TypeError, match="not both"):
        CountingEnv().rollout(2, ones, actions=[])


@BOTH
@pytest.mark.parametrize("break_any", [True, False])
def test_the_last_step_can_be_marked_as_truncated(make, break_any):
    data = make(10).rollout(4, set_truncated=True, break_when_any_done=break_any)

    assert data["next", "truncated"].squeeze(-1).tolist() == [False] * 3 + [True]
    assert data["next", "done"].squeeze(-1).tolist() == [False] * 3 + [True]
    assert not data["next", "terminated"].any()
    assert not data["truncated"].any()


def test_marking_needs_a_truncated_entry():
    env = CountingEnv()
    env.full_done_spec = Composite(done=Binary(1, dtype=torch.bool))
    with pytest.raises(SpecError, match="add_truncated_keys"):
        env.rollout(2, set_truncated=True)

    assert env.add_truncated_keys() is env
    assert env.rollout(2, set_truncated=True)["next", "truncated"][-1].item()


def test_truncated_keys_are_added_at_each_level():
    env = MultiKeyCountingEnv()
    leaf = Binary(1, dtype=torch.bool)
    env.full_done_spec = Composite({("left", "done"): leaf, ("right", "done"): leaf})
    env.add_truncated_keys()

    assert ("left", "truncated") in env.done_keys
    assert ("right", "truncated") in env.done_keys
    env.check_env_specs()


@BOTH
def test_out_takes_the_result(make):
    env = make(10)
    out = env.rollout(4).zero_()
    result = env.rollout(4, ones, out=out)

    assert result is out
    assert counts(out, ("next", "reward")) == [1, 1, 1, 1]
    with pytest.raises(SpecError, match=r"out= has batch size \(4,\), the result \(3,\)"):
        env.rollout(3, out=out)


@BOTH
def test_the_result_can_be_kept_on_another_device(make):
    assert make().rollout(2, storing_device="meta").device == torch.device("meta")


@BOTH
def test_data_is_cast_to_the_policys_device_and_back(make):
    seen = []

    class OnCpu(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, tensordict):
            seen.append(tensordict.device)
            return ones(tensordict)

    data = make(device="cpu").rollout(2, OnCpu(), auto_cast_to_device=True)
    assert seen == [torch.device("cpu")] * 2
    assert data.device == torch.device("cpu")


def test_sizes_that_vary_give_a_lazy_stack():
    data = DynamicSpecEnv().rollout(4)

    assert isinstance(data, LazyStackedTensorDict)
    assert [step["observation"].shape[1] for step in data.unbind(0)] == [1, 2, 3, 4]


def test_sizes_that_vary_cannot_be_stacked_into_one():
    with pytest.raises(NotSupported, match=r"shape of 'observation' changes .*return_contiguous=False"):
        DynamicSpecEnv().rollout(4, return_contiguous=True)


def test_sizes_that_do_not_vary_are_stacked_either_way():
    for contiguous in (True, False, None):
        assert type(CountingEnv().rollout(3, return_contiguous=contiguous)) is TensorDict


def test_agents_that_differ_stay_a_lazy_stack_inside():
    data = HeterogeneousCountingEnv(batch_size=(2,)).rollout(3)

    assert data.batch_size == (2, 3)
    assert data["agents"][..., 2]["observation"].shape == (2, 3, 3)


def test_text_is_stacked_beside_tensors():
    data = TextCountingEnv().rollout(3)

    assert [step["text"] for step in data.unbind(0)] == ["0", "1", "2"]
    assert data[-1]["next"]["text"] == "3"


def test_an_unlocked_environment_takes_its_size_from_the_data():
    data = StatelessCountingEnv(3).rollout(10, tensordict=TensorDict({}, [2, 4]))

    assert data.batch_size == (2, 4, 3)


def test_groups_keep_their_dimensions():
    data = NestedCountingEnv(n_agents=2, batch_size=(3,)).rollout(4)

    assert data["agents", "observation"].shape == (3, 4, 2, 1)
    assert data["agents"].batch_size[:2] == (3, 4)


def test_frames_that_a_callback_changes_later_are_not_the_rollouts():
    env = CountingEnv()
    data = env.rollout(3, callback=lambda env, td: td.set("observation", torch.full((1,), 9.0)))

    assert counts(data) == [0, 1, 2]


@BOTH
def test_a_long_rollout_that_ends_early_keeps_only_what_it_has(make):
    data = make(600).rollout(100_000)

    assert data.batch_size == (600,)
    assert counts(data["next"])[-1] == 600
    assert torch.equal(data["observation"][1:], data["next", "observation"][:-1])


@BOTH
def test_rollouts_do_not_share_memory(make):
    env = make()
    first = env.rollout(3)
    kept = first.clone()
    env.rollout(3, ones)

    assert (first == kept).all()


@pytest.mark.parametrize("on_arrays", [True, False])
def test_a_policy_finds_what_it_wrote_for_the_next_step(on_arrays: bool) -> None:
    def policy(tensordict):
        before = tensordict.get("state", torch.zeros(1))
        tensordict["state"] = before
        tensordict["action"] = env.full_action_spec.rand()["action"]
        tensordict["next", "state"] = before + 1
        return tensordict

    env = ArrayCountingEnv(max_steps=100)
    if not on_arrays:
        env._step = env._step

    data = env.rollout(4, policy)

    assert (env.row_writer is not None) == on_arrays
    assert data["state"].flatten().tolist() == [0, 1, 2, 3]
    assert data["next", "state"].flatten().tolist() == [1, 2, 3, 4]


def test_several_actions_are_given_as_tensordicts():
    env = MultiKeyCountingEnv()

    with pytest.raises(SpecError, match=r"actions= must give TensorDicts with .*, found Tensor"):
        env.rollout(3, actions=torch.zeros(3, 1))


@pytest.mark.parametrize("steps", [1, 63, 64, 65, 200])
def test_long_rollouts_hold_what_each_step_gave(steps):
    env = CountingEnv(max_steps=50)
    data = env.rollout(steps, break_when_any_done=False)

    counted = torch.arange(steps) % 50
    assert data.batch_size == (steps,)
    assert torch.equal(data["observation"].squeeze(-1), counted.float())
    assert torch.equal(data["next", "observation"].squeeze(-1), counted + 1.0)
    assert torch.equal(data["next", "terminated"].squeeze(-1), counted == 49)
    assert not data["done"].any()


def test_a_shape_that_changes_late_makes_a_long_rollout_lazy():
    class Growing(CountingEnv):
        def _step(self, tensordict):
            data = super()._step(tensordict)
            return data if data["observation"] < 70 else data.set("observation", data["observation"].expand(2).clone())

    env = Growing(max_steps=200)
    env.observation_spec = Composite(observation=Unbounded((-1,)))
    data = env.rollout(100)

    assert isinstance(data, LazyStackedTensorDict)
    assert [step["next", "observation"].numel() for step in data.unbind(0)] == [1] * 69 + [2] * 31
    with pytest.raises(NotSupported, match="because the shape of"):
        env.rollout(100, return_contiguous=True)


def test_rollouts_one_after_another_are_those_of_a_new_environment():
    again = ArrayCountingEnv(3)
    kept = [again.rollout(4, break_when_any_done=False), again.rollout(2), again.rollout(5, break_when_any_done=False)]

    for data, steps in zip(kept, (4, 2, 5), strict=True):
        new = ArrayCountingEnv(3).rollout(steps, actions=data["action"], break_when_any_done=False)
        assert (data == new).all()


def test_a_rollout_that_raised_leaves_nothing_behind_for_the_next_one():
    env = ArrayCountingEnv(5)

    def fails(td):
        if td["observation"].item() == 2:
            raise ArithmeticError("the policy")
        return ones(td)

    with pytest.raises(ArithmeticError, match="the policy"):
        env.rollout(5, fails)
    assert counts(env.rollout(5, ones)) == [0, 1, 2, 3, 4]


def test_a_policy_may_begin_a_rollout_of_the_same_environment():
    env = ArrayCountingEnv(3)
    inner = []

    def looks_ahead(td):
        if not inner:
            inner.append(env.rollout(2, ones))
        return ones(td)

    data = env.rollout(3, looks_ahead)

    assert counts(inner[0]) == [0, 1]
    assert counts(data)[0] == 0
    assert counts(env.rollout(3, ones)) == [0, 1, 2]


@pytest.mark.parametrize("counted", [False, True])
def test_a_step_into_that_is_assigned_is_the_one_that_is_called_from_then_on(counted):
    base = ArrayCountingEnv(3)
    env = TransformedEnv(base, StepCounter()) if counted else base
    env.rollout(2)
    env.step(env.rand_action(env.reset()))
    calls = []
    original = base.step_into

    def noted(action, out):
        calls.append(action)
        return original(action, out)

    base.step_into = noted
    env.rollout(2)
    assert len(calls) == 2
    env.step(env.rand_action(env.reset()))
    assert len(calls) == 3
    del base.step_into
    env.rollout(2)
    env.step(env.rand_action(env.reset()))
    assert len(calls) == 3
