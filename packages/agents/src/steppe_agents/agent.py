"""Agent: base class of policies with an info or a recurrent state for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase

from steppe.errors import PolicyError
from steppe.specs import Composite, Spec

__all__ = ["Agent", "FunctionalAgent"]


class Agent(TensorDictModuleBase):
    """Base class of policies with an info and a recurrent state for each row.

    Requests and batches call it. Policies without an info or a recurrent state do not need this class. Any class with
    the same attributes can be used instead.

    ``forward`` is called with the data of the active rows ``[k]``: observations, ``("agent_info", ...)``,
    ``("agent_state", ...)`` and ``"is_init"``. It writes the action, any other entries to store, and the next state at
    ``("next", "agent_state", ...)``.

    >>> import torch
    >>> from steppe import Agent, Collector, Composite, SerialEnv, Unbounded
    >>> class Recurrent(Agent):
    ...     agent_state_spec = Composite(hidden=Unbounded((8,)))
    ...     in_keys, out_keys = ["observation", ("agent_state", "hidden")], ["action"]
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.cell, self.head = torch.nn.GRUCell(4, 8), torch.nn.Linear(8, 2)
    ...     def forward(self, td):
    ...         hidden = self.cell(td["observation"], td["agent_state", "hidden"])
    ...         td["action"] = torch.nn.functional.one_hot(self.head(hidden).argmax(-1), 2)
    ...         td["next", "agent_state", "hidden"] = hidden
    ...         return td
    >>> with Collector(SerialEnv(2, "gym:CartPole-v1"), Recurrent(), frames_per_batch=20) as collector:
    ...     next(collector)["action"].shape
    torch.Size([2, 10, 2])

    Attributes:
        agent_info_spec: the info of one row, which a request passes.
        agent_info_default: the info in batches, and in requests without ``agent_info``; None if requests must pass it.
        agent_state_spec: the recurrent state of one row.
        history: the number of previous steps of its episode that the agent reads, H; None for none. The data then has
            ``("history", ...)`` ``[k, H]``: observations, actions and the entries under ``"next"`` of the last H steps,
            the last one at the end. ``("history", "mask")`` is False where the episode has fewer steps. Lanes of such
            agents are stepped on TensorDicts, which takes longer.
    """

    agent_info_spec: Composite = Composite({})
    agent_info_default: TensorDictBase | dict[str, object] | None = None
    agent_state_spec: Composite = Composite({})
    history: int | None = None
    in_keys: ClassVar[list[Any]] = []
    out_keys: ClassVar[list[Any]] = ["action"]

    def initial_state(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the state of rows at the first step of an episode.

        Args:
            tensordict: the first observations of the rows ``[k]``, with ``agent_info`` and ``env_info``.

        Returns:
            Data of ``agent_state_spec`` ``[k]``: zeros, unless a subclass overrides this method.
        """
        zeros: TensorDictBase = self.agent_state_spec.expand(
            *tensordict.batch_size, *self.agent_state_spec.shape
        ).zero()
        return zeros

    def replay(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Compute the entries that :func:`~steppe_agents.replay` returns, for recorded steps ``[k]``.

        The recorded entries of the step are there, with infos and state. The default calls ``forward``. Override this
        method to score the recorded action, or to compute values for a loss. It must write the next state too.
        """
        out: TensorDictBase = self(tensordict)
        return out

    def seed(self, seed: int) -> None:
        """Seed the generators that the agent owns. The collector has seeded torch's global generator before.

        Args:
            seed: a number from ``policy_seeds=`` of a collector.
        """

    @staticmethod
    def from_module(module: Callable[[TensorDictBase], TensorDictBase], state: Mapping[str, Spec]) -> Agent:
        """Return an agent that keeps the recurrent state of a module on TensorDicts.

        Args:
            module: reads entries of its state at the root and writes them below ``"next"``, as recurrent modules of
                TorchRL do. It may read ``"is_init"``.
            state: the spec of each of these entries, for one row. They begin with zeros.
        """
        return _ModuleAgent(module, state)


class FunctionalAgent(Agent):
    """An agent made of two functions, with the signature of rlstructures.

    Args:
        step_fn: ``step_fn(state, observation, agent_info)`` returns ``(outputs, new_state)`` for rows ``[k]``. All of
            them are TensorDicts, or dicts of tensors. ``outputs`` has the action and any other entries to store. The
            triplet ``(old_state, outputs, new_state)`` of rlstructures 0.1 is accepted too. With ``history=`` the
            function gets the history as a fourth argument.
        init_fn: ``init_fn(agent_info, n)`` returns the state of n rows that begin an episode; None for zeros.
        agent_info_spec, agent_info_default, agent_state_spec, history: see :class:`Agent`.

    Examples:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from steppe import Composite, FunctionalAgent, Unbounded
        >>> def step(state, observation, agent_info):
        ...     n = len(observation)
        ...     return {"action": torch.ones(n, dtype=torch.int64)}, {"steps": state["steps"] + 1}
        >>> spec = Composite(steps=Unbounded((), dtype=torch.int64))
        >>> agent = FunctionalAgent(step, agent_state_spec=spec)
        >>> td = TensorDict({"observation": torch.zeros(2, 4), "agent_state": {"steps": torch.tensor([3, 5])}}, [2])
        >>> agent(td)["next", "agent_state", "steps"].tolist()
        [4, 6]
    """

    def __init__(
        self,
        step_fn: Callable[..., Any],
        init_fn: Callable[[TensorDictBase, int], Any] | None = None,
        *,
        agent_info_spec: Composite | None = None,
        agent_info_default: TensorDictBase | dict[str, object] | None = None,
        agent_state_spec: Composite | None = None,
        history: int | None = None,
    ) -> None:
        super().__init__()
        self.history = history
        self._step_fn, self._init_fn = step_fn, init_fn
        for name, function in (("step", step_fn), ("init", init_fn)):
            if isinstance(function, torch.nn.Module):
                self.add_module(name, function)  # registered, so that its parameters are moved and updated
        self.agent_info_spec = Composite({}) if agent_info_spec is None else agent_info_spec
        self.agent_info_default = agent_info_default
        self.agent_state_spec = Composite({}) if agent_state_spec is None else agent_state_spec

    def initial_state(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the state of rows ``[k]`` that begin an episode."""
        if self._init_fn is None:
            return super().initial_state(tensordict)
        return _as_td(self._init_fn(_part(tensordict, "agent_info"), len(tensordict)), len(tensordict))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Call the function with rows ``[k]``."""
        observation = tensordict.exclude("agent_state", "agent_info", "next", "history")
        arguments = [_part(tensordict, "agent_state"), observation, _part(tensordict, "agent_info")]
        if self.history:
            arguments.append(_part(tensordict, "history"))
        returned = self._step_fn(*arguments)
        if not isinstance(returned, tuple) or len(returned) not in (2, 3):
            raise PolicyError(f"step_fn must return (outputs, new_state), found {type(returned).__name__}.")
        outputs, state = returned[-2:]
        for key, value in _as_td(outputs, len(tensordict)).items():
            tensordict.set(key, value)
        for key, value in _as_td(state, len(tensordict)).items(True, True):
            tensordict.set(("next", "agent_state", *((key,) if isinstance(key, str) else key)), value)
        return tensordict


class _ModuleAgent(Agent):
    """The agent of :meth:`Agent.from_module`."""

    def __init__(self, module: Callable[[TensorDictBase], TensorDictBase], state: Mapping[str, Spec]) -> None:
        super().__init__()
        self.module = module
        self.agent_state_spec = Composite(dict(state))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Call the module with the state at the root."""
        inputs = tensordict.exclude("agent_state", "next")
        for key in self.agent_state_spec.keys():
            inputs.set(key, tensordict.get(("agent_state", key)))
        before = dict(inputs.items(True, True))
        out = self.module(inputs)
        for key, value in out.items(True, True):
            path: tuple[str, ...] = (key,) if isinstance(key, str) else key
            if len(path) > 1 and path[0] == "next" and path[1] in self.agent_state_spec.keys():
                tensordict.set(("next", "agent_state", *path[1:]), value)
            elif path[0] not in self.agent_state_spec.keys() and before.get(key) is not value:
                tensordict.set(key, value)
        return tensordict


def _part(tensordict: TensorDictBase, name: str) -> TensorDictBase:
    """Return a group of entries, empty if there is none."""
    part: TensorDictBase | None = tensordict.get(name, None)
    return TensorDict(batch_size=tensordict.batch_size) if part is None else part


def _as_td(values: Any, n: int) -> TensorDictBase:
    if isinstance(values, TensorDictBase):
        return values
    return TensorDict({} if values is None else dict(values), batch_size=[n])
