"""Report: the table and the plot of episodes that ``steppe collect`` prints at its end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from tensordict import TensorDictBase

from .output import print_pairs

if TYPE_CHECKING:
    from steppe import EnvBase

#: Episodes over which a curve is averaged.
_SMOOTH = 20


class Report:
    """Returns and lengths of the episodes that were collected.

    Args:
        env: a `TransformedEnv` with a `StepCounter` and a `RewardSum`.
    """

    def __init__(self, env: EnvBase) -> None:
        keys = list(env.observation_keys)
        self._return_key, self._length_key = (
            next(key for key in keys if (key if isinstance(key, str) else key[-1]) == name)
            for name in ("episode_reward", "step_count")
        )
        self._done_key = env.done_keys[0]
        self._returns: list[torch.Tensor] = []
        self._lengths: list[torch.Tensor] = []

    def add(self, batch: TensorDictBase) -> None:
        """Add the episodes that ended in a batch ``[n, t]``. The returns of several agents are averaged."""
        after = batch.get("next")
        done = _per_frame(after.get(self._done_key)).bool().any(-1)
        self._returns.append(_per_frame(after.get(self._return_key))[done].double().mean(-1))
        self._lengths.append(_per_frame(after.get(self._length_key))[done].double().amax(-1))

    def plot(self, file: Path, *, title: str) -> None:
        """Plot the return of each episode, in the order of their ends, and its running mean over 20 episodes."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        returns = torch.cat(self._returns)
        figure = Figure(figsize=(7, 4))
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.plot(range(1, len(returns) + 1), returns.tolist(), ".", markersize=3, alpha=0.5, label="one episode")
        if len(returns) >= _SMOOTH:
            means = returns.unfold(0, _SMOOTH, 1).mean(-1)
            axes.plot(range(_SMOOTH, len(returns) + 1), means.tolist(), label=f"mean of {_SMOOTH}")
        axes.set(title=title, xlabel="episode", ylabel="return")
        axes.legend()
        figure.savefig(file, dpi=120, bbox_inches="tight")

    def print(self, id: str, *, frames: int, seconds: float, out: Path) -> None:
        """Print the table: the environment with its package and library, frames, speed and episodes."""
        from ..registry import EnvId, current

        namespace = EnvId.parse(id).namespace
        record, library = current().find(EnvId.parse(id)), current().library(namespace)
        returns, lengths = (torch.cat(parts) for parts in (self._returns, self._lengths))
        print_pairs(
            {
                "environment": id,
                "plugin": f"{record.dist} {record.version}",
                **({"library": f"{library.dist} {library.version}"} if library else {}),
                "frames": str(frames),
                "frames per second": f"{frames / seconds:.0f}",
                "episodes": str(len(returns)),
                "return (mean, min, max)": _summary(returns, ".2f"),
                "length (mean, min, max)": _summary(lengths, ".0f", mean=".1f"),
                "written to": str(out),
            }
        )


def _per_frame(values: torch.Tensor) -> torch.Tensor:
    return values.flatten(2) if values.ndim > 2 else values.unsqueeze(-1)


def _summary(values: torch.Tensor, form: str, *, mean: str | None = None) -> str:
    if not len(values):
        return "no episode ended"
    return f"{values.mean():{mean or form}}, {values.min():{form}}, {values.max():{form}}"
