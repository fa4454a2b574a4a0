"""What `steppe collect` shows: a bar while it works, and a table at the end."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from tensordict import TensorDictBase

_WIDE = 200
#: Episodes that a curve is averaged over.
_SMOOTH = 20


class Progress:
    """A bar on a terminal, nothing elsewhere.

    Args:
        total: frames to come.
    """

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        told = TextColumn("{task.fields[told]}")
        columns = (TextColumn("collecting"), BarColumn(), MofNCompleteColumn(), told, TimeRemainingColumn())
        self._bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("frames", total=total, told="")
        self._frames, self._started = 0, time.perf_counter()

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, frames: int, last_return: float | None = None) -> None:
        """Count finished frames, and say what the episodes that ended last have brought."""
        self._frames += frames
        told = f"{self._frames / (time.perf_counter() - self._started):.0f} frames/s"
        if last_return is not None:
            told += f", return {last_return:.1f}"
        self._bar.update(self._task, advance=frames, told=told)


class Report:
    """Gathers the episodes of what was collected.

    Args:
        env: a `TransformedEnv` with a `StepCounter` and a `RewardSum`.
    """

    def __init__(self, env: Any) -> None:
        keys = list(env.observation_keys)
        self._return_key = _named(keys, "episode_reward")
        self._length_key = _named(keys, "step_count")
        self._done_key = env.done_keys[0]
        self._returns: list[torch.Tensor] = []
        self._lengths: list[torch.Tensor] = []

    def add(self, batch: TensorDictBase) -> None:
        """Take the episodes that ended in a batch ``[n, t]``. Agents' returns are averaged."""
        after = batch.get("next")
        done = _per_frame(after.get(self._done_key)).bool().any(-1)
        self._returns.append(_per_frame(after.get(self._return_key))[done].double().mean(-1))
        self._lengths.append(_per_frame(after.get(self._length_key))[done].double().amax(-1))

    @property
    def last_return(self) -> float | None:
        """The mean return of the episodes that ended in the last batch with some; None before there are any."""
        return next((float(part.mean()) for part in reversed(self._returns) if len(part)), None)

    def plot(self, file: Path, *, title: str) -> None:
        """Draw the return of each episode, in the order in which they ended, and its mean over 20 of them."""
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

    def print(self, versions: dict[str, str], *, frames: int, seconds: float, out: Path) -> None:
        """Print the table."""
        returns, lengths = (torch.cat(parts) for parts in (self._returns, self._lengths))
        rows = {
            **versions,
            "frames": str(frames),
            "frames per second": f"{frames / seconds:.0f}",
            "episodes": str(len(returns)),
            "return (mean, min, max)": _summary(returns, ".2f"),
            "length (mean, min, max)": _summary(lengths, ".0f", mean=".1f"),
            "written to": str(out),
        }
        from rich.console import Console
        from rich.table import Table

        table = Table(show_header=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in rows.items():
            table.add_row(name, value)
        # In a pipe there is no width to fit: whoever reads it wants whole words.
        Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False).print(table)


def versions(id: str) -> dict[str, str]:
    """The environment with the package and the library that make it."""
    from ..registry import EnvId, current

    env_id = EnvId.parse(id)
    record = current().find(env_id)
    library = current().library(env_id.namespace)
    told = {"environment": id, "plugin": f"{record.dist} {record.version}"}
    return {**told, "library": f"{library.dist} {library.version}"} if library else told


def _named(keys: list[Any], name: str) -> Any:
    return next(key for key in keys if (key if isinstance(key, str) else key[-1]) == name)


def _per_frame(values: torch.Tensor) -> torch.Tensor:
    return values.flatten(2) if values.ndim > 2 else values.unsqueeze(-1)


def _summary(values: torch.Tensor, form: str, *, mean: str | None = None) -> str:
    if not len(values):
        return "no episode ended"
    return f"{values.mean():{mean or form}}, {values.min():{form}}, {values.max():{form}}"
