"""AgentSteps: steps of an agent in the batches of a collector.

An agent takes infos or keeps a recurrent state.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.collectors import AgentDeclarations
from steppe.envs import DoneGroup, EnvBase, rows_ended, with_written
from steppe.errors import InfoError
from steppe.specs import CPU
from steppe_agents.agent_infos import default_infos
from steppe_agents.agent_state import AgentState
from steppe_agents.agent_view import AgentView
from steppe_agents.history import History
from steppe_agents.protected_entries import ProtectedEntries

__all__ = ["AgentSteps"]


class AgentSteps:
    """Call an agent in batches with the same entries as in requests.

    These are ``("agent_info", ...)``, the agent's default in all rows; ``("agent_state", ...)``, which continues from
    step to step and is initialized at the first step of an episode; and ``"is_init"``. The agent is called with rows
    ``[k]``, for any batch size of the environment.

    >>> import torch
    >>> from steppe import Agent, AgentSteps, Composite, SerialEnv, Unbounded
    >>> class Constant(Agent):
    ...     agent_info_spec = Composite(force=Unbounded((1,)))
    ...     agent_info_default = {"force": torch.ones(1)}
    ...     in_keys, out_keys = [("agent_info", "force")], ["action"]
    ...     def forward(self, td):
    ...         return td.set("action", td["agent_info", "force"])
    >>> env = SerialEnv(2, "gym:Pendulum-v1")
    >>> steps = AgentSteps(env, Constant(), env.done_groups, keeps_states=False)
    >>> root = steps.begin(env.reset())
    >>> root["agent_info", "force"].flatten(), root["is_init"].flatten()
    (tensor([1., 1.]), tensor([True, True]))

    Args:
        env: one environment, or a batch.
        policy: the agent.
        groups: the levels of the data that have done entries, the root first.
        keeps_states: write the state before and after each step into the batch.
    """

    def __init__(self, env: EnvBase, policy: object, groups: list[DoneGroup], *, keeps_states: bool) -> None:
        self._env, self._policy, self._groups = env, policy, groups
        self._checked = False
        self._declarations, self._state = AgentDeclarations.of(policy), AgentState(policy)
        self._has_state = bool(self._state.keys)
        self._stores_state = keeps_states and self._has_state
        self._adds_init = "is_init" not in env.observation_keys
        steps = AgentView(policy).history
        self._history = History(env, steps) if steps else None
        self._agent_keys = ["agent_info", "agent_state", "history", *(["is_init"] if self._adds_init else [])]
        self._is_flat = env.batch_dims == 1
        self._infos: TensorDict | None = None
        self._infos_known = False

    @property
    def infos(self) -> TensorDict | None:
        """The ``agent_info`` of all rows ``[*B]``; None if the agent takes none.

        Raises:
            InfoError: the agent takes an info and has no default.
        """
        if not self._infos_known:
            try:
                infos = default_infos(self._declarations, "Iterating")
            except InfoError as error:
                raise InfoError(
                    f"{error} Add a default, or request rows: execute(agent_info=..., n_episodes= or n_steps=)."
                ) from None
            if infos is not None:
                infos = infos.reshape(-1)[:1].expand(self._env.numel()).clone().reshape(self._env.batch_size)
            self._infos, self._infos_known = infos, True
        return self._infos

    def begin(self, root: TensorDictBase) -> TensorDictBase:
        """Return a root with the entries that the agent reads.

        Args:
            root: data ``[*B]`` after a reset of all rows.
        """
        begins = torch.ones(self._env.batch_size, dtype=torch.bool, device=CPU)
        return self._add_entries(root.copy(), begins, None)

    def _add_entries(self, root: TensorDictBase, begins: torch.Tensor, state: TensorDictBase | None) -> TensorDictBase:
        """Write infos, ``is_init`` and the state into a root.

        Rows that begin get an initial state.
        """
        if self.infos is not None:
            root.set("agent_info", self.infos)
        if self._adds_init:
            root.set("is_init", begins.unsqueeze(-1))
        if self._has_state and bool(begins.any()):
            rows = root.exclude("agent_state").reshape(-1)
            flags = begins.reshape(-1)
            if bool(flags.all()):
                self._state.begin(rows)
                state = rows.get("agent_state").reshape(root.batch_size)
            else:
                assert state is not None
                beginning = rows[flags]
                self._state.begin(beginning)
                state = state.clone().reshape(-1)
                state[flags] = beginning.get("agent_state")
                state = state.reshape(root.batch_size)
        if state is not None:
            root.set("agent_state", state)
        if self._history is not None:
            self._history.begin(begins.reshape(-1).nonzero().squeeze(-1))
            steps = self._history.of(range(begins.numel()))
            root.set("history", steps.reshape(*root.batch_size, steps.batch_size[-1]))
        return root

    def step(
        self, act: Callable[[TensorDictBase], TensorDictBase], root: TensorDictBase, random: bool
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Call the agent and step the environment.

        Args:
            act: the agent, or random actions.
            root: the result of ``begin``, or the next root that the last step returned.
            random: whether ``act`` takes random actions, which keep the agent's state unchanged.

        Returns:
            The data of the step, and the root of the next step.
        """
        state = before = root.get("agent_state", None)
        init = root.get("is_init")
        protected = None if random or self._checked else ProtectedEntries(root, of_env=False)
        acted = act(root) if random or self._is_flat else self._on_rows(act, root)
        root = with_written(root, acted)
        if protected is not None:
            protected.check(self._policy, root)
            self._checked = True
        if self._has_state and not random:
            state = self._state.next_state(root)
        frame, following = self._env.step_and_maybe_reset(self._without_agent_entries(root))
        ended = rows_ended(frame.get("next"), self._groups)
        if self._history is not None:
            self._history.add(frame.reshape(-1), range(frame.numel()))
        if self._has_state and self._adds_init:
            frame.set("is_init", init)
        if self._stores_state:
            frame.set("agent_state", before)
            # The agent's state after the step. If the episode ended, the next root has an initial state instead.
            frame.set(("next", "agent_state"), state)
        return frame, self._add_entries(following.copy(), ended, state)

    @staticmethod
    def _on_rows(act: Callable[[TensorDictBase], TensorDictBase], root: TensorDictBase) -> TensorDictBase:
        acted = act(root.reshape(-1))
        return acted.reshape(root.batch_size) if isinstance(acted, TensorDictBase) else acted

    def _without_agent_entries(self, root: TensorDictBase) -> TensorDictBase:
        """Return the data of a step without the entries that only the agent reads."""
        td = root.exclude(*self._agent_keys, ("next", "agent_state"))
        following = td.get("next", None)
        return td.exclude("next") if following is not None and following.is_empty() else td
