"""Data of a rollout: memory, stacks of varying sizes, devices."""

from __future__ import annotations

import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict

from steppe.errors import NotSupported, SpecError
from steppe.specs import Composite, Unbounded
from steppe_testing import (
    CountingEnv,
    DynamicSpecEnv,
    HeterogeneousCountingEnv,
    NestedCountingEnv,
    StatelessCountingEnv,
    TextCountingEnv,
)
from tests.core.envs.counting import BOTH, counts, ones


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


def test_a_callback_does_not_change_the_frames_of_a_rollout():
    """A callback of a rollout gets copies: its changes are not in the result."""
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


@pytest.mark.parametrize("steps", [1, 200])
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


class OtherAtReset(CountingEnv):
    """Observes another size after each reset that ``others`` names, counted from 0, than everywhere else."""

    def __init__(self, others, *, other, usual, **kwargs):
        super().__init__(**kwargs)
        self.observation_spec = Composite(observation=Unbounded((-1,)))
        self.others, self.other, self.usual, self.resets = others, other, usual, 0

    def _of(self, size, data):
        return data.set("observation", data["observation"].expand(size).clone())

    def _step(self, tensordict):
        return self._of(self.usual, super()._step(tensordict.clone()))

    def _reset(self, tensordict=None, **kwargs):
        self.resets += 1
        return self._of(self.other if self.resets - 1 in self.others else self.usual, super()._reset(tensordict))


@pytest.mark.parametrize("others", [{0}, {1}, {0, 1, 2}])
@pytest.mark.parametrize(("other", "usual"), [(2, 1), (1, 2)])
def test_observations_of_resets_may_differ_in_size(others, other, usual):
    """The first data of an episode may be of another size than all that follows."""
    env = OtherAtReset(others, other=other, usual=usual, max_steps=10)
    data = env.rollout(25, break_when_any_done=False)

    assert isinstance(data, LazyStackedTensorDict)
    at_reset = {t: other if t // 10 in others else usual for t in (0, 10, 20)}
    assert [step["observation"].numel() for step in data.unbind(0)] == [at_reset.get(t, usual) for t in range(25)]
    assert [step["next", "observation"].numel() for step in data.unbind(0)] == [usual] * 25
