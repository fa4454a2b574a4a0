"""Batches whose specs differ: data travels in messages."""

from __future__ import annotations

import torch

from steppe import SerialEnv
from steppe_testing import (
    DynamicSpecEnv,
    HeterogeneousCountingEnv,
    TextCountingEnv,
)


class TestRowsThatDiffer:
    """Rows with different shapes or entries."""

    def test_a_growing_observation_is_reset_row_by_row(self):
        """Each row of a growing observation is reset by its own mask."""
        env = SerialEnv(2, [lambda: DynamicSpecEnv(5)] * 2)
        td = env.reset()
        for _ in range(3):
            td = env.step_mdp(env.rand_step(td))

        td["_reset"] = torch.tensor([[True], [False]])
        td = env.reset(td)

        assert [row["observation"].shape for row in td.unbind(0)] == [(3, 1, 2), (3, 4, 2)]

    def test_a_reset_returns_entries_of_single_agents(self):
        env = SerialEnv(2, [HeterogeneousCountingEnv] * 2)

        agents = env.reset().unbind(0)[1]["agents"].unbind(0)

        assert [name for agent in agents for name in sorted(agent.keys())] == [
            *("observation", "own_0"),
            *("observation", "own_1"),
            *("observation", "own_2"),
        ]

    def test_roots_have_the_same_entries_with_and_without_resets(self):
        env = SerialEnv(2, [lambda: TextCountingEnv(2)] * 2)
        td = env.reset()

        roots = []
        for _ in range(3):
            _, td = env.step_and_maybe_reset(env.rand_action(td))
            roots.append(set(td.keys()))

        assert roots[0] == roots[1] == roots[2]
        assert "action" in roots[0]
