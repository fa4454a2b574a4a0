"""Transforms, batches and collectors over environments of several agents, with done entries at two levels."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("pettingzoo")

from steppe import ParallelEnv, RewardSum, SerialEnv, StepCounter, SyncDataCollector, TransformedEnv
from steppe.registry import env_factory

pytestmark = [pytest.mark.library, pytest.mark.filterwarnings("ignore")]

CYCLES, STEPS = 5, 12
CASES = {
    "two groups": ("pettingzoo:mpe2/simple_tag_v3", {"max_cycles": CYCLES}),
    "one group": ("pettingzoo:mpe2/simple_spread_v3", {"max_cycles": CYCLES}),
    "unequal agents": (
        "pettingzoo:mpe2/simple_speaker_listener_v4",
        {"max_cycles": CYCLES, "group_map": {"all": ["speaker_0", "listener_0"]}},
    ),
}
named = pytest.mark.parametrize("case", CASES)


def transformed(env):
    return TransformedEnv(env).append_transform(RewardSum()).append_transform(StepCounter())


def check(data, groups, time):
    """Assert that sums and counts restart after each end, at both levels."""
    following = data["next"]
    ends = following["done"].squeeze(-1)
    assert ends.movedim(time, 0)[CYCLES - 1].all()
    assert ends.sum(time).max() == STEPS // CYCLES
    for group in groups:
        inner = following[group]
        rewards, sums = (inner.get(key).movedim(time, 0) for key in ("reward", "episode_reward"))
        torch.testing.assert_close(sums[:CYCLES], rewards[:CYCLES].cumsum(0))
        torch.testing.assert_close(sums[CYCLES : 2 * CYCLES], rewards[CYCLES : 2 * CYCLES].cumsum(0))
        agents_done = inner.get("done").movedim(time, 0)
        assert torch.equal(agents_done.all(-2), following["done"].movedim(time, 0))
        assert not data[group].get("done").any()
        counts = inner.get("step_count").movedim(time, 0).flatten(1)
        assert counts[:, 0].tolist() == [t % CYCLES + 1 for t in range(STEPS)]
    assert not data["done"].any()


@named
def test_an_environment_with_transforms(case):
    id, kwargs = CASES[case]
    base = env_factory(id, **kwargs)()
    env = transformed(base)
    env.set_seed(0)

    check(env.rollout(STEPS, break_when_any_done=False), base.group_map, 0)


@named
@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_a_batch_with_transforms_behind_it(case, kind):
    id, kwargs = CASES[case]
    env = transformed(kind(2, env_factory(id, **kwargs)))
    env.set_seed(0)

    check(env.rollout(STEPS, break_when_any_done=False), env_factory(id, **kwargs)().group_map, 1)
    env.close()


@named
def test_a_collector_over_processes_gives_the_data_of_a_rollout(case):
    id, kwargs = CASES[case]
    collector = SyncDataCollector(
        transformed(ParallelEnv(2, env_factory(id, **kwargs))), None, frames_per_batch=2 * STEPS, total_frames=2 * STEPS
    )
    try:
        (data,) = list(collector)
    finally:
        collector.shutdown()

    check(data, env_factory(id, **kwargs)().group_map, 1)


def test_turns_in_two_processes():
    env = transformed(ParallelEnv(2, env_factory("pettingzoo:classic/tictactoe_v3")))
    env.set_seed(0)

    data = env.rollout(20, break_when_any_done=False)

    assert data["next", "done"].sum() >= 4
    assert not data["done"].any()
    # Each step is the action of one player: the one that has the turn.
    assert (data["player_1", "mask"].int() + data["player_2", "mask"].int() == 1).all()
    env.close()
