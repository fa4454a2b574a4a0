"""The batchers of rlstructures, with the two examples of its documents."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from steppe import Batcher, EpisodeBatcher, MonoThreadEpisodeBatcher, SerialEnv, StepCounter, TransformedEnv
from steppe.errors import SpecError
from tests.core.collectors.counters_and_walks import MyEnv, UniformAgent


def create_env(max_episode_steps: int = 100) -> Any:
    return SerialEnv(4, lambda: TransformedEnv(MyEnv(), StepCounter(max_episode_steps)))


def create_agent(n_actions: int) -> UniformAgent:
    return UniformAgent(n_actions)


MAKERS: dict[str, Any] = {
    "create_agent": create_agent,
    "agent_args": {"n_actions": 2},
    "create_env": create_env,
    "env_args": {"max_episode_steps": 100},
}


def ids(name: str, n: int) -> TensorDict:
    return TensorDict({name: torch.arange(n)}, [n])


def test_episode_batcher_runs_32_agents_in_32_environments() -> None:
    with EpisodeBatcher(n_timesteps=100, n_slots=128, n_threads=4, seeds=[1, 2, 3, 4], **MAKERS) as batcher:
        batcher.execute(n_episodes=32, agent_info=ids("agent_id", 32), env_info=ids("env_id", 32))
        found = batcher.get(blocking=True)
        assert found is not None
        assert found.batch_size == (32,)
        assert found.agent_info["agent_id"].tolist() == list(range(32))
        assert found.steps["env_id"][:, 0].flatten().tolist() == list(range(32))
        assert ((found.length >= 1) & (found.length <= 100)).all()
        assert found.last()["next", "done"].all()
        assert len(set(found.steps["identifier"][:, 0].flatten().tolist())) == 32
        batcher.reexecute()
        again = batcher.get()
        assert again is not None
        assert again.env_info["env_id"].tolist() == list(range(32))
        assert again.steps["identifier"][0, 0] != found.steps["identifier"][0, 0]


def test_the_batcher_gives_the_next_steps_until_all_have_stopped() -> None:
    with Batcher(n_timesteps=3, n_slots=16, n_threads=4, seeds=[1, 2, 3, 4], **MAKERS) as batcher:
        batcher.reset(agent_info=ids("agent_id", 16), env_info=ids("env_id", 16))
        batcher.execute()
        found = batcher.get()
        rows = []
        while found is not None:
            rows.append(len(found))
            assert (found.length <= 3).all()
            batcher.execute()
            found = batcher.get(blocking=True)
        assert rows[0] == 16
        assert rows == sorted(rows, reverse=True)
        assert batcher.n_still_running == 0


def test_one_process_returns_an_episode_of_each_environment() -> None:
    with MonoThreadEpisodeBatcher(**MAKERS) as batcher:
        batcher.execute()
        found = batcher.get()
        assert found is not None
        assert found.batch_size == (4,)
        assert found.last()["next", "done"].all()
        batcher.execute(agent_info=ids("agent_id", 3), env_info=ids("env_id", 3))
        again = batcher.get()
        assert again is not None
        assert again.steps["agent_id"][:, 0].tolist() == [0, 1, 2]


class Listening(UniformAgent):
    """An agent that writes the last argument of ``update``."""

    told = 0

    def update(self, info: int) -> None:
        self.told = info

    def forward(self, tensordict: Any) -> Any:
        tensordict.set("told", torch.full(tensordict.batch_size, self.told))
        return super().forward(tensordict)


def test_an_update_of_agents_passes_their_infos() -> None:
    makers = {**MAKERS, "create_agent": Listening}
    with (
        MonoThreadEpisodeBatcher(**makers) as here,
        EpisodeBatcher(n_timesteps=100, n_slots=16, n_threads=2, **makers) as there,
    ):
        for batcher in (here, there):
            batcher.update(7)
            batcher.execute(**({} if batcher is here else {"n_episodes": 8}))
            found = batcher.get()
            assert found is not None
            assert found.steps["told"][:, 0].eq(7).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"n_slots": 3}, "less than the 8 environments"),
        ({"seeds": [1]}, "seeds has 1 numbers for n_threads=2"),
        ({"n_timesteps": 0}, "n_timesteps must be a whole number"),
    ],
)
def test_numbers_that_would_have_waited_for_ever_are_refused(arguments: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        EpisodeBatcher(**{"n_timesteps": 100, "n_slots": 16, "n_threads": 2, **MAKERS, **arguments})
