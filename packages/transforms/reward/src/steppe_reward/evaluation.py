"""``evaluate``: the returns of a policy over some episodes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from steppe.collectors import Collector
from steppe.envs import EnvBase, ExplorationType
from steppe.errors import ArgumentError, StateError
from steppe.registry import make_env
from steppe.specs import CPU

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Evaluation", "evaluate"]

#: Steps that each environment takes between two looks at the ended episodes.
_STEPS = 64
#: Steps of each environment without any end, after which its episodes count as endless.
_ENDLESS = 100_000


@dataclass(frozen=True)
class Evaluation:
    """The result of :func:`evaluate`.

    >>> from steppe import evaluate
    >>> result = evaluate(None, "gym:CartPole-v1", 4, seed=0)
    >>> result.mean == result.returns.mean().item(), len(result.lengths)
    (True, 4)

    Attributes:
        returns: ``[n]`` float32, the sum of the rewards of each episode, over all agents.
        lengths: ``[n]`` int64, the number of steps of each episode.
    """

    returns: torch.Tensor
    lengths: torch.Tensor

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """The standard deviation of the returns, divided by n as numpy does."""
        return float(self.returns.std(unbiased=False))

    def __str__(self) -> str:
        return f"{self.mean:.1f} +- {self.std:.1f} over {len(self.returns)} episodes"


def evaluate(
    policy: Any,
    env: EnvBase | str | Callable[[], EnvBase],
    n_episodes: int = 10,
    *,
    seed: int | None = None,
    exploration_type: ExplorationType = ExplorationType.DETERMINISTIC,
) -> Evaluation:
    """Run whole episodes, and return their returns and lengths.

    Exploration is off, and modules are in evaluation mode meanwhile. Each environment of a batch runs the same number
    of episodes (one more or less), so that short episodes are not counted more often than long ones. Steps are dropped
    as soon as they are counted: memory does not grow with the length of the episodes.

    >>> import torch
    >>> from steppe import CategoricalActor, evaluate
    >>> actor = CategoricalActor(torch.nn.Linear(4, 2))
    >>> evaluate(actor, "gym:CartPole-v1", 5, seed=0).returns.shape
    torch.Size([5])

    Args:
        policy: chooses the actions, as for a collector. None: random actions.
        env: an environment or a batch, which stays open and begins new episodes; or an id or a function, whose
            environment is closed at the end. Do not pass the environment that a collector steps.
        n_episodes: number of episodes, >= 1.
        seed: seed of the environments, the random actions and the policy. None: do not seed.
        exploration_type: ``ExplorationType.RANDOM`` samples actions as in training.

    Returns:
        An :class:`Evaluation`, in the order of the environments of the batch.

    Raises:
        ArgumentError: ``n_episodes`` is not a whole number >= 1.
        StateError: no episode ends within 100,000 steps.
    """
    if isinstance(n_episodes, bool) or not isinstance(n_episodes, int) or n_episodes < 1:
        raise ArgumentError(f"evaluate: n_episodes must be a whole number >= 1, found {n_episodes!r}.")
    owned = not isinstance(env, EnvBase)
    batch: Any = env if isinstance(env, EnvBase) else make_env(env) if isinstance(env, str) else env()
    rows = batch.batch_size.numel()
    wanted = [n_episodes // rows + (row < n_episodes % rows) for row in range(rows)]
    collector = Collector(
        batch,
        policy,
        frames_per_batch=rows * _STEPS,
        total_frames=-1,
        exploration_type=exploration_type,
        seed=seed,
    )
    try:
        with _evaluating(policy):
            episodes = _run(collector, batch, wanted)
    finally:
        collector.shutdown(close_env=owned)
    returns, lengths = zip(*episodes, strict=True)
    return Evaluation(torch.tensor(returns, device=CPU), torch.tensor(lengths, device=CPU))


def _run(collector: Any, env: Any, wanted: list[int]) -> list[tuple[float, int]]:
    """Return the return and the length of the first episodes of each row, as many as wanted."""
    totals, lengths = [0.0] * len(wanted), [0] * len(wanted)
    episodes: list[list[tuple[float, int]]] = [[] for _ in wanted]
    for frames in collector:
        size = (len(wanted), _STEPS)
        rewards = [frames.get(("next", *((key,) if isinstance(key, str) else key))) for key in env.reward_keys]
        reward = torch.stack([each.reshape(*size, -1).sum(-1, dtype=torch.float64) for each in rewards]).sum(0)
        done = frames.get(("next", "done")).reshape(*size, -1).any(-1)
        for row, (ends, gains) in enumerate(zip(done, reward.cumsum(-1), strict=True)):
            begin, counted = 0, 0.0
            for end in ends.nonzero().flatten().tolist():
                episodes[row].append((totals[row] + float(gains[end]) - counted, lengths[row] + end + 1 - begin))
                totals[row], lengths[row], begin, counted = 0.0, 0, end + 1, float(gains[end])
            totals[row] += float(gains[-1]) - counted
            lengths[row] += _STEPS - begin
        if all(len(ended) >= n for ended, n in zip(episodes, wanted, strict=True)):
            break
        if max(lengths) > _ENDLESS:
            raise StateError(
                f"evaluate: an episode of {type(env).__name__} has not ended after {_ENDLESS} steps. Add a time limit: "
                "TransformedEnv(env, StepCounter(max_steps=1000))."
            )
    return [each for ended, n in zip(episodes, wanted, strict=True) for each in ended[:n]]


@contextmanager
def _evaluating(policy: Any) -> Iterator[None]:
    """Put the modules of a policy into evaluation mode, and back."""
    modes = [(each, each.training) for each in policy.modules()] if isinstance(policy, nn.Module) else []
    for module, _ in modes:
        module.training = False
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
