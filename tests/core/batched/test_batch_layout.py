"""Rows of a batch: unequal ones, batches of batches, masks of agents, and some of them alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict

from steppe import EnvBase, ParallelEnv, SerialEnv, StepCounter, TransformedEnv
from steppe.errors import ArgumentError, NotSupported
from steppe.specs import Categorical, Composite, Stacked, Unbounded
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
    TextCountingEnv,
    assert_equal_data,
)

BOTH = pytest.mark.parametrize("batch", [SerialEnv, partial(ParallelEnv, num_processes=2)], ids=["serial", "parallel"])


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


def test_an_invalid_row_index_names_the_valid_ones() -> None:
    with SerialEnv(2, ArrayCountingEnv) as env:
        with pytest.raises(IndexError, match=r"numbered from 0 to 1, .* found 2"):
            env[2]
        with pytest.raises(IndexError, match="named once"):
            env[[0, 0]]
        with pytest.raises(IndexError, match="numbered from 0 to 1"):
            env[2:]
        assert len(env) == len(list(env)) == 2


def test_a_factory_of_raw_environments_names_the_wrapper() -> None:
    import gymnasium

    env = SerialEnv(2, lambda: gymnasium.make("CartPole-v1"))
    with pytest.raises(ArgumentError, match="not a steppe environment"):
        env.reset()


def test_two_env_info_specs_do_not_make_a_batch() -> None:
    env = SerialEnv(2, [ArrayCountingEnv, partial(ArrayCountingEnv, env_info=True)])

    with pytest.raises(NotSupported, match="differ in env_info_spec"):
        env.reset()
    assert Composite(start=Unbounded((1,), dtype=torch.int64)) == ArrayCountingEnv(env_info=True).env_info_spec


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
