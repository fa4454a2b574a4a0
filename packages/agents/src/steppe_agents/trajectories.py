"""Trajectories: the result of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, tensorclass
from tensordict import cat as cat_tds

from steppe.collectors import scatter
from steppe_agents.agent_view import AgentView

__all__ = ["Trajectories"]


@tensorclass
class Trajectories:
    """The rows ``[*R]`` of a request, each a sequence of steps.

    >>> from steppe import Collector
    >>> with Collector("gym:CartPole-v1", seed=0) as collector:
    ...     result = collector.execute(n_episodes=3).result()
    >>> result.length.shape, result.episode_return().shape
    (torch.Size([3]), torch.Size([3]))

    Attributes:
        steps: ``[*R, T]`` the data of a rollout, with zeros after the end of each row.
        length: ``[*R]`` int64, the number of steps of the row.
        alive: ``[*R]`` bool, True if the row ended with the slice and can continue in the next one.
        row: ``[*R]`` int64, the index in the request; in a slice, the number of the lane.
        lane: ``[*R]`` int64, the number of the environment that ran the row.
        episode: ``[*R]`` int64, the number of the first episode of the row, in the order in which episodes began.
        policy_version: ``[*R]`` int64, the number of policy updates before the row.
        agent_info: ``[*R]`` the info of the agent, or None.
        env_info: ``[*R]`` the info of the environment, or None.
        agent_state: ``[*R]`` the agent's state at the first step, or None.
    """

    steps: TensorDict
    length: torch.Tensor
    alive: torch.Tensor
    row: torch.Tensor
    lane: torch.Tensor
    episode: torch.Tensor
    policy_version: torch.Tensor
    agent_info: TensorDict | None = None
    env_info: TensorDict | None = None
    agent_state: TensorDict | None = None

    def mask(self) -> torch.Tensor:
        """Return ``[*R, T]`` bool, False for padding."""
        time = torch.arange(self.steps.batch_size[-1], device=self.length.device)
        return time < self.length.unsqueeze(-1)

    def at(self, step: int | Sequence[int] | torch.Tensor) -> TensorDict:
        """Return the data of one step of each row, ``[*R]``.

        Args:
            step: an int, or ``[*R]`` ints, one for each row. Negative ones count from the end of the row.
        """
        step = torch.as_tensor(step, device=self.length.device).expand(self.length.shape)
        step = torch.where(step < 0, step + self.length, step)
        if bool(((step < 0) | (step >= self.length)).any()):
            raise IndexError(f"Rows have {self.length.tolist()} steps, found step={step.tolist()}.")
        flat = self.steps.reshape(-1, self.steps.batch_size[-1])
        rows = torch.arange(len(flat), device=step.device)
        return flat[rows, step.reshape(-1)].reshape(self.length.shape)

    def last(self) -> TensorDict:
        """Return the last step of each row, ``[*R]``."""
        return self.at(-1)

    def shorten(self) -> Trajectories:
        """Return the rows without trailing steps that are padding in every row."""
        return self.pad_to(int(self.length.max()))

    def pad_to(self, steps: int) -> Trajectories:
        """Return the rows with ``steps`` steps, with zeros after the end of each row.

        Raises:
            ValueError: a row has more steps.
        """
        longest, now = int(self.length.max()), self.steps.batch_size[-1]
        if steps < longest:
            raise ValueError(f"A row has {longest} steps, more than {steps}.")
        if steps <= now:
            padded = self.steps[..., :steps]
        else:
            missing = self.steps.new_zeros(torch.Size((*self.steps.batch_size[:-1], steps - now)))
            padded = cat_tds([self.steps, missing], -1)
        other: Any = self.copy()  # type: ignore[attr-defined]
        other.steps = _timed(padded)
        return other  # type: ignore[no-any-return]

    def episode_return(self, gamma: float = 1.0) -> torch.Tensor:
        """Return the sum of the rewards of each row, ``[*R]``, over all its agents.

        Args:
            gamma: the discount factor.
        """
        reward = self.steps.get(("next", "reward"))
        reward = reward.reshape(*self.steps.batch_size, -1).sum(-1)
        time = torch.arange(self.steps.batch_size[-1], device=reward.device)
        return torch.where(self.mask(), reward, 0).mul(gamma**time).sum(-1)

    def as_steps(self, *, info: bool = True, state: bool = False) -> TensorDict:
        """Return data ``[*R, T]`` for losses and buffers.

        It has the metadata that collectors add to frames.

        Args:
            info: include ``agent_info`` and ``env_info``, expanded over time without a copy.
            state: include the agent's first state, expanded in the same way.
        """
        steps = self.steps.copy()
        shape = steps.batch_size

        def over_time(value: TensorDictBase) -> TensorDictBase:
            return value.unsqueeze(-1).expand(shape)

        for name in (*(("agent_info", "env_info") if info else ()), *(("agent_state",) if state else ())):
            value = getattr(self, name)
            if value is not None and name not in steps.keys():
                steps.set(name, over_time(value))
        # Rows of slices that go on after the end of an episode have the numbers of their episodes in the steps.
        mask, ids = self.mask(), self.episode.unsqueeze(-1).expand(shape)
        if "collector" in steps.keys():
            ids = torch.where(mask, steps.get(("collector", "traj_ids")), ids)
        metadata = {
            "mask": mask,
            "traj_ids": ids,
            "policy_version": self.policy_version.unsqueeze(-1).expand(shape),
        }
        steps.set("collector", TensorDict(metadata, batch_size=shape))
        return _timed(steps)  # type: ignore[no-any-return]

    def flat(self) -> TensorDict:
        """Return all steps without padding, ``[sum of lengths]``, row after row."""
        return self.as_steps().reshape(-1)[self.mask().reshape(-1)]

    @staticmethod
    def cat(several: Sequence[Trajectories]) -> Trajectories:
        """Concatenate rows, padded to the longest. The rows of a single argument are not copied."""
        longest = max(each.steps.batch_size[-1] for each in several)
        padded = [each.pad_to(longest) for each in several]
        joined: Any = padded[0] if len(padded) == 1 else torch.cat(padded, 0)  # type: ignore[arg-type]
        return joined  # type: ignore[no-any-return]

    def split(self, policy: Any = None) -> Trajectories:
        """Split rows that span several episodes into one row for each episode.

        Slices with ``auto_reset`` have such rows.

        A row is split before each step whose ``is_init`` is True. The first part of a row may be the end of an episode,
        and only the last part can be alive. ``episode`` is the number of each part's episode.

        Args:
            policy: an agent whose ``initial_state`` computes the state at the first step of a new episode. It is needed
                if ``store_agent_state="all"`` did not store these states; without it, ``agent_state`` is then None.

        Returns:
            ``[parts]``, sorted by row and time.
        """
        whole: Any = self.reshape(-1)  # type: ignore[attr-defined]
        mask = whole.mask()
        n, steps = mask.shape
        begins = whole.steps.get("is_init").reshape(n, steps).clone()
        later_only = begins.clone()
        begins[:, 0] = True
        later_only[:, 0] = False
        begins, later_only = begins & mask, later_only & mask
        kept = mask.reshape(-1).nonzero().squeeze(-1)
        starts = begins.reshape(-1)[kept]
        number = starts.cumsum(0) - 1
        first = starts.nonzero().squeeze(-1)
        length = torch.diff(first, append=first.new_tensor([len(kept)]))
        pieces, longest = len(first), int(length.max())
        flat = whole.steps.reshape(-1)[kept]
        place = torch.arange(len(kept), device=kept.device) - first[number]
        row = kept[first] // steps
        later = later_only.reshape(-1)[kept][first]
        last = torch.ones_like(later)
        last[:-1] = row[1:] != row[:-1]
        episode = whole.episode[row].clone()
        if "collector" in flat.keys():
            episode[later] = flat.get(("collector", "traj_ids"))[first][later]
        of_rows = {
            name: None if (value := getattr(whole, name)) is None else value[row] for name in ("agent_info", "env_info")
        }
        beginnings = flat[first]
        return Trajectories(  # type: ignore[call-arg]  # tensorclass adds batch_size
            steps=_timed(scatter(flat, number * longest + place, pieces, longest)),
            length=length,
            alive=whole.alive[row] & last & ~_ended(flat[first + length - 1]),
            row=whole.row[row],
            lane=whole.lane[row],
            episode=episode,
            policy_version=whole.policy_version[row],
            **of_rows,
            agent_state=_states(whole, beginnings, row, later, of_rows, policy),
            batch_size=[pieces],
        )


def _states(
    whole: Any, beginnings: TensorDictBase, row: torch.Tensor, later: torch.Tensor, infos: dict[str, Any], policy: Any
) -> Any:
    """Return the agent's state at the first step of each part, or None."""
    if "agent_state" in beginnings.keys():
        return beginnings.get("agent_state")
    if whole.agent_state is None or (bool(later.any()) and policy is None):
        return None
    state = whole.agent_state[row].clone()
    if bool(later.any()):
        roots = beginnings.exclude("next")
        roots.update({name: value for name, value in infos.items() if value is not None})
        with torch.no_grad():
            fresh = AgentView(policy).initial_state(roots[later])
        for key in state.keys(True, True):
            state.get(key)[later] = fresh.get(key)
    return state


def _ended(steps: TensorDictBase) -> torch.Tensor:
    """Return whether an episode ended in each of some steps ``[k]``."""
    following = steps.get("next")
    if following.get("done", None) is not None:
        return following.get("done").reshape(len(steps), -1).any(-1)  # type: ignore[no-any-return]
    groups = [value for key, value in following.items(True, True) if isinstance(key, tuple) and key[-1] == "done"]
    return torch.cat([value.reshape(len(steps), -1) for value in groups], -1).any(-1)


def _timed(steps: Any) -> Any:
    steps.names = [None] * (steps.batch_dims - 1) + ["time"]
    return steps
