"""PettingZooWrapper: an environment object of PettingZoo."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

from steppe.envs import GroupMap, LibraryWrapper, MarlGroupMapType, group_agents, system_seed
from steppe.errors import NotSupported, SpecError, StateError
from steppe.registry import AvailableEnvs
from steppe.specs import Binary, Categorical, Composite, OneHot, Spec, Unbounded
from steppe.storage import build_td
from steppe_gym import SpaceReader, space_to_spec

from .agent import Agent
from .group import AgentGroup
from .names import available_names
from .turns import AllAtOnce, OneByOne, Outcome

__all__ = ["PettingZooWrapper"]

_FLAGS = ("done", "terminated", "truncated")


class PettingZooWrapper(LibraryWrapper):
    """An environment of PettingZoo, parallel or turn-based (AEC), as a steppe environment.

    Agents are in groups, and the data of a group of m agents is stacked:

    =============================  ================================================================================
    Key                            What
    =============================  ================================================================================
    ``(group, "observation")``     ``[m, ...]`` in the dtype of the space; the entries of a Dict below it
    ``(group, "action")``          ``[m]`` numbers for discrete actions, ``[m, n]`` one-hot rows with
                                   ``categorical_actions=False``, ``[m, k]`` for a Box
    ``(group, "action_mask")``     ``[m, n]`` bool, where the library says which actions there are; True for agents
                                   that do not act
    ``(group, "mask")``            ``[m]`` bool, with ``use_mask``: who acts next
    ``(group, "info", name)``      numbers of the infos, as the first reset has them
    ``(group, "reward")``          ``[m, 1]`` float32
    ``(group, "done")``            ``[m, 1]`` bool, with ``"terminated"`` and ``"truncated"``: of each agent
    ``"done"``                     ``[1]`` bool, with ``"terminated"`` and ``"truncated"``: of the episode
    ``"state"``                    what the library calls its state, with ``return_state``
    =============================  ================================================================================

    Agents of a group whose observations differ are stacked lazily (``StackedComposite``).

    In a parallel environment all agents that are alive act at each step. In a turn-based one each step is the action of
    one agent, whose ``"mask"`` is True; what is written for the others is not looked at. What an agent that has ended
    observes is zero, its reward is 0, and its done entries stay as they were when it ended.

    Random actions (``rand_action``, ``rollout`` without a policy) keep to the masks in the data, or to those of the
    last step where there is none, in a batch (``ParallelEnv``) too.

    Args:
        env: the environment.
        return_state: add the library's state to the data.
        group_map: ``{group: [agents]}``, a :class:`~steppe.MarlGroupMapType`, or None: turn-based agents have a group
            each, agents of a parallel environment that are called ``"<name>_<number>"`` are grouped by name.
        use_mask: add ``"mask"``; None adds it to turn-based environments, which need it. So do parallel ones in which
            agents end before the episode does.
        categorical_actions: discrete actions as numbers, not one-hot rows.
        seed: of the first reset.
        done_on_any: the episode ends with the first agent that does, or with the last; None: with the first in a
            parallel environment, with the last in a turn-based one.
        device: where data comes out and goes in. The library computes on the CPU whatever is said here.
        **kwargs: for :class:`steppe.EnvBase`.

    Attributes:
        group_map: ``{group: [agents]}``.
        parallel: whether all agents act at once.
        possible_agents: names of all agents.

    Raises:
        SpecError: ``group_map`` does not fit the agents.
        NotSupported: ``use_mask=False`` for a turn-based environment, or a space that has no layout as tensors.
    """

    git_url = "https://github.com/Farama-Foundation/PettingZoo"
    libname = "pettingzoo"
    available_envs = AvailableEnvs(available_names)
    """The names of the library's environments; empty where it is missing."""

    def __init__(
        self,
        env: Any,
        *,
        return_state: bool = False,
        group_map: GroupMap = None,
        use_mask: bool | None = None,
        categorical_actions: bool = True,
        seed: int | None = None,
        done_on_any: bool | None = None,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        from pettingzoo import AECEnv, ParallelEnv

        if not isinstance(env, AECEnv | ParallelEnv):
            raise TypeError(
                f"PettingZooWrapper wraps an AECEnv or a ParallelEnv of PettingZoo, not {env!r}. "
                "PettingZooEnv('butterfly/pistonball_v6') makes one by its name."
            )
        parallel = isinstance(env, ParallelEnv)
        if use_mask is False and not parallel:
            raise NotSupported(
                "Agents that act one after the other need the mask that says whose turn it is: leave "
                "use_mask=False out."
            )
        if kwargs.get("batch_size"):
            raise NotSupported("An environment of PettingZoo is no batch: ParallelEnv(n, 'pettingzoo:...') makes one.")
        super().__init__(device=device, **{"allow_done_after_reset": True, **kwargs})
        self.wrap_library(env)
        state = self.__dict__
        state["parallel"] = parallel
        state["return_state"] = return_state
        state["use_mask"] = (not parallel) if use_mask is None else use_mask
        state["categorical_actions"] = categorical_actions
        state["done_on_any"] = parallel if done_on_any is None else done_on_any
        state["possible_agents"] = list(env.possible_agents)
        state["_turns"] = AllAtOnce(env) if parallel else OneByOne(env)
        state["_pending_seed"] = None
        state["_ended"] = {}
        state["group_map"] = self._groups_of(group_map)
        self._make_specs()
        if seed is not None:
            self.set_seed(seed)

    def _groups_of(self, group_map: GroupMap) -> dict[str, list[str]]:
        names = self.possible_agents
        if group_map is not None:
            return group_agents(group_map, names)
        if not self.parallel:
            return MarlGroupMapType.ONE_GROUP_PER_AGENT.get_group_map(names)
        groups: dict[str, list[str]] = {}
        for name in names:
            group, _, number = name.rpartition("_")
            groups.setdefault(group if group and number.isdecimal() else name, []).append(name)
        return groups

    # -- specs ----------------------------------------------------------------------------------------------------

    def _make_specs(self) -> None:
        env, device = self._env, self.device
        infos = self._turns.reset(None, None).infos
        state = self.__dict__
        state["groups"] = [
            AgentGroup(
                group,
                [
                    Agent(
                        name,
                        env.observation_space(name),
                        env.action_space(name),
                        infos.get(name, {}),
                        categorical=self.categorical_actions,
                        use_mask=self.use_mask,
                        device=device,
                    )
                    for name in names
                ],
                device,
            )
            for group, names in self.group_map.items()
        ]
        state["_place"] = {
            agent.name: (group, i, agent) for group in self.groups for i, agent in enumerate(group.agents)
        }
        observation: dict[str, Spec] = {group.name: group.observation_spec for group in self.groups}
        if self.return_state:
            if "state" in observation:
                raise SpecError("A group is called 'state', which return_state=True is the key of: rename the group.")
            observation["state"] = self._state_spec()
        flag = Binary(shape=(1,), dtype=torch.bool, device=device)
        done: dict[str, Spec] = {name: flag.clone() for name in _FLAGS}
        self.observation_spec = Composite(observation, device=device)
        self.action_spec = Composite({group.name: group.action_spec for group in self.groups}, device=device)
        self.reward_spec = Composite({group.name: group.reward_spec for group in self.groups}, device=device)
        self.done_spec = Composite({**done, **{group.name: group.done_spec for group in self.groups}}, device=device)
        state["_last_masks"] = {}

    def _state_spec(self) -> Spec:
        space = getattr(self._env, "state_space", None)
        if space is not None:
            spec = space_to_spec(space, device=self.device)
            self.__dict__["_state_reader"] = SpaceReader(space, spec, key="state")
            return spec
        try:
            found = np.asarray(self._env.state())
        except (AttributeError, NotImplementedError):
            raise NotSupported(f"{self!r} has no state: leave return_state=True out.") from None
        self.__dict__["_state_reader"] = None
        return Unbounded(shape=found.shape, dtype=torch.from_numpy(found).dtype, device=self.device)

    # -- the contract ---------------------------------------------------------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        if not {"options"}.issuperset(kwargs):
            raise TypeError(
                f"reset does not take {sorted(kwargs)}; the library's reset knows 'options', and env.set_seed(seed) "
                "seeds it."
            )
        if tensordict is not None:
            for key in tensordict.keys(include_nested=True, leaves_only=True):
                last = key if isinstance(key, str) else key[-1]
                if last == "_reset" and not bool(tensordict.get(key).all()):
                    raise NotSupported(
                        f"PettingZoo cannot reset some agents alone, as the mask {key!r} asks for: reset the episode."
                    )
        seed, self.__dict__["_pending_seed"] = self._pending_seed, None
        outcome = self._turns.reset(seed, kwargs.get("options"))
        self.__dict__["_ended"] = {}
        return self._data(outcome, ())

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        before = list(self._env.agents)
        if not before:
            raise StateError("All agents have ended: call env.reset() before the next step.")
        rows: dict[str, list[Any]] = {}

        def action_of(name: str) -> Any:
            group, i, agent = self._place[name]
            if group.name not in rows:  # of groups in which nobody acts nothing is read
                rows[group.name] = group.actions(tensordict)
            return agent.native_action(rows[group.name][i])

        return self._data(self._turns.step(action_of), before)

    def _data(self, outcome: Outcome, before: Any) -> TensorDictBase:
        """Put what the library said into data; ``before`` are the agents that were alive, empty after a reset."""
        stepped = bool(before)
        alive = outcome.observations
        ended = self._ended
        for name, terminated in outcome.terminated.items():
            ended[name] = (bool(terminated), bool(outcome.truncated[name]))
        some_ended = any(terminated or truncated for terminated, truncated in ended.values())
        if not self.use_mask and len(alive) < len(self.possible_agents):
            gone = [name for name in self.possible_agents if name not in alive]
            raise StateError(
                f"The agents {gone} have ended before the episode: make the environment with use_mask=True, so that "
                "the data says who acts, or with done_on_any=True, so that the first end is that of the episode."
            )
        data: dict[str, Any] = {}
        acting = set(outcome.acting)
        self.__dict__["_last_masks"] = masks = {}
        for group in self.groups:
            rows, n = group.rows, len(group.agents)
            rows.clear()
            extra: dict[str, np.ndarray[Any, Any]] = {name: np.zeros((n, 1), bool) for name in _FLAGS}
            if stepped:
                extra["reward"] = _rewards([outcome.rewards.get(agent.name, 0.0) for agent in group.agents])
            for i, agent in enumerate(group.agents):
                name, out = agent.name, rows.of[i]
                acts = name in acting
                if name in alive:
                    agent.write(alive[name], outcome.infos.get(name) or {}, out, acts=acts)
                elif agent.has_action_mask:
                    out["action_mask"][...] = True
                if self.use_mask:
                    out["mask"][...] = acts
                if some_ended:
                    terminated, truncated = ended.get(name, (False, False))
                    extra["terminated"][i], extra["truncated"][i] = terminated, truncated
                    extra["done"][i] = terminated or truncated
                if agent.has_action_mask:
                    masks[name] = torch.from_numpy(out["action_mask"].copy())
            data[group.name] = rows.data(extra)
            if group.choice is not None:
                masks[group.name,] = data[group.name].get("action_mask")
        if self.return_state:
            data["state"] = self._moved(self._state())
        done, terminated, truncated = self._whole_episode() if some_ended else (False, False, False)
        for name, flag in zip(_FLAGS, (done, terminated, truncated), strict=True):
            data[name] = self._moved(torch.from_numpy(np.array([flag])))
        return build_td(data, self.batch_size, self.device)

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.device is None else tensor.to(self.device)

    def _whole_episode(self) -> tuple[bool, bool, bool]:
        """Done, terminated and truncated of the episode, from those of the agents."""
        flags = [self._ended.get(name, (False, False)) for name in self.possible_agents]
        if self.done_on_any:
            terminated, truncated = any(t for t, _ in flags), any(t for _, t in flags)
            return terminated or truncated, terminated, truncated
        done = all(t or u for t, u in flags)
        # Where some agents terminate and others are truncated, the episode was cut short.
        return done, done and all(t for t, _ in flags), done and any(u for _, u in flags)

    def _state(self) -> torch.Tensor:
        value = self._env.state()
        if self._state_reader is not None:
            read: torch.Tensor = next(iter(self._state_reader.read(value).values()))
            return read
        return torch.from_numpy(np.array(value))

    def _set_seed(self, seed: int | None) -> None:
        # Without a new seed the library would go on from the last one.
        self.__dict__["_pending_seed"] = system_seed() if seed is None else seed

    # -- random actions -------------------------------------------------------------------------------------------

    @property
    def chooses_random_actions(self) -> bool:
        """Whether the library says which actions there are; otherwise they are drawn in blocks."""
        overridden = type(self).rand_action is not PettingZooWrapper.rand_action or "rand_action" in vars(self)
        return overridden or any(agent.has_action_mask for _, _, agent in self._place.values())

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Write random actions; those of agents that have an action mask are among the ones that it allows.

        Args:
            tensordict: data to write into, whose masks count; a new one, with the masks of the last step, by default.
        """
        if tensordict is None:
            tensordict = TensorDict({}, batch_size=self.batch_size, device=self.device)
        drawn = {group.name: self._drawn_by_mask(group, tensordict.get(group.name, None)) for group in self.groups}
        if any(action is None for action in drawn.values()):
            tensordict = super().rand_action(tensordict)
        for group in self.groups:
            action, present = drawn[group.name], tensordict.get(group.name, None)
            if action is None:
                self._keep_to_masks(group, present)
            elif present is None:
                tensordict.set(group.name, TensorDict({"action": action}, [len(group.agents)]))
            else:
                present.set("action", action)
        return tensordict

    def _drawn_by_mask(self, group: AgentGroup, present: Any) -> torch.Tensor | None:
        """Actions of all agents of a group at once; None where only some have masks, or each its own."""
        if group.choice is None or isinstance(present, LazyStackedTensorDict):
            return None
        mask = None if present is None else present.get("action_mask", None)
        mask = self._last_masks.get((group.name,)) if mask is None else mask
        return None if mask is None else group.draw(mask, self.base_state.generator)

    def _keep_to_masks(self, group: AgentGroup, present: Any) -> None:
        """Draw again for those agents of a group that have masks, one by one."""
        for i, agent in enumerate(group.agents):
            last = self._last_masks.get(agent.name)
            if last is None:
                continue
            mask = present[i].get("action_mask", None)
            drawn = self._draw(agent, last if mask is None else mask.cpu())
            if isinstance(present, LazyStackedTensorDict):  # whose entries are put together when they are read
                present.tensordicts[i].set("action", drawn)
            else:
                present.get("action")[i] = drawn

    def _draw(self, agent: Agent, allowed: torch.Tensor) -> torch.Tensor:
        leaf = agent.action_spec["action"]
        kind = OneHot if isinstance(leaf, OneHot) else Categorical
        masked = kind(agent.n_actions, dtype=leaf.dtype, mask=allowed)
        return masked.rand(generator=self.action_generator())

    # -- the library's own ----------------------------------------------------------------------------------------

    @property
    def lib(self) -> Any:
        """The module ``pettingzoo``."""
        import pettingzoo

        return pettingzoo

    @property
    def agents(self) -> list[str]:
        """The agents that are alive."""
        return list(self._env.agents)

    def render(self) -> Any:
        """Render as the library does; make the environment with ``render_mode="rgb_array"`` for frames."""
        return self._env.render()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_state_reader"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.__dict__["_state_reader"] = None
        if self.return_state and getattr(self._env, "state_space", None) is not None:
            self._state_spec()  # what reads the state is functions, which have no pickle

    def __repr__(self) -> str:
        named = self.__dict__.get("task_name") or str(self.__dict__.get("_env"))
        return f"{type(self).__name__}({named}, groups={list(self.__dict__.get('group_map', ()))})"


def _rewards(values: list[Any]) -> np.ndarray[Any, Any]:
    """Rewards of the agents of a group, numbers or arrays of one, as ``[agents, 1]`` float32."""
    rewards = np.zeros((len(values), 1), np.float32)
    try:
        rewards[:, 0] = values  # a fifth of the time that one after the other takes
    except ValueError:  # some are arrays
        for i, value in enumerate(values):
            rewards[i] = value
    return rewards
