"""Steps of an agent that is told something of each row, or remembers something of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.collectors.agent_facts import AgentFacts
from steppe.collectors.trajectories import row_ends
from steppe.envs import DoneGroup, EnvBase
from steppe.errors import InfoError, PolicyError
from steppe.specs import CPU

__all__ = ["AgentSteps"]


class AgentSteps:
    """Gives an agent in batches what it is given in requests, beside the data of the environment.

    That is ``("agent_info", ...)``, its own default in all rows; ``("agent_state", ...)``, which goes on from step to
    step and begins anew with each episode; and ``"is_init"``.

    Args:
        env: one environment, or a batch.
        facts: what the agent declares.
        groups: the levels of the data that have done entries, the root first.
        keeps_states: write the state before and after each step into the batch.
    """

    def __init__(self, env: EnvBase, facts: AgentFacts, groups: list[DoneGroup], *, keeps_states: bool) -> None:
        self._env, self._facts, self._groups = env, facts, groups
        self._remembers, self._keeps = bool(facts.state_keys), keeps_states and bool(facts.state_keys)
        self._own_init = "is_init" not in env.observation_keys
        self._hidden = ["agent_info", "agent_state", *(["is_init"] if self._own_init else [])]
        self._infos: TensorDict | None = None
        self._told = False

    @property
    def infos(self) -> TensorDict | None:
        """What the agent is told of each row, ``[*B]``; None for nothing.

        Raises:
            InfoError: it has to be told something, and has no default.
        """
        if not self._told:
            try:
                infos = self._facts.default_of("Iterating")
            except InfoError as error:
                raise InfoError(
                    f"{error} Give it one, or ask for rows: execute(agent_info=..., n_episodes= or n_steps=)."
                ) from None
            if infos is not None:
                infos = infos.reshape(-1)[:1].expand(self._env.numel()).clone().reshape(self._env.batch_size)
            self._infos, self._told = infos, True
        return self._infos

    def begin(self, root: TensorDictBase, rows: torch.Tensor | None = None) -> TensorDictBase:
        """Add to a root what the agent reads.

        Args:
            root: data ``[*B]`` after a reset.
            rows: which rows begin an episode, ``[*B]`` bool; the others go on. None for all.
        """
        root = root.copy()
        began = torch.ones(self._env.batch_size, dtype=torch.bool, device=CPU) if rows is None else rows
        return self._with(root, began, root.get("agent_state", None))

    def _with(self, root: TensorDictBase, began: torch.Tensor, state: TensorDictBase | None) -> TensorDictBase:
        if self.infos is not None:
            root.set("agent_info", self.infos)
        if self._own_init:
            root.set("is_init", began.unsqueeze(-1))
        if self._remembers and bool(began.any()):
            rows = root.exclude("agent_state").reshape(-1)
            flags = began.reshape(-1)
            if bool(flags.all()):
                self._facts.begin(rows)
                state = rows.get("agent_state").reshape(root.batch_size)
            else:
                assert state is not None
                some = rows[flags]
                self._facts.begin(some)
                state = state.clone().reshape(-1)
                state[flags] = some.get("agent_state")
                state = state.reshape(root.batch_size)
        if state is not None:
            root.set("agent_state", state)
        return root

    def step(
        self, act: Callable[[TensorDictBase], TensorDictBase], root: TensorDictBase, random: bool
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Let the agent and the environment act once.

        Args:
            act: the agent, or random actions.
            root: from ``begin``, or from the step before.
            random: the agent does not act; what it remembers stays as it is.

        Returns:
            The data of the step, and the root of the next.
        """
        state = before = root.get("agent_state", None)
        init = root.get("is_init")
        acted = act(root)
        if acted is not root:
            if not isinstance(acted, TensorDictBase):
                raise PolicyError(f"The policy must return a TensorDict, found {type(acted).__name__}.")
            root.update(acted)
        if self._remembers and not random:
            state = self._facts.next_state(root)
        frame, following = self._env.step_and_maybe_reset(self._bare(root))
        ended = row_ends(frame.get("next"), self._groups)
        return self._kept(frame, init, before, state), self._with(following.copy(), ended, state)

    def _kept(self, frame: TensorDictBase, init: Any, before: Any, state: Any) -> TensorDictBase:
        """Add to the data of a step what a batch holds of the agent's own."""
        if self._remembers and self._own_init:
            frame.set("is_init", init)
        if self._keeps:
            frame.set("agent_state", before)
            # What the step has led to, before a row that ended begins anew.
            frame.set(("next", "agent_state"), state)
        return frame

    def _bare(self, root: TensorDictBase) -> TensorDictBase:
        """What the environment is given: the data of the step without the agent's own."""
        td = root.exclude(*self._hidden, ("next", "agent_state"))
        below: Any = td.get("next", None)
        return td.exclude("next") if below is not None and below.is_empty() else td
