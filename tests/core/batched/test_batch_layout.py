"""Rows of a batch: unequal ones, batches of batches, masks of agents, and some of them alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict

from steppe import EnvBase, ParallelEnv, SerialEnv, StepCounter, TransformedEnv
from steppe.errors import ActionError, NotSupported, SpecError
from steppe.specs import Categorical, Composite, MultiCategorical, Stacked, Unbounded
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
    MultiAgentCountingEnv,
    NestedCountingEnv,
    NestedResetEnv,
    TextCountingEnv,
    assert_equal_data,
)

BOTH = pytest.mark.parametrize("batch", [SerialEnv, partial(ParallelEnv, num_processes=2)], ids=["serial", "parallel"])


# -- unequal rows


@BOTH
def test_rows_of_unequal_shapes_are_stacked_lazily(batch: Any) -> None:
    with batch(2, ["gym:Pendulum-v1", "gym:CartPole-v1"]) as env:
        env.set_seed(0)
        data = env.rollout(40, break_when_any_done=False)
        spec = env.full_observation_spec

    assert isinstance(data, LazyStackedTensorDict)
    assert data[0]["observation"].shape == (40, 3)
    assert data[1]["observation"].shape == (40, 4)
    assert data[1]["next", "done"].sum() > 0
    assert spec[0]["observation"].shape == (3,)


def test_unequal_rows_hold_what_each_environment_gives_alone() -> None:
    actions = {"gym:Pendulum-v1": torch.tensor([0.5]), "gym:CartPole-v1": torch.tensor([0, 1])}
    with ParallelEnv(2, list(actions), num_processes=2) as env:
        env.set_seed(3, static_seed=True)
        root = env.reset()
        for row, action in enumerate(actions.values()):
            root.tensordicts[row].set("action", action)
        found = env.step(root)

    for row, (name, action) in enumerate(actions.items()):
        with SerialEnv(1, name) as alone:
            alone.set_seed(3)
            td = alone.reset().set("action", action.unsqueeze(0))
            assert_equal_data(found[row], alone.step(td)[0])


@BOTH
def test_rows_that_differ_in_domain_alone_share_storage(batch: Any) -> None:
    with batch(2, [partial(DiceEnv, 2), partial(DiceEnv, 6)]) as env:
        data = env.rollout(50)

        assert env.storage is not None
        assert isinstance(env.action_spec, Stacked)
    assert type(data) is TensorDict
    assert data["action"][0].max() == 1
    assert 1 < data["action"][1].max() < 6


class DiceEnv(CountingEnv):
    """Takes ``sides`` actions."""

    def __init__(self, sides: int) -> None:
        super().__init__(1000, action="categorical")
        self.action_spec = Categorical(sides)


# -- batches of batches


@BOTH
@pytest.mark.parametrize("text", [False, True], ids=["storage", "messages"])
def test_a_batch_of_batches_has_both_dimensions(batch: Any, text: bool) -> None:
    make = partial(TextCountingEnv if text else CountingEnv, batch_size=(3,))

    with batch(2, make) as env:
        assert env.batch_size == (2, 3)
        data = env.rollout(12, break_when_any_done=False)

    assert data.batch_size == (2, 3, 12)
    assert data["next", "done"].sum() == 2 * 3 * 2


@BOTH
def test_a_partial_step_works_in_a_batch_of_batches(batch: Any) -> None:
    with batch(2, partial(CountingEnv, batch_size=(2,))) as env:
        td = env.rand_action(env.reset())
        td["_step"] = torch.tensor([[True, False], [False, True]])
        after = env.step(td)["next", "observation"].squeeze(-1)
        td = env.step(env.rand_action(env.reset()))

    assert after.tolist() == [[1, 0], [0, 1]]
    assert td["next", "observation"].flatten().tolist() == [1] * 4


@BOTH
def test_a_partial_reset_works_in_a_batch_of_batches(batch: Any) -> None:
    with batch(2, partial(CountingEnv, batch_size=(2,))) as env:
        root = env.step_mdp(env.rand_step(env.reset()))
        root["_reset"] = torch.tensor([[True, False], [False, False]]).unsqueeze(-1)
        assert env.reset(root)["observation"].flatten().tolist() == [0, 1, 1, 1]
        after = env.rand_step(root)

    assert after["next", "observation"].flatten().tolist() == [1, 2, 2, 2]


@BOTH
def test_batches_of_different_sizes_are_refused(batch: Any) -> None:
    env = batch(2, [partial(CountingEnv, batch_size=(2,)), partial(CountingEnv, batch_size=(3,))])

    with pytest.raises(NotSupported, match=r"Environments 0 and 1 have batch sizes \(2,\) and \(3,\)"):
        env.reset()
    env.close()


def test_a_batch_is_not_started_by_putting_transforms_on_it() -> None:
    batch = ParallelEnv(2, ArrayCountingEnv)
    env = TransformedEnv(batch, StepCounter())

    assert batch.worker_pids == []
    assert env.batch_size == (2,)
    assert len(batch.worker_pids) > 0
    env.close()


# -- groups of agents


@BOTH
@pytest.mark.parametrize("make", [NestedCountingEnv, NestedResetEnv, MultiAgentCountingEnv])
def test_agents_that_end_one_by_one_match_one_environment(batch: Any, make: Any) -> None:
    """A batch whose agents end one by one gives the data of a single environment."""
    alone = make()
    with batch(2, make) as env:
        root, other = env.reset(), alone.reset()
        for _ in range(12):
            action = alone.rand_action().get(("agents", "action"))
            root[("agents", "action")] = torch.stack([action, action])
            other[("agents", "action")] = action
            stepped, root = env.step_and_maybe_reset(root)
            expected, other = alone.step_and_maybe_reset(other)
            for row in (0, 1):
                assert_equal_data(stepped[row], expected)
                assert_equal_data(root[row], other)
        assert env.storage is not None


@BOTH
def test_agents_that_a_transform_ends_are_reset_alone(batch: Any) -> None:
    def make() -> EnvBase:
        return NestedCountingEnv(6, spread=3)

    with batch(2, make) as base:
        env = TransformedEnv(base, StepCounter(max_steps=4))
        found = env.rollout(14, break_when_any_done=False, actions=_group_actions(14, 2))
    with batch(2, lambda: TransformedEnv(make(), StepCounter(max_steps=4))) as env:
        assert_equal_data(found, env.rollout(14, break_when_any_done=False, actions=_group_actions(14, 2)))


def _group_actions(steps: int, n: int) -> list[TensorDict]:
    env = NestedCountingEnv()
    action = env.full_action_spec.expand(n).zero()
    action["agents", "action"][..., 1] = 1
    return [action] * steps


@BOTH
def test_a_mask_of_agents_resets_those_agents(batch: Any) -> None:
    with batch(2, NestedCountingEnv) as env:
        root = env.step_mdp(env.rand_step(env.reset()))
        root["agents", "_reset"] = torch.tensor([[True, False], [False, False]]).unsqueeze(-1)
        root = env.reset(root)
        assert root["agents", "observation"].flatten().tolist() == [0, 1, 1, 1]
        after = env.rand_step(root)

    assert after["next", "agents", "observation"].flatten().tolist() == [1, 2, 2, 2]


@BOTH
def test_a_mask_at_the_root_decides_for_the_agents(batch: Any) -> None:
    with batch(2, NestedResetEnv) as env:
        root = env.step_mdp(env.rand_step(env.reset()))
        root["agents", "_reset"] = torch.tensor([[True, False], [True, False]]).unsqueeze(-1)
        root["_reset"] = torch.tensor([[True], [False]])

        assert env.reset(root)["agents", "observation"].flatten().tolist() == [0, 0, 1, 1]


# -- some rows


@BOTH
def test_rows_are_stepped_and_reset_alone(batch: Any) -> None:
    with batch(3, ArrayCountingEnv) as env:
        env.step(env.rand_action(env.reset()))
        some = env.full_action_spec[:2].rand()
        stepped = env.step_at(some, [2, 0])
        fresh = env.reset_at(None, torch.tensor([1]))
        after = env.rand_step(env.rand_action())

    assert stepped["next", "observation"].flatten().tolist() == [2, 2]
    assert fresh["observation"].flatten().tolist() == [0]
    assert after["next", "observation"].flatten().tolist() == [3, 1, 3]


@BOTH
@pytest.mark.parametrize(
    ("index", "rows"),
    [(1, [1]), (-1, [2]), (slice(1, 3), [1, 2]), ([2, 0], [2, 0]), (torch.tensor([True, False, True]), [0, 2])],
    ids=str,
)
def test_an_index_is_a_smaller_batch_of_those_rows(batch: Any, index: Any, rows: list[int]) -> None:
    makes = [partial(ArrayCountingEnv, start=10 * row) for row in range(3)]
    starts = torch.tensor([0.0, 10.0, 20.0])
    with batch(3, makes) as env:
        env.reset()
        view = env[index]
        data = view.rollout(3)
        after = env.rand_step(env.rand_action())["next", "observation"].squeeze(-1)

        assert view.begin == starts[rows].int().tolist()
    assert view.batch_size == (len(rows),)
    assert torch.equal(data["observation"].squeeze(-1)[..., 0], starts[rows])
    stepped = torch.ones(3)
    stepped[rows] += 3
    assert torch.equal(after, starts + stepped)


def test_an_index_that_names_no_row_says_which_there_are() -> None:
    with SerialEnv(2, ArrayCountingEnv) as env:
        with pytest.raises(IndexError, match=r"numbered from 0 to 1, .* found 2"):
            env[2]
        with pytest.raises(IndexError, match="named once"):
            env[[0, 0]]
        with pytest.raises(IndexError, match="numbered from 0 to 1"):
            env[2:]
        assert len(env) == len(list(env)) == 2


# -- rows that are left alone


@BOTH
def test_the_text_of_an_ended_episode_stays(batch: Any) -> None:
    """The text of an episode that has ended stays while other rows go on."""
    with batch(2, [partial(TextCountingEnv, 2), partial(TextCountingEnv, 4)]) as env:
        data = env.rollout(9, break_when_any_done=False, break_when_all_done=True)

    assert data["next", "text"].tolist() == [["1", "2", "2", "2"], ["1", "2", "3", "4"]]


@BOTH
def test_text_stays_where_a_batch_of_batches_is_not_stepped(batch: Any) -> None:
    with batch(2, partial(TextCountingEnv, batch_size=(2,))) as env:
        td = env.rand_action(env.reset())
        td["_step"] = torch.tensor([[True, False], [False, True]])

        assert env.step(td)["next", "text"].tolist() == [["1", "0"], ["0", "1"]]


# -- what a reset is given


@BOTH
@pytest.mark.parametrize("array_path", [True, False], ids=["arrays", "tensordicts"])
def test_env_info_reaches_its_row_and_stays_for_resets_inside(batch: Any, array_path: bool) -> None:
    make = partial(ArrayCountingEnv, 2, env_info=True, array_path=array_path)
    with batch(2, make) as env:
        root = env.reset(env_info={"start": torch.tensor([[5], [7]])})
        assert root["observation"].flatten().tolist() == [5, 7]
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
        inside = root["observation"].flatten().tolist()
        one = env.reset_at(None, [1], env_info={"start": torch.tensor([[9]])})["observation"].flatten().tolist()
        without = env.reset()["observation"].flatten().tolist()

    assert inside == [5, 7]
    assert one == [9]
    assert without == [0, 0]


@BOTH
def test_arguments_of_a_reset_go_to_their_rows(batch: Any) -> None:
    with batch(2, "gym:CartPole-v1") as env:
        root = env.reset(
            list_of_kwargs=[{"options": {"low": -0.01, "high": 0.0}}, {"options": {"low": 0.04, "high": 0.05}}]
        )
        shared = env.reset(options={"low": 0.03, "high": 0.04})

        with pytest.raises(SpecError, match="list_of_kwargs needs 2 dicts"):
            env.reset(list_of_kwargs=[{}])
    assert root["observation"][0].max() <= 0 <= root["observation"][1].min() - 0.04
    assert shared["observation"].min() >= 0.03


def test_a_factory_that_makes_something_else_is_told_to_wrap_it() -> None:
    import gymnasium

    env = SerialEnv(2, lambda: gymnasium.make("CartPole-v1"))
    with pytest.raises(SpecError, match="not a steppe environment"):
        env.reset()


def test_two_env_info_specs_do_not_make_a_batch() -> None:
    env = SerialEnv(2, [ArrayCountingEnv, partial(ArrayCountingEnv, env_info=True)])

    with pytest.raises(NotSupported, match="differ in env_info_spec"):
        env.reset()
    assert Composite(start=Unbounded((1,), dtype=torch.int64)) == ArrayCountingEnv(env_info=True).env_info_spec


# -- gradients


class SlidingEnv(CountingEnv):
    """A differentiable environment: actions move a position; the reward is its square."""

    def __init__(self) -> None:
        super().__init__(100, action="continuous")

    def _step(self, tensordict: Any) -> Any:
        place = tensordict["observation"] + tensordict["action"].sum(-1, keepdim=True)
        return super()._step(tensordict).update({"observation": place, "reward": place**2})


def test_gradients_pass_through_environments_of_this_process() -> None:
    def gradient(env: EnvBase, n: int) -> torch.Tensor:
        weight = torch.ones((), requires_grad=True)
        action = env.full_action_spec.one()["action"]
        data = env.rollout(4, lambda td: td.set("action", action * weight * (1 + td["observation"])))
        data["next", "reward"].sum().backward()
        assert weight.grad is not None
        return weight.grad / n

    with SerialEnv(2, SlidingEnv) as env:
        found = gradient(env, 2)

    assert found > 0
    assert torch.allclose(found, gradient(SlidingEnv(), 1))


@pytest.mark.parametrize("counts", [(4, 4, 4), (4, 2, 5)])
def test_some_rows_take_numbers_of_several_choices(counts):
    class Choices(ArrayCountingEnv):
        def __init__(self, n):
            super().__init__(9)
            self.action_spec = MultiCategorical([n, 3])

    env = SerialEnv(3, [partial(Choices, n) for n in counts])
    td = env.rand_action(env.reset())[[2, 0]].set("action", torch.tensor([[counts[2] - 1, 2], [counts[0] - 1, 0]]))

    assert env.step_at(td, [2, 0])["next", "observation"].tolist() == [[1], [1]]
    with pytest.raises(ActionError, match="of row 0"):
        env.step_at(td.set("action", torch.tensor([[0, 0], [counts[0], 0]])), [2, 0])
    env.close()
