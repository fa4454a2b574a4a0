"""The table of episodes that ``steppe collect`` prints at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensordict import TensorDictBase

from steppe.cli import print_pairs
from steppe.registry import EnvId, current

if TYPE_CHECKING:
    import torch


def print_report(id: str, data: TensorDictBase, *, seconds: float, out: str) -> None:
    """Print the environment with its package and library, frames, speed, and the episodes that ended.

    Args:
        id: the environment's id.
        data: the collected data ``[n, rows]``, with the entries of a `StepCounter`, and of a `RewardSum` if installed.
        seconds: how long it took.
        out: where the data is.
    """
    env_id = EnvId.parse(id)
    record, library = current().find(env_id), current().library(env_id.namespace)
    after = data["next"]
    # An entry of the root is preferred to entries of groups.
    keys = sorted(after.keys(True, True), key=lambda key: isinstance(key, str))
    by_name = {key if isinstance(key, str) else key[-1]: key for key in keys}

    def values(name: str) -> torch.Tensor:
        return after.get(by_name[name]).reshape(*data.shape, -1)  # type: ignore[no-any-return]

    ended = values("done").any(-1)
    returns = "pip install 'steppe[reward]' to see them"
    if "episode_reward" in by_name:  # the returns of several agents are averaged
        returns = _summary(values("episode_reward")[ended].double().mean(-1), ".2f")
    print_pairs(
        {
            "environment": id,
            "plugin": f"{record.dist} {record.version}",
            **({"library": f"{library.dist} {library.version}"} if library else {}),
            "frames": str(data.numel()),
            "frames per second": f"{data.numel() / seconds:.0f}",
            "episodes": str(int(ended.sum())),
            "return (mean, min, max)": returns,
            "length (mean, min, max)": _summary(values("step_count")[ended].double().amax(-1), ".0f", mean=".1f"),
            "written to": out,
        }
    )


def _summary(values: torch.Tensor, form: str, *, mean: str | None = None) -> str:
    if not len(values):
        return "no episode ended"
    return f"{values.mean():{mean or form}}, {values.min():{form}}, {values.max():{form}}"
