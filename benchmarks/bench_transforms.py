"""Measure the CPU time that transforms add to a step.

    python benchmarks/bench_transforms.py [--names Resize VecNorm ...] [--n 1 64] [--rounds 7]
                                          [--peer-python PYTHON]

Each transform is appended to an environment that only copies one observation. It is measured in a single environment
and in a batch (``SerialEnv``), in rollouts on rows, and (single only) in a step loop. The figure is its CPU time minus
that of an environment that observes the transformed observation itself. ``bare`` is the same for tensor operations that
are written into the environment by hand: the copy of the observation, if it is another one, and the operations, whose
result goes to the row. So both write the same amount of memory, equally new or reused: the row, and the frames of the
rollout. In a batch, where an environment has only one row, the bare operations run separately, into one row of all
environments. Contestants take turns, and figures are the minimum of all rounds, because other work on the machine only
adds time. ``--peer-python`` names an interpreter with TorchRL, whose transforms of the same names are measured in the
same way, in rollouts.

Transforms of actions have bare operations on the action only. FrameSkipTransform is compared to an environment that
takes as many steps itself, and transforms that call a user's function to the same call on an existing TensorDict.
Transforms of packages that are not installed are left out, with a message.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from common import show
from peer import Peer
from tensordict import TensorDict
from torch.nn.functional import one_hot
from transform_cases import ACTIONS, CASES, never, value_of

import steppe.transforms
from steppe import (
    ArrayEnv,
    Binary,
    Bounded,
    OneHot,
    SerialEnv,
    TransformedEnv,
    Unbounded,
)
from steppe.errors import TransformNotFound


def _scaled(value: torch.Tensor, out: torch.Tensor) -> None:
    np.divide(value.movedim(-1, -3).numpy(), np.float32(255), out=out.numpy())


def _grey_into(value: torch.Tensor, out: torch.Tensor) -> None:
    red, green, blue = value.unbind(-3)
    torch.mul(red, 0.2989, out=out.squeeze(-3)).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def grey(value: torch.Tensor) -> torch.Tensor:
    red, green, blue = value.unbind(-3)
    return red.mul(0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114).unsqueeze(-3)


def small(value: torch.Tensor) -> torch.Tensor:
    images = value.reshape(-1, *value.shape[-3:])
    images = torch.nn.functional.interpolate(images, (84, 84), mode="bilinear", antialias=True)
    return images.reshape(*value.shape[:-2], 84, 84)


class _Running:
    """The minimal operations of a running normalization."""

    def __init__(self) -> None:
        self.sum, self.ssq, self.count = torch.zeros(8), torch.zeros(8), torch.zeros(())

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        rows = value.reshape(-1, 8)
        self.sum.mul_(0.9999).add_(rows.sum(0))
        self.ssq.mul_(0.9999).add_((rows * rows).sum(0))
        self.count.mul_(0.9999).add_(len(rows))
        mean = self.sum / self.count
        return (value - mean) / (self.ssq / self.count - mean * mean).clamp_min_(1e-4).sqrt_()


class _Asked:
    """A predicate on an existing TensorDict: the cost of a user's function alone."""

    def __init__(self) -> None:
        self.value: torch.Tensor | None = None
        self.td = TensorDict({})

    def __call__(self, value: torch.Tensor) -> None:
        if value is not self.value:
            self.value, self.td = value, TensorDict({"observation": value}, batch_size=value.shape[:-1])
        _nothing(bool(never(self.td).any()))


def _nothing(_: Any) -> None:
    """Do nothing, for operations whose result is not written to a row."""


def _projected(action: torch.Tensor) -> torch.Tensor:
    number = action.to(torch.uint8).argmax(-1)
    if bool((number >= 4).any()):
        number = torch.randint(4, number.shape)
    return one_hot(number, 4).to(action.dtype)


LOC, SCALE = torch.zeros(8), torch.ones(8)
NOISE = torch.zeros(2, 3)

#: Bare operations with large results, which write them directly to their destination: the fastest known versions.
INTO: dict[str, Callable[[torch.Tensor, torch.Tensor], None]] = {"ToTensorImage": _scaled, "GrayScale": _grey_into}

#: The bare operations of each transform, from a value with leading dimensions to the result.
BARE: dict[str, Callable[[torch.Tensor], torch.Tensor | None]] = {
    "ToTensorImage": lambda value: value.movedim(-1, -3).div(255),
    "GrayScale": grey,
    "Resize": small,
    "Crop": lambda value: value[..., :84, :84],
    "CenterCrop": lambda value: value[..., 63:147, 38:122],
    "ObservationNorm": lambda value: (value - LOC) / SCALE,
    "RewardScaling": lambda value: value * 2 + 1,
    "VecNorm": _Running(),
    "RewardClipping": lambda value: value.clamp(-1, 1),
    "BinarizeReward": lambda value: (value > 0).to(value.dtype),
    "CatTensors": lambda value: torch.cat([value, value], -1),
    "UnsqueezeTransform": lambda value: value.unsqueeze(-1),
    "SqueezeTransform": lambda value: value.squeeze(-1),
    "PermuteTransform": lambda value: value.mT,
    "FlattenObservation": lambda value: value.flatten(-2, -1),
    "ClipTransform": lambda value: value.clamp(-1, 1),
    "SignTransform": torch.sign,
    "CatFrames": lambda value: torch.cat([value, value, value, value], -1),
    "TimeMaxPool": lambda value: torch.maximum(value, value),
    "DoubleToFloat": lambda value: value.float(),
    "RewardSum": lambda value: value + value,
    "StepCounter": lambda value: value + 1,
    "Timer": lambda value: _nothing(time.perf_counter() - time.perf_counter()),
    "TerminateTransform": _Asked(),
    "gSDENoise": lambda value: _nothing(torch.zeros(2, 3).copy_(NOISE)),
    "ActionMask": lambda value: _nothing(torch.ones(4, dtype=torch.bool).clone()),
    "ConditionalPolicySwitch": _Asked(),
    "FrameSkipTransform": lambda value: value + value,
}
#: The same for transforms of actions, from the caller's action to the environment's.
BARE_ACTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "ActionScaling": lambda action: action * 2 + 1,
    "ActionDiscretizer": lambda action: torch.linspace(-1, 1, 5)[action],
    "FlattenAction": lambda action: action.unflatten(-1, (2, 3)),
    "DiscreteActionProjection": _projected,
}
#: Entries that kernels add to the observation.
COUNTED = ("episode_reward", "step_count")
#: Transforms that read the reward.
REWARDS = ("RewardScaling", "RewardClipping", "BinarizeReward", "RewardSum", "StepCounter")


class Still(ArrayEnv):
    """An environment with a constant observation and no end."""

    def __init__(self, entries: dict[str, Any], action: Any = None) -> None:
        super().__init__()
        leaves = {}
        for key, (shape, dtype) in entries.items():
            leaves[key] = Bounded(0, 255, shape, dtype=dtype) if dtype is torch.uint8 else Unbounded(shape, dtype=dtype)
            if dtype is torch.bool:
                leaves[key] = Binary(shape=shape, dtype=dtype)
        for key, leaf in leaves.items():
            self.full_observation_spec[key] = leaf
        self.action_spec = Bounded(-1.0, 1.0, (1,)) if action is None else action
        self.reward_spec = Unbounded((1,))
        self.values = {key: np.ascontiguousarray(value_of(*entry).numpy()) for key, entry in entries.items()}

    def reset_into(self, out: Any, seed: int | None, env_info: Any) -> None:
        for key, value in self.values.items():
            out[key][...] = value

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        for key, value in self.values.items():
            out[key][...] = value
        out["reward"][...] = 0.5
        return False, False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", nargs="*", default=None)
    parser.add_argument("--n", nargs="*", type=int, default=[1, 64])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peer-python", default=None)
    args = parser.parse_args()

    torch.set_num_threads(1)
    rows, absent = [], []
    for name in args.names if args.names is not None else CASES:
        why = missing(name, CASES[name][0])
        if why:
            absent.append(why)
            continue
        for n in args.n:
            rows.append(measured(name, n, args.rounds, args.peer_python if n == 1 else None))
    columns = ["transform", "rows", "bare", "rollout adds", "over bare", "loop adds", "over bare", "TorchRL adds"]
    show("CPU microseconds a step, of all rows", columns, rows)
    for message in absent:
        print(f"left out: {message}")


def missing(name: str, arguments: dict[str, Any]) -> str:
    """Return why a transform is not available, or ""."""
    try:
        getattr(steppe.transforms, name)(**arguments)
    except TransformNotFound as error:
        return str(error)
    return ""


class Turns:
    """Functions that take turns, and the minimal CPU time of each.

    Args:
        rounds: number of turns.
    """

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.entries: dict[str, Callable[[], float]] = {}

    def add(self, label: str, steps: int, run: Callable[[], Any]) -> None:
        """Add a function that takes a number of steps."""

        def slice_() -> float:
            start = time.process_time()
            run()
            return (time.process_time() - start) / steps * 1e6

        self.entries[label] = slice_

    def run(self) -> dict[str, float]:
        """Microseconds a step of each."""
        for slice_ in self.entries.values():
            slice_()
        least = dict.fromkeys(self.entries, float("inf"))
        for _ in range(self.rounds):
            for label, slice_ in self.entries.items():
                least[label] = min(least[label], slice_())
        return least


def measured(name: str, n: int, rounds: int, peer_python: str | None) -> list[str]:
    """Return the row of a transform in the table."""
    arguments, entries = CASES[name]
    action = _action(*ACTIONS[name]) if name in ACTIONS else None
    large = any(np.prod(shape) > 10_000 for shape, _ in entries.values())
    steps = max(8, (100 if large else 2000) // (8 if n > 1 else 1))

    def batch(one: Callable[[], Any]) -> Any:
        return one() if n == 1 else SerialEnv(n, one)

    env = batch(lambda: TransformedEnv(Still(entries, action), getattr(steppe.transforms, name)(**arguments)))
    observed = env.observation_spec if n == 1 else env.observation_spec[0]
    behind = {
        key: (tuple(leaf.shape), leaf.dtype)
        for key, leaf in observed.items()
        if key not in COUNTED and not key.startswith("_")
    }
    contestants = {"base": batch(lambda: Still(behind, action)), "ours": env}
    # A transform that takes steps itself is compared with as many steps, in a batch too.
    by_hand = name not in BARE_ACTIONS and (n == 1 or "frame_skip" in arguments)
    if by_hand:
        contestants["bare"] = batch(lambda: ByHand(name, behind, action))
    problem = env.no_row_writer_reason if n == 1 else None
    turns = Turns(rounds)
    for label, which in contestants.items():
        actions = which.full_action_spec.rand((steps,))

        def rollout(which: Any = which, actions: Any = actions) -> None:
            which.rollout(steps, actions=actions, break_when_any_done=False)

        turns.add(label, steps, rollout)
        if n == 1:
            turns.add(f"{label} loop", steps, lambda which=which, actions=actions: loop(which, actions))
    if not by_hand:
        turns.add("bare", steps, bare(name, n, steps, env))
    least = turns.run()
    base = least["base"]
    added, alone = least["ours"] - base, least["bare"] - (base if by_hand else 0.0)
    cells = [name + (" (on TensorDicts)" if problem else ""), str(n), f"{alone:.1f}", f"{added:.1f}"]
    cells.append(f"{added - alone:+.1f}")
    if n == 1:
        looped = least["ours loop"] - least["base loop"]
        over = least["ours loop"] - least["bare loop"] if by_hand else looped - alone
        cells += [f"{looped:.1f}", f"{over:+.1f}"]
    else:
        cells += ["", ""]
    compared = peer_python is not None and name not in ACTIONS
    cells.append(peer_figure(str(peer_python), name, rounds) if compared else "")
    return cells


def _action(kind: str, *arguments: Any) -> Any:
    """Return the spec of an action, for both ends of a transform of actions."""
    return OneHot(*arguments) if kind == "one-hot" else Bounded(*arguments)


def loop(env: Any, actions: Any) -> None:
    td = env.reset()
    for action in actions["action"].unbind(0):
        td["action"] = action
        _, td = env.step_and_maybe_reset(td)


def value_read(name: str) -> tuple[torch.Tensor, bool]:
    """Return the input of a transform, and whether the result has its shape and dtype."""
    shape, dtype = ((1,), torch.float32) if name in REWARDS else next(iter(CASES[name][1].values()))
    value = value_of(shape, dtype)
    result = BARE[name](value)
    return value, result is None or (result.shape == value.shape and result.dtype is value.dtype)


class ByHand(Still):
    """An environment with the bare operations of a transform written into it."""

    def __init__(self, name: str, behind: dict[str, Any], action: Any) -> None:
        super().__init__(behind, action)
        self.value, keeps = value_read(name)
        entries = CASES[name][1]
        new = [key for key, entry in behind.items() if entries.get(key) != entry]
        self.target = "reward" if name in REWARDS else new[0] if new and not keeps else next(iter(behind))
        self.repeats = CASES[name][0].get("frame_skip", 1)
        self.scratch = None if keeps else self.value.clone()
        self.operations, self.into = BARE[name], INTO.get(name)
        self.written = {key: value for key, value in self.values.items() if keeps or key != self.target}
        self.row: Any = None
        self.out: Any = None

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        if out is not self.out:
            self.out, self.row = out, torch.from_numpy(out[self.target])
        for _ in range(self.repeats):
            for key, value in self.written.items():
                out[key][...] = value
            out["reward"][...] = 0.5
        row, given = self.row, self.row
        if self.scratch is not None:
            given = self.scratch.copy_(self.value)
        if self.into is not None:
            self.into(given, row)
            return False, False
        for _ in range(max(1, self.repeats - 1)):
            result = self.operations(given)
        if result is not None:
            row.copy_(result)
        return False, False


def bare(name: str, n: int, steps: int, env: Any) -> Callable[[], None]:
    """Return the bare operations of a transform.

    Their result is in one row of all environments.
    """
    lead = () if n == 1 else (n,)
    if name in BARE_ACTIONS:
        convert, actions = BARE_ACTIONS[name], env.full_action_spec.rand((steps,))[env.action_key].unbind(0)

        def run_actions() -> None:
            for action in actions:
                convert(action)

        return run_actions
    one, keeps = value_read(name)
    value = one.expand(*lead, *one.shape).contiguous()
    operations, into, scratch = BARE[name], INTO.get(name), value.clone()
    result = operations(value)
    row = None if result is None else torch.empty(result.shape, dtype=result.dtype)

    @torch.no_grad()
    def run() -> None:
        for _ in range(steps):
            given = scratch if keeps else scratch.copy_(value)
            if into is not None:
                into(given, row)
            elif row is not None:
                row.copy_(operations(given))
            else:
                operations(given)

    return run


def peer_figure(python: str, name: str, rounds: int) -> str:
    """Return what TorchRL's transform of the same name adds to its rollout."""
    peer = Peer(python, name, 200, kind="transform")
    try:
        least = {label: min(peer.slice(label) for _ in range(min(rounds, 5))) for label in ("without", "with")}
    except SystemExit:
        return "not there"
    finally:
        peer.close()
    return f"{least['with'] - least['without']:.1f}"


if __name__ == "__main__":
    main()
