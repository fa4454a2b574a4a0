"""replay: run a policy again on recorded trajectories, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential

from steppe.envs import with_written
from steppe.errors import SpecError
from steppe_agents.agent_state import AgentState
from steppe_agents.agent_view import AgentView
from steppe_agents.history import history_of_record
from steppe_agents.trajectories import Trajectories

__all__ = ["replay"]

#: Entries of recorded steps that a policy reads from the request or the engine, or that the environment wrote later.
_HIDDEN = ("next", "agent_state", "agent_info", "env_info", "collector", "is_init", "history")


def replay(
    policy: Any,
    trajectories: Trajectories,
    *,
    keys: Sequence[NestedKey] | None = None,
    state: Literal["stored", "recompute"] = "stored",
    bootstrap: bool = False,
) -> TensorDict:
    """Run a policy again on the steps of trajectories, in the caller's grad mode.

    The policy is called once for each time step, with the rows that have not ended. Its recurrent state is carried from
    step to step, and begins anew where an episode begins inside a row. The history of an agent begins with the row: a
    slice does not hold the steps before it. ``trajectories`` is not changed.

    * An :class:`~steppe.Agent` is called through its method ``replay``, which may compute other entries than in
      collection.
    * A probabilistic policy of tensordict is not sampled: the result has the parameters of the distribution, and
      ``"log_prob"`` and ``"entropy"`` of the recorded action.
    * Any other policy is called as in collection, without the entries that it wrote there.

    Args:
        policy: the policy.
        trajectories: the rows ``[*R]`` of a request, of ``steps`` ``[*R, T]``.
        keys: the entries of the result; None for all that the policy writes.
        state: ``"stored"`` begins with the states that were recorded, without gradients; ``"recompute"`` calls
            ``initial_state``, so that a learned initial state gets gradients.
        bootstrap: add each entry at ``("next", key)``: the value of the following step, and at the end of each episode
            and row the result for the last observation.

    Returns:
        ``[*R, T]``, with zeros after the end of each row.

    Raises:
        KeyError: the policy keeps a state, and none was stored; or the policy does not write one of ``keys``.
        SpecError: ``state`` is something else.

    Examples:
        >>> import torch
        >>> from tensordict.nn import TensorDictModule
        >>> from steppe import Collector, SerialEnv
        >>> from steppe_agents import replay
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Tanh())
        >>> policy = TensorDictModule(net, ["observation"], ["action"])
        >>> with Collector(SerialEnv(2, "gym:Pendulum-v1"), policy, max_steps=5) as collector:
        ...     found = collector.execute(n_episodes=2).result()
        >>> again = replay(policy, found)
        >>> again.batch_size, bool(torch.allclose(again["action"], found.steps["action"]))
        (torch.Size([2, 5]), True)
    """
    if state not in ("stored", "recompute"):
        raise SpecError(f"replay: state must be 'stored' or 'recompute', found {state!r}.")
    rows: Any = trajectories.reshape(-1)  # type: ignore[attr-defined]
    replayed = _Replay(policy, rows, keys, recompute=state == "recompute").run(bootstrap)
    shape = trajectories.steps.batch_size
    result: TensorDict = replayed.reshape(shape)
    result.names = [None] * (len(shape) - 1) + ["time"]
    return result


class _Replay:
    """One call of :func:`replay`, on rows ``[R]``."""

    def __init__(self, policy: Any, rows: Any, keys: Sequence[NestedKey] | None, *, recompute: bool) -> None:
        self._policy, self._keys, self._recompute = policy, keys, recompute
        self._agent, self._state = AgentView(policy), AgentState(policy)
        # Longest first, so that the rows which run are always the first ones.
        self._order = torch.argsort(rows.length, descending=True, stable=True)
        self._rows = rows[self._order]
        self._lengths: list[int] = self._rows.length.tolist()
        self._n, self._steps = rows.steps.batch_size
        # For each step, the index of the first step of its episode in the row.
        time = torch.arange(self._steps, device=rows.length.device).expand(self._n, self._steps)
        has_init = "is_init" in rows.steps.keys()
        begins = self._rows.steps.get("is_init").reshape(self._n, self._steps) if has_init else torch.zeros_like(time)
        self._starts = (time * begins).cummax(-1).values
        if self._state.keys and not recompute and rows.agent_state is None:
            raise KeyError(
                f"{type(policy).__name__} keeps the state {self._state.keys}, and the trajectories have none: collect "
                "with store_agent_state='first' or 'all', or call replay(..., state='recompute')."
            )

    def run(self, bootstrap: bool) -> TensorDict:
        outputs: list[TensorDictBase] = []
        states: list[TensorDictBase | None] = []
        state: TensorDictBase | None = None
        for t in range(max(self._lengths, default=0)):
            active = sum(length > t for length in self._lengths)
            td = self._root(t, active)
            state = self._state_at(t, active, td, state)
            output, state = self._called(td, self._rows.steps[:active, t], state)
            outputs.append(output)
            states.append(state)
        result = self._padded(outputs)
        if bootstrap:
            self._add_next(result, states)
        return result

    def _root(self, t: int, active: int) -> TensorDictBase:
        """Return the root of step ``t`` of the first rows, as the policy saw it."""
        steps = self._rows.steps[:active, t]
        td: TensorDictBase = steps.exclude(*_HIDDEN)
        if "is_init" in steps.keys():
            td.set("is_init", steps.get("is_init"))
        rows = torch.arange(active, device=self._starts.device)
        return self._with_infos(td, rows, torch.full_like(rows, t))

    def _with_infos(
        self, td: TensorDictBase, at: torch.Tensor, steps: torch.Tensor, *, is_last: bool = False
    ) -> TensorDictBase:
        """Add the infos, and the history of an agent that reads it.

        Args:
            td: roots ``[k]``.
            at: their rows.
            steps: their steps; the last steps, which the history then includes, if ``is_last``.
            is_last: the roots are the last observations of episodes or rows.
        """
        n = self._agent.history
        if n:
            starts = self._starts[at, steps]
            td.set("history", history_of_record(self._rows.steps, at, steps + int(is_last), starts, n))
        for name in ("agent_info", "env_info"):
            info = getattr(self._rows, name)
            if info is not None:
                td.set(name, info[at])
        return td

    def _state_at(self, t: int, active: int, td: TensorDictBase, state: TensorDictBase | None) -> TensorDictBase | None:
        """Return the state before step ``t``, of the first rows."""
        if not self._state.keys:
            return None
        if t == 0:
            if not self._recompute:
                stored: TensorDictBase = self._rows.agent_state[:active].select(*self._state.keys)
                return stored
            return self._fresh(td)
        assert state is not None
        state = state[:active]
        begins = td.get("is_init", None)
        if begins is None or not bool(begins.any()):
            return state
        flags = begins.reshape(active)
        recorded = self._rows.steps.get("agent_state", None)
        if self._recompute:
            fresh = self._fresh(td)
        else:  # without gradients, whether these states were stored or not
            fresh = self._fresh(td).detach() if recorded is None else recorded[:active, t]
        return _chosen(flags, fresh, state, self._state.keys)

    def _fresh(self, td: TensorDictBase) -> TensorDictBase:
        td = td.copy()
        self._state.begin(td)
        state: TensorDictBase = td.get("agent_state")
        return state

    def _called(
        self, td: TensorDictBase, recorded: TensorDictBase | None, state: TensorDictBase | None
    ) -> tuple[TensorDictBase, TensorDictBase | None]:
        """Call the policy; return the entries that it writes, and its next state.

        Args:
            td: roots.
            recorded: the recorded steps; None for a bootstrap, of which no action was recorded.
            state: the state before the step.
        """
        if state is not None:
            td.set("agent_state", state)
        before = dict(td.items(True, True))
        policy = self._policy
        if isinstance(policy, (ProbabilisticTensorDictSequential, ProbabilisticTensorDictModule)):
            out = _scored(policy, td, recorded)
        elif self._agent.replay is not None:
            out = with_written(td, self._agent.replay(td))
        else:
            out = with_written(td, policy(td))
        following = self._state.next_state(out)
        written = TensorDict(batch_size=td.batch_size)
        for key, value in out.items(True, True):
            first = key[0] if isinstance(key, tuple) else key
            if first not in _HIDDEN and (before.get(key) is not value or self._was_written(key)):
                written.set(key, value)
        return written, following

    def _was_written(self, key: NestedKey) -> bool:
        return self._keys is not None and key in self._keys

    def _padded(self, outputs: list[TensorDictBase]) -> TensorDict:
        """Join the outputs of all steps, with zeros after the end of each row, in the order of the request."""
        result = TensorDict(batch_size=[self._n, self._steps])
        available = sorted(outputs[0].keys(True, True), key=str) if outputs else []
        inverse = torch.argsort(self._order)
        for key in available if self._keys is None else self._keys:
            if key not in available and outputs:
                raise KeyError(f"The policy does not write {key!r} in a replay, but {available}.")
            columns = []
            for output in outputs:
                value = output.get(key)
                missing = self._n - len(value)
                columns.append(torch.cat([value, value.new_zeros(missing, *value.shape[1:])]) if missing else value)
            columns += [torch.zeros_like(columns[0])] * (self._steps - len(columns))
            result.set(key, torch.stack(columns, 1)[inverse])
        return result

    def _add_next(self, result: TensorDict, states: list[TensorDictBase | None]) -> None:
        """Add the values of the following steps."""
        rows, n, steps = self._rows, self._n, self._steps
        mask = rows.mask()
        begins = rows.steps.get("is_init").reshape(n, steps) if "is_init" in rows.steps.keys() else None
        ends = mask.clone()
        ends[:, :-1] &= ~mask[:, 1:]
        if begins is not None:
            ends[:, :-1] |= mask[:, 1:] & begins[:, 1:]
        at = ends.nonzero()
        td = rows.steps.get("next")[at[:, 0], at[:, 1]].exclude(
            "agent_state", "reward", "done", "terminated", "truncated"
        )
        if begins is not None:
            td.set("is_init", torch.zeros(len(at), 1, dtype=torch.bool, device=at.device))
        td = self._with_infos(td, at[:, 0], at[:, 1], is_last=True)
        state = None
        if self._state.keys:
            parts = [(row, states[t]) for row, t in at.tolist()]
            state = TensorDict(batch_size=[len(at)])
            for key in self._state.keys:
                state.set(key, torch.stack([each.get(key)[row] for row, each in parts if each is not None]))
        values, _ = self._called(td, None, state)
        where = self._order[at[:, 0]], at[:, 1]
        for key in list(result.keys(True, True)):
            if values.get(key, None) is None:
                continue  # entries such as "log_prob" need a recorded action
            own = result.get(key)
            shifted = torch.cat([own[:, 1:], torch.zeros_like(own[:, :1])], 1)
            following = shifted.index_put(where, values.get(key))
            path = key if isinstance(key, tuple) else (key,)
            result.set(("next", *path), following)


def _scored(policy: Any, td: TensorDictBase, recorded: TensorDictBase | None) -> TensorDictBase:
    """Return the parameters of the distribution, and the log-probability and entropy of the recorded action."""
    out = td.copy()
    dist = policy.get_dist(out)
    module: Any = policy[-1] if isinstance(policy, ProbabilisticTensorDictSequential) else policy
    if recorded is not None:
        out.set("log_prob", dist.log_prob(recorded.get(module.dist_sample_keys[0])))
    try:
        out.set("entropy", dist.entropy())
    except NotImplementedError:
        pass
    return out


def _chosen(flags: torch.Tensor, fresh: TensorDictBase, state: TensorDictBase, keys: list[Any]) -> TensorDictBase:
    """Return ``fresh`` in the rows with a flag, and ``state`` in the others."""
    chosen = TensorDict(batch_size=state.batch_size)
    for key in keys:
        value = state.get(key)
        mask = flags.reshape(-1, *(1 for _ in value.shape[1:]))
        chosen.set(key, torch.where(mask, fresh.get(key), value))
    return chosen
