"""Transforms that count, begin, prolong and end episodes."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import ParallelEnv, SerialEnv, TransformedEnv, check_env_specs
from steppe.errors import NotSupported, SpecError, StateError
from steppe.transforms import Compose, RewardSum, StepCounter
from steppe_testing import ArrayCountingEnv, CountingEnv, MultiAgentCountingEnv
from steppe_time import (
    BurnInTransform,
    FrameSkipTransform,
    NoopResetEnv,
    RandomTruncationTransform,
    TerminateTransform,
    TrajCounter,
    gSDENoise,
)

EACH_BASE = pytest.mark.parametrize("base", [ArrayCountingEnv, CountingEnv])
LENGTHS = (4, 7)


def places(base, make, lengths=LENGTHS, **kwargs):
    """A batch of transformed environments, and a transformed batch."""
    rows = [partial(base, n, **kwargs) for n in lengths]
    return (
        SerialEnv(len(rows), [lambda row=row: TransformedEnv(row(), make()) for row in rows]),
        TransformedEnv(SerialEnv(len(rows), rows), make()),
    )


# -- FrameSkipTransform ----------------------------------------------------------------------------------------------


@EACH_BASE
def test_frame_skip_repeats_an_action_until_the_episode_ends(base):
    """The rewards of the repeated steps are added up."""
    parts = partial(Compose, StepCounter(), FrameSkipTransform(3), RewardSum())
    actions = [torch.full((2, 2), 0.5)] * 6
    for env in places(base, lambda: Compose(*(part.clone() for part in parts())), action="continuous"):
        check_env_specs(env)
        data = env.rollout(6, actions=list(actions), break_when_any_done=False)

        assert data["next", "observation"][..., 0].tolist() == [[3, 4] * 3, [3, 6, 7] * 2]
        assert data["next", "step_count"][..., 0].tolist() == [[3, 4] * 3, [3, 6, 7] * 2]
        assert data["next", "reward"][..., 0].tolist() == [[3, 1] * 3, [3, 3, 1] * 2]
        assert data["next", "episode_reward"][..., 0].tolist() == [[3, 4] * 3, [3, 6, 7] * 2]
        assert data["next", "done"][..., 0].tolist() == [[False, True] * 3, [False, False, True] * 2]


@EACH_BASE
def test_rows_that_a_step_leaves_out_are_not_repeated(base):
    env = TransformedEnv(SerialEnv(2, partial(base, 9)), FrameSkipTransform(3))
    td = env.rand_action(env.reset())
    td["_step"] = torch.tensor([True, False])

    assert env.step(td)["next", "observation"].flatten().tolist() == [3, 0]


def test_rewards_of_agents_are_added_up():
    env = TransformedEnv(MultiAgentCountingEnv(9), FrameSkipTransform(2))
    plain = MultiAgentCountingEnv(9)
    td, action = env.reset(), env.full_action_spec.rand()
    one = plain.step(plain.reset().update(action))["next", "agents", "reward"]

    assert torch.equal(env.step(td.update(action))["next", "agents", "reward"], 2 * one)


# -- NoopResetEnv ----------------------------------------------------------------------------------------------------


@EACH_BASE
def test_each_row_starts_after_its_own_random_actions(base):
    both = []
    for env in places(base, lambda: NoopResetEnv(3)):
        check_env_specs(env)
        env.set_seed(1)
        both.append(env.rollout(40, break_when_any_done=False))
    inside, around = both

    assert torch.equal(inside["observation"], around["observation"])
    for row, length in enumerate(LENGTHS):
        first = inside["observation"][row, 1:, 0][inside["next", "done"][row, :-1, 0]]
        assert set(first.tolist()) == {0, 1, 2, 3}
        assert inside["next", "observation"][row, :, 0][inside["next", "done"][row, :, 0]].unique().tolist() == [length]


@EACH_BASE
def test_noop_actions_are_the_same_inside_and_around_a_batch(base):
    both = []
    for env in places(base, lambda: Compose(RewardSum(), NoopResetEnv(3))):
        env.set_seed(1)
        both.append(env.rollout(30, break_when_any_done=False))
    inside, around = both
    begun = inside["episode_reward"][inside["observation"] > 0]

    assert torch.equal(inside["episode_reward"], around["episode_reward"])
    assert len(begun.unique()) > 2


def test_a_number_of_actions_may_be_the_same_each_time():
    assert TransformedEnv(CountingEnv(9), NoopResetEnv(4, random=False)).reset()["observation"].item() == 4


def test_an_episode_that_ends_in_noop_actions_is_reset():
    """An episode that ends in the random actions is restarted, but not forever."""

    class Short(CountingEnv):
        def _reset(self, tensordict=None, **kwargs):
            self.max_steps += 1
            return super()._reset(tensordict, **kwargs)

    env = TransformedEnv(Short(1), NoopResetEnv(4, random=False))
    assert env.reset()["observation"].item() == 4
    assert env.base_env.max_steps == 5

    with pytest.raises(StateError, match="ended 11 times before 4 random actions"):
        TransformedEnv(CountingEnv(3), NoopResetEnv(4, random=False)).reset()


# -- TrajCounter -----------------------------------------------------------------------------------------------------


def test_episodes_are_numbered_in_order():
    data = TransformedEnv(CountingEnv(2), TrajCounter()).rollout(6, break_when_any_done=False)

    assert data["traj_count"].flatten().tolist() == [0, 0, 1, 1, 2, 2]
    assert data["next", "traj_count"].flatten().tolist() == [0, 0, 1, 1, 2, 2]


def test_clones_in_other_processes_share_the_count():
    counter = TrajCounter()
    with closing(ParallelEnv(4, lambda: TransformedEnv(ArrayCountingEnv(3), counter.clone()), num_processes=2)) as env:
        data = env.rollout(9, break_when_any_done=False)

    starts = data["traj_count"][:, ::3].flatten()
    assert starts.unique().numel() == 12
    assert int(counter.traj_count) == starts.max() + 1
    assert TrajCounter().load_state_dict(counter.state_dict())


def test_around_a_batch_rows_that_begin_are_numbered_one_by_one():
    env = TransformedEnv(SerialEnv(2, [partial(CountingEnv, n) for n in (2, 4)]), TrajCounter())
    data = env.rollout(6, break_when_any_done=False)

    assert data["traj_count"][..., 0].tolist() == [[0, 0, 2, 2, 3, 3], [1, 1, 1, 1, 4, 4]]


def test_a_group_that_ends_alone_is_numbered_alone():
    env = TransformedEnv(MultiAgentCountingEnv(4), TrajCounter(("agents", "traj_count")))
    check_env_specs(env)

    assert env.rollout(2)["agents", "traj_count"].shape == (2, 3, 1)
    with pytest.raises(SpecError, match="no done entry beside"):
        TransformedEnv(CountingEnv(4), TrajCounter(("agents", "traj_count"))).reset()


# -- RandomTruncationTransform ---------------------------------------------------------------------------------------


def lengths(data):
    """The lengths of the whole episodes of each row."""
    found = []
    for done in data["next", "done"][..., 0]:
        ends = torch.cat([torch.tensor([-1]), done.nonzero().squeeze(-1)])
        found.append(ends.diff().tolist())
    return found


@EACH_BASE
def test_first_episodes_are_spread_and_later_ones_are_whole(base):
    both = []
    for env in places(base, lambda: Compose(StepCounter(), RandomTruncationTransform(2, 6)), (99,) * 8):
        check_env_specs(env)
        env.set_seed(3)
        both.append(env.rollout(30, break_when_any_done=False))
    found = lengths(both[0])

    assert torch.equal(both[0]["next", "truncated"], both[1]["next", "truncated"])
    assert len({row[0] for row in found}) > 3
    assert all(1 <= row[0] <= 6 and set(row[1:]) == {6} for row in found)
    assert not both[0]["next", "terminated"].any()


def test_later_episodes_are_cut_with_the_given_probability():
    env = TransformedEnv(CountingEnv(99), Compose(StepCounter(), RandomTruncationTransform(2, 5, 0.5, 0.0)))
    env.set_seed(0)
    first, second, *later = lengths(env.rollout(3000, break_when_any_done=False).unsqueeze(0))[0]
    cut = torch.tensor(later).float()

    assert 1 <= first <= 5
    assert second == 5
    assert set(later) == {2, 3, 4, 5}
    # Half of them are drawn from four lengths.
    assert abs((cut == 5).float().mean() - 0.625) < 0.06


def test_a_length_limit_needs_a_step_counter():
    with pytest.raises(SpecError, match=r"Put StepCounter\(\) before it"):
        TransformedEnv(CountingEnv(3), RandomTruncationTransform(1, 4)).reset()


# -- TerminateTransform ----------------------------------------------------------------------------------------------


@EACH_BASE
def test_an_episode_terminates_when_a_condition_holds(base):
    for env in places(base, lambda: TerminateTransform(lambda td: td["observation"][..., 0] >= 5)):
        check_env_specs(env)
        data = env.rollout(10, break_when_any_done=False)

        assert data["observation"][..., 0].tolist() == [[0, 1, 2, 3, 0, 1, 2, 3, 0, 1], [0, 1, 2, 3, 4] * 2]
        assert torch.equal(data["next", "done"], data["next", "terminated"])


@EACH_BASE
def test_a_condition_may_be_written_to_terminated_alone(base):
    env = TransformedEnv(base(4), TerminateTransform(lambda td: True, write_done=False))
    data = env.rollout(3)

    assert data["next", "terminated"].all()
    assert not data["next", "done"].any()


@EACH_BASE
def test_a_condition_gets_data_of_its_environments_batch_size(base):
    """The condition may keep the data that it gets."""
    seen = []

    def stop(td):
        seen.append(td)
        return td["observation"][..., 0] >= 3

    sizes = {}
    for name, env in {
        "alone": TransformedEnv(base(9), TerminateTransform(stop)),
        "inside": SerialEnv(2, lambda: TransformedEnv(base(9), TerminateTransform(stop))),
        "around one": TransformedEnv(SerialEnv(1, partial(base, 9)), TerminateTransform(stop)),
        "around two": TransformedEnv(SerialEnv(2, partial(base, 9)), TerminateTransform(stop)),
    }.items():
        seen.clear()
        td = env.reset()
        for _ in range(3):
            _, td = env.step_and_maybe_reset(env.rand_action(td))
        sizes[name] = seen[0].batch_size
        each = seen[:: len(seen) // 3]
        assert [int(one["observation"].flatten()[0]) for one in each] == [1, 2, 3]
    assert sizes == {"alone": (), "inside": (), "around one": (1,), "around two": (2,)}


def test_agents_are_terminated_with_the_root():
    env = TransformedEnv(MultiAgentCountingEnv(9), TerminateTransform(lambda td: True))
    following = env.step(env.rand_action(env.reset()))["next"]

    assert following["done"].all()
    assert following["agents", "terminated"].all()


@EACH_BASE
@pytest.mark.parametrize("use", [lambda env: env.rollout(1), lambda env: env.step(env.rand_action(env.reset()))])
def test_a_condition_of_another_shape_is_refused(use, base):
    env = TransformedEnv(base(4), TerminateTransform(lambda td: torch.ones(3, 2, dtype=torch.bool)))

    with pytest.raises(SpecError, match=r"broadcasts to \(1,\) from the front; found one of shape \(3, 2\)"):
        use(env)


# -- gSDENoise -------------------------------------------------------------------------------------------------------


def test_noise_is_drawn_once_an_episode_for_each_row():
    both = []
    for env in places(ArrayCountingEnv, lambda: gSDENoise(3, 2)):
        check_env_specs(env)
        env.set_seed(2)
        td, seen = env.reset(), []
        for _ in range(9):
            seen.append(td["_eps_gSDE"])
            _, td = env.step_and_maybe_reset(env.rand_action(td))
        both.append(torch.stack(seen, 1))
    inside, around = both

    assert inside.shape == (2, 9, 2, 3)
    assert torch.equal(inside, around)
    assert [len(row.flatten(1).unique(dim=0)) for row in inside] == [3, 2]


def test_noise_of_unknown_size_is_left_to_the_module():
    assert TransformedEnv(CountingEnv(4), gSDENoise()).reset()["_eps_gSDE"].tolist() == [0]


# -- BurnInTransform -------------------------------------------------------------------------------------------------


class Sums(nn.Module):
    """A transform that keeps the sum of its inputs."""

    def forward(self, seen, memory):
        total = memory[:, :1] + seen.cumsum(1)
        return total, total


def test_a_memory_is_what_the_module_makes_of_the_first_steps():
    module = TensorDictModule(Sums(), in_keys=["seen", "memory"], out_keys=["out", ("next", "memory")])
    transform = BurnInTransform(module, 2)
    data = TensorDict({"seen": torch.ones(3, 5, 1), "memory": torch.full((3, 5, 1), 10.0)}, [3, 5])
    rest = transform(data)

    assert rest.shape == (3, 3)
    assert rest["memory"][0].flatten().tolist() == [12, 10, 10]
    assert transform.out_keys == ["memory"]
    assert BurnInTransform(module, 0)(data) is data
    assert (data["memory"] == 10).all()


def test_a_memory_that_was_not_stored_is_zero_after_burn_in():
    """Only the first step after the burn-in has a memory that was computed."""
    module = TensorDictModule(lambda seen: seen.cumsum(1), in_keys=["seen"], out_keys=[("next", "memory")])
    rest = BurnInTransform([module], 1, ["memory"])(TensorDict({"seen": torch.ones(1, 3, 1)}, [1, 3]))

    assert rest["memory"].flatten().tolist() == [1, 0]


def test_burning_in_is_for_stored_data():
    module = TensorDictModule(nn.Linear(1, 1), in_keys=["observation"], out_keys=[("next", "memory")])
    with pytest.raises(NotSupported, match="stored data only"):
        TransformedEnv(CountingEnv(3), BurnInTransform(module, 2)).reset()
    with pytest.raises(SpecError, match="with more steps, found 2"):
        BurnInTransform(module, 2)(TensorDict({"observation": torch.zeros(1, 2, 1)}, [1, 2]))


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: FrameSkipTransform(0), "frame_skip must be a whole number >= 1, found 0"),
        (lambda: NoopResetEnv(-1), "noops must be a whole number >= 0, found -1"),
        (lambda: RandomTruncationTransform(5, 4), "found 5 and 4"),
        (lambda: RandomTruncationTransform(1, 4, 1.5), "prob must be from 0 to 1, found 1.5"),
        (lambda: TerminateTransform(True), "stop must be a function of a TensorDict, found bool"),
        (lambda: gSDENoise(0, 2), "state_dim must be a whole number >= 1 or None, found 0"),
        (lambda: BurnInTransform(nn.Linear(1, 1), 2), "found Linear. Wrap it"),
        (lambda: BurnInTransform([], -1), "burn_in must be a whole number >= 0"),
    ],
)
def test_bad_arguments_are_refused(make, says):
    with pytest.raises(SpecError, match=says):
        make()


@pytest.mark.parametrize("transform", [FrameSkipTransform(2), NoopResetEnv(2)])
def test_transforms_that_step_need_an_environment(transform):
    with pytest.raises(NotSupported, match="Append it"):
        transform(TensorDict({}, []))
    with pytest.raises(StateError, match="belongs to none"):
        transform._step(TensorDict({}, []), TensorDict({}, [])) if hasattr(transform, "frame_skip") else (
            transform._reset(None, TensorDict({}, []))
        )
