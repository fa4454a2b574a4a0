"""The trained policies of the gallery: the commands that trained them, and how they act.

    steppe record gym:HalfCheetah-v5 --policy tools.gallery_policies:halfcheetah --out halfcheetah.gif
    python tools/gallery_policies.py [NAME ...]

The first line, in the root of the repository, records one of ``POLICIES``. The second prints the commands that train
them. Each writes the weights to ``docs/gallery/policies/NAME.pt``.
"""

from __future__ import annotations

import functools
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tensordict import TensorDictBase

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/gallery/policies"


class Trained(NamedTuple):
    """A policy of an environment, trained by a program of docs/examples.

    The weights are the last that the program writes, or those it writes after ``until`` frames. A picture shows each
    ``every``-th step.
    """

    env: str
    program: str
    seed: int = 0
    every: int = 1
    until: int | None = None

    def command(self, name: str) -> str:
        """Return the command that trains it."""
        file = (FOLDER / f"{name}.pt").relative_to(ROOT)
        until = f"  # until {self.until:,} frames" if self.until is not None else ""
        return f"python docs/examples/{self.program}.py --env {self.env} --seed {self.seed} --save {file}{until}"


POLICIES = {
    "cartpole": Trained("gym:CartPole-v1", "ppo", every=2),
    "lunarlander": Trained("gym:LunarLander-v3", "ppo", every=4),
    "halfcheetah": Trained("gym:HalfCheetah-v5", "ppo", until=327_680),
    "pendulum": Trained("gym:Pendulum-v1", "sac", every=2),
    "swingup": Trained("dm:cartpole-swingup", "sac", every=4),
    "balance": Trained("vmas:balance", "mappo", every=2),
    "navigation": Trained("vmas:navigation", "mappo"),
    "spread": Trained("pettingzoo:mpe2/simple_spread_v3", "mappo", seed=1),
}


def __getattr__(name: str) -> Callable[[TensorDictBase], TensorDictBase]:
    if name not in POLICIES:
        raise AttributeError(f"{__name__} has no policy {name!r}. It has {', '.join(POLICIES)}.")
    return load(name)


@functools.cache
def load(name: str) -> Callable[[TensorDictBase], TensorDictBase]:
    """Return a policy, which acts without noise in an environment with its own observations."""
    import torch

    from steppe import ExplorationType, make_env, set_exploration_type

    policy = POLICIES[name]
    example = runpy.run_path(str(ROOT / "docs/examples" / f"{policy.program}.py"))
    weights = torch.load(FOLDER / f"{name}.pt", weights_only=True)
    with make_env(policy.env, **({"num_envs": 1} if policy.env.startswith("vmas:") else {})) as env:
        act = {"ppo": _ppo, "sac": _sac, "mappo": _mappo}[policy.program](example, env, weights)
        key, spec = env.action_key, env.full_action_spec[env.action_key]

    def acts(tensordict: TensorDictBase) -> TensorDictBase:
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            action = act(tensordict)
        low_and_high = () if spec.choice_form is not None else (spec.space.low.min(), spec.space.high.max())
        return tensordict.set(key, (action.clamp(*low_and_high) if low_and_high else action).to(spec.dtype))

    return acts


def _ppo(example: dict[str, Any], env: Any, weights: dict[str, Any]) -> Callable[[TensorDictBase], Any]:
    from steppe import Composite

    actor = example["make_actor"](
        Composite(observation=env.observation_spec["observation"], action=env.action_spec),
    )
    actor.load_state_dict(weights["actor"])
    mean, deviation = 0.0, 1.0
    if weights["norm"] is not None:
        total, squares, count = (
            weights["norm"]["_extra_state"][f"observation_{part}"] for part in ("sum", "ssq", "count")
        )
        mean = total / count
        deviation = (squares / count - mean**2).clamp(min=1e-4).sqrt()

    def act(data: TensorDictBase) -> Any:
        observation = ((data["observation"] - mean) / deviation).float()
        return actor(data.empty().set("observation", observation))["action"]

    return act


def _sac(example: dict[str, Any], env: Any, weights: dict[str, Any]) -> Callable[[TensorDictBase], Any]:
    import torch

    inputs = weights["net.0.weight"].shape[1]
    actor = example["Actor"](inputs, env.action_spec.shape[-1], float(env.action_spec.space.high.max()))
    actor.load_state_dict(weights)
    keys = ["observation"] if "observation" in env.observation_spec.keys() else ["position", "velocity"]
    return lambda data: actor(torch.cat([data[key] for key in keys], -1).float())


def _mappo(example: dict[str, Any], env: Any, weights: dict[str, Any]) -> Callable[[TensorDictBase], Any]:
    actor = example["make_actor"](env, env.action_key[0])
    actor.load_state_dict(weights)
    return lambda data: actor(data.copy())[env.action_key]


if __name__ == "__main__":
    print("\n".join(POLICIES[name].command(name) for name in sys.argv[1:] or POLICIES))
