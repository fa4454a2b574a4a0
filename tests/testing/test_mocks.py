"""The mock environments behave as documented."""

from __future__ import annotations

import pickle
import time
from contextlib import closing

import pytest
import torch
from tensordict import TensorDict

from steppe.batched import ParallelEnv, SerialEnv
from steppe.errors import NotSupported, SpecError
from steppe.specs import Unbounded
from steppe_testing import (
    ACTION_KINDS,
    ArrayCountingEnv,
    AutoResettingHeterogeneousEnv,
    ConstantPolicy,
    CountingEnv,
    DataEnv,
    DoNothingEnv,
    EchoEnv,
    FailingEnv,
    HangingEnv,
    HeterogeneousCountingEnv,
    MetadataEnv,
    ModelCountingEnv,
    MultiAgentCountingEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    PlaceEnv,
    ShapeShiftingEnv,
    SlowEnv,
    StatelessCountingEnv,
    TextCountingEnv,
    action_leaf,
    action_number,
    assert_equal_data,
)
from steppe_testing.mock_special import Place


@pytest.mark.parametrize(("in_", "at", "steps"), [("reset", 2, 3), ("step", 4, 3)])
def test_a_failing_environment_fails_when_told(in_, at, steps):
    env = FailingEnv(at=at, in_=in_)
    env.rollout(steps)

    with pytest.raises(RuntimeError, match=f"FailingEnv failed in {in_} {at}"):
        env.rollout(steps + 2)


def test_a_failing_environment_fails_at_once_or_at_an_attribute():
    with pytest.raises(KeyError, match="init"):
        FailingEnv(in_="init", error=KeyError)

    env = FailingEnv(in_="attribute")
    with pytest.raises(RuntimeError, match="attribute"):
        env.broken  # noqa: B018
    assert FailingEnv().broken == "not broken"


@pytest.mark.parametrize("busy", [True, False])
def test_a_slow_environment_takes_its_time(busy):
    env = SlowEnv(seconds=0.01, reset_seconds=0, busy=busy)
    begin = time.perf_counter()
    env.rollout(3)

    assert time.perf_counter() - begin >= 0.03


def test_a_hanging_environment_gives_up_in_the_end():
    with pytest.raises(TimeoutError, match="gave up"):
        HangingEnv(at=2, seconds=0.01).rollout(5)


@pytest.mark.parametrize("kind", ACTION_KINDS)
def test_mocks_on_arrays_and_tensors_count_equally(kind):
    tensors, arrays = CountingEnv(3, action=kind), ArrayCountingEnv(3, action=kind)
    for env in (tensors, arrays):
        env.set_seed(4)

    assert_equal_data(arrays.rollout(7, break_when_any_done=False), tensors.rollout(7, break_when_any_done=False))


def test_an_unknown_kind_of_action_lists_the_known_ones():
    with pytest.raises(SpecError, match="one_hot, categorical"):
        action_leaf("joystick")


def test_the_number_of_an_action_has_one_last_dimension():
    for kind in ACTION_KINDS:
        leaf = action_leaf(kind, (4,))
        assert action_number(kind, leaf.rand()).shape == (4, 1)


def test_agents_end_one_after_the_other():
    data = MultiAgentCountingEnv(2).rollout(10)

    assert data["next", "agents", "done"].squeeze(-1).sum(0).tolist() == [3, 2, 1]
    assert data.batch_size == (4,)


def test_unequal_agents_have_their_own_entries():
    agents = HeterogeneousCountingEnv().reset()["agents"]

    assert [set(agent.keys()) for agent in agents.unbind(0)] == [{"observation", f"own_{i}"} for i in range(3)]


def test_text_and_objects_come_in_the_shape_of_the_batch():
    assert TextCountingEnv(batch_size=(2,)).reset()["text"] == ["0", "0"]
    assert MetadataEnv(metadata=[1]).rollout(2)[1]["next", "metadata"] == [1]


def test_the_least_environment_has_nothing_to_see():
    data = DoNothingEnv().rollout(3)

    assert not data["next", "done"].any()
    assert data["next", "reward"].sum() == 0


def test_random_data_follows_its_specs_and_seed():
    env = DataEnv({("a", "b"): Unbounded((2,), dtype=torch.float64)}, max_steps=3)
    env.check_env_specs()
    env.set_seed(1)
    first = env.rollout(9)
    env.set_seed(1)

    assert_equal_data(env.rollout(9), first)
    assert first.batch_size == (3,)
    assert pickle.loads(pickle.dumps(env)).rollout(9).batch_size == (3,)


def test_a_heterogeneous_env_that_resets_itself_has_equal_data():
    """The data equals that of an environment that is reset from outside."""
    itself, other = AutoResettingHeterogeneousEnv(2), HeterogeneousCountingEnv(2)
    for env in (itself, other):
        env.set_seed(0)
    data = itself.rollout(5, break_when_any_done=False)
    expected = other.rollout(5, break_when_any_done=False)

    ended = expected["next", "done"].squeeze(-1)
    assert ended.tolist() == [False, True, False, True, False]
    assert_equal_data(data.exclude("next"), expected.exclude("next"))
    for mine, theirs, over in zip(data["next"].unbind(0), expected["next"].unbind(0), ended, strict=True):
        for i in range(3):
            for key in ("observation", f"own_{i}"):
                seen = mine.get("agents")[i][key]
                assert seen.isnan().all() if over else seen.equal(theirs.get("agents")[i][key])


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_mocks_return_text(kind):
    env = EchoEnv()
    env.check_env_specs()
    with closing(kind(2, EchoEnv)) as batch:
        data = batch.rollout(3)

    assert env.rollout(2, lambda td: td.set("action", "hello"))["next", "observation"] == ["hello", "hello"]
    assert data[1]["observation"] == ["start", "word", "word"]
    assert data["next", "reward"].unique().item() == 4


def test_a_tensorclass_stays_one_in_an_environment():
    env = PlaceEnv(batch_size=(2,))
    env.check_env_specs()
    data = env.rollout(7, break_when_any_done=False)

    assert isinstance(data["next"].get("place"), Place)
    assert data["place"].y[0].squeeze(-1).tolist() == [0, -1, -2, -3, -4, 0, -1]


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_a_tensorclass_is_a_tensordict_in_a_batch(kind):
    with closing(kind(2, PlaceEnv)) as env:
        place = env.rollout(3)["next"].get("place")

    assert isinstance(place, TensorDict)
    assert place["y"][1].squeeze(-1).tolist() == [-1, -2, -3]


def test_data_that_changes_its_shape_is_named_by_each_check():
    """check_env_specs, run_type_checks, and return_contiguous name the entry."""
    ShapeShiftingEnv(at=3).check_env_specs(steps=2)
    with pytest.raises(SpecError, match=r"observation.*\(1,\).*\(2,\)"):
        ShapeShiftingEnv(at=3).check_env_specs(steps=3)
    with pytest.raises(SpecError, match=r"observation.*\(1,\).*\(2,\)"):
        ShapeShiftingEnv(at=3, run_type_checks=True).rollout(4)
    with pytest.raises(NotSupported, match="observation"):
        ShapeShiftingEnv(at=3).rollout(4, return_contiguous=True)


@pytest.mark.parametrize("make", [CountingEnv, StatelessCountingEnv, ModelCountingEnv, NestedCountingEnv])
def test_a_mock_takes_reset_arguments_that_it_does_not_use(make):
    env = make(3)
    fresh = env.reset(options={"level": 2})

    assert_equal_data(fresh, env.reset(), "a reset with an argument of another environment")


def test_a_model_counts_for_any_batch_size_and_passes_gradients():
    env = ModelCountingEnv()
    env.check_env_specs()
    data = env.rollout(9, tensordict=TensorDict({}, [3]))
    data["next", "reward"].sum().backward()

    assert data["next", "count"][0].squeeze(-1).tolist() == [1, 2, 3, 4, 5]
    assert env.world_model.module.step.grad.item() == 3 * (1 + 2 + 3 + 4 + 5)


@pytest.mark.parametrize("make", [CountingEnv, MultiKeyCountingEnv, HeterogeneousCountingEnv, NestedCountingEnv])
def test_a_constant_policy_writes_one_action_at_all_keys(make):
    env = make()
    td = ConstantPolicy(env, 1)(env.reset())

    for key in env.action_keys:
        spec = env.full_action_spec[key]
        assert spec.is_in(td.get(key))
        number = td.get(key) if spec.dtype is torch.int64 else td.get(key).int().argmax(-1)
        assert (number == 1).all()
    assert env.rollout(3, ConstantPolicy(env, 1)).batch_dims == 1
