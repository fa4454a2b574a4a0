"""Compare the speed of two checkouts.

    python benchmarks/compare.py OLD NEW [--rounds 15] [--rows PATTERN ...] [--limit 1.10] [--cpu] [--write FILE.json]
                                          [--table FILE.md]
    python benchmarks/compare.py --read benchmarks/baseline.json [NEW]

``OLD`` and ``NEW`` are folders with a checkout; ``git worktree add ../old COMMIT`` makes one of an older commit. Each
has a separate process, which imports the packages of its checkout. The two take turns slice by slice, so that other
work on the machine slows down both. The best of many short slices is the one that was disturbed least. The rows ``raw
gymnasium`` run no code of steppe: the distance of their ratio from 1 shows the reliability of the other rows.

With ``--limit``, the command fails if the ratio of a row to the old one exceeds the limit. ``--cpu`` measures CPU time
instead of wall time, for busy machines, and only for rows without workers. ``--read`` compares with the figures of a
file instead of a process. These were measured at another time, so both are divided by those of ``raw gymnasium``. This
detects differences of 50 %, not of 10 %.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from peer import end

HERE = Path(__file__).resolve()
CONTROL = "raw gymnasium, CartPole"
STEPS = 500  # number of steps in a slice of one environment


# -- rows: a function that prepares, and returns a slice and what closes it

Slice = Callable[[], float]
Closer = Callable[[], Any]
ROWS: dict[str, Callable[[], tuple[Slice, Closer]]] = {}
CLOCK = [time.perf_counter]


def row(name: str, *arguments: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a row.

    Figures are microseconds; less is better.
    """

    def enter(prepare: Callable[..., Any]) -> Callable[..., Any]:
        ROWS[name] = partial(prepare, *arguments)
        return prepare

    return enter


def nothing() -> None:
    """Do nothing, for rows without resources to close."""


def timed(run: Callable[[], Any], steps: int) -> Slice:
    """Return microseconds per step of a function."""

    def slice_() -> float:
        clock = CLOCK[0]
        start = clock()
        run()
        return (clock() - start) / steps * 1e6

    return slice_


@row("raw gymnasium, Pendulum", "Pendulum-v1")
@row("raw gymnasium, CartPole", "CartPole-v1")
def raw(name: str) -> tuple[Slice, Closer]:
    """Measure the library alone."""
    import gymnasium

    env = gymnasium.make(name)
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(STEPS)]

    def run() -> None:
        env.reset()
        for action in actions:
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return timed(run, STEPS), nothing


def one(name: str, transforms: bool) -> Any:
    """Make one environment, without or with three transforms."""
    from steppe import Compose, DoubleToFloat, RewardSum, StepCounter, TransformedEnv, make_env

    if name == "tensordicts":
        from steppe_testing import CountingEnv

        env: Any = CountingEnv(max_steps=200)
    else:
        env = make_env(f"gym:{name}")
    return TransformedEnv(env, Compose(RewardSum(), StepCounter(), DoubleToFloat())) if transforms else env


def actions_of(env: Any, steps: int) -> list[Any]:
    """Draw the actions of a number of steps."""
    import torch

    generator = torch.Generator().manual_seed(0)
    return list(env.full_action_spec.rand((steps,), generator=generator)["action"].unbind(0))


for _label, _name, _transforms in (
    ("CartPole", "CartPole-v1", False),
    ("Pendulum", "Pendulum-v1", False),
    ("CartPole + 3 transforms", "CartPole-v1", True),
    ("Pendulum + 3 transforms", "Pendulum-v1", True),
    ("an environment on TensorDicts", "tensordicts", False),
    ("an environment on TensorDicts + 3 transforms", "tensordicts", True),
):

    @row(f"rollout, {_label}", _name, _transforms)
    def one_rollout(name: str, transforms: bool) -> tuple[Slice, Closer]:
        """Measure a rollout of one environment."""
        env = one(name, transforms)
        env.set_seed(0)
        given = actions_of(env, STEPS)
        return timed(lambda: env.rollout(STEPS, actions=given, break_when_any_done=False), STEPS), nothing

    @row(f"step loop, {_label}", _name, _transforms)
    def one_loop(name: str, transforms: bool) -> tuple[Slice, Closer]:
        """Measure step_and_maybe_reset of one environment."""
        env = one(name, transforms)
        env.set_seed(0)
        return stepping(env, STEPS), nothing


def stepping(env: Any, steps: int) -> Slice:
    """Return microseconds per step of step_and_maybe_reset, for all rows."""
    given = actions_of(env, min(steps, 64))
    root = [env.reset()]

    def run() -> None:
        td = root[0]
        for step in range(steps):
            td["action"] = given[step % len(given)]
            td = env.step_and_maybe_reset(td)[1]
        root[0] = td

    return timed(run, steps)


def batch(kind: str, n: int, counter: str = "", **kwargs: Any) -> Any:
    """Make a batch of CartPoles, with a StepCounter inside or outside."""
    import steppe
    from steppe import StepCounter, TransformedEnv, env_factory, make_env

    def inside() -> Any:
        return TransformedEnv(make_env("gym:CartPole-v1"), StepCounter(max_steps=200))

    make: Any = inside if counter == "inside" else env_factory("gym:CartPole-v1")
    env = getattr(steppe, kind)(n, make, **kwargs)
    env.set_seed(0)
    return TransformedEnv(env, StepCounter(max_steps=200)) if counter == "outside" else env


for _label, _kind, _n, _counter, _kwargs, _steps in (
    ("SerialEnv(8)", "SerialEnv", 8, "", {}, 200),
    ("SerialEnv(8), StepCounter inside", "SerialEnv", 8, "inside", {}, 200),
    ("SerialEnv(8), StepCounter outside", "SerialEnv", 8, "outside", {}, 200),
    ("ParallelEnv(8)", "ParallelEnv", 8, "", {}, 200),
    ("ParallelEnv(8), caller_share", "ParallelEnv", 8, "", {"caller_share": True}, 200),
    ("ParallelEnv(8), StepCounter inside", "ParallelEnv", 8, "inside", {}, 200),
    ("ParallelEnv(8), StepCounter outside", "ParallelEnv", 8, "outside", {}, 200),
    ("ParallelEnv(64)", "ParallelEnv", 64, "", {}, 60),
):

    @row(f"step loop, {_label}", _kind, _n, _counter, _kwargs, _steps)
    def batch_loop(kind: str, n: int, counter: str, kwargs: Any, steps: int) -> tuple[Slice, Closer]:
        """Measure step_and_maybe_reset of a batch of CartPoles."""
        env = batch(kind, n, counter, **kwargs)
        return stepping(env, steps), env.close


@row("rollout, ParallelEnv(8)", "ParallelEnv")
@row("rollout, SerialEnv(8)", "SerialEnv")
def batch_rollout(kind: str) -> tuple[Slice, Closer]:
    """Measure a rollout of a batch of CartPoles."""
    env = batch(kind, 8)
    given = actions_of(env, 200)
    return timed(lambda: env.rollout(200, actions=given, break_when_any_done=False), 200), env.close


@row("collector, SerialEnv(8), probabilistic", 8, "probabilistic")
@row("collector, SerialEnv(8), module", 8, "module")
@row("collector, SerialEnv(8), random", 8, "random")
@row("collector, 1 CartPole, random", 1, "random")
def collector(n: int, kind: str) -> tuple[Slice, Closer]:
    """Measure a batch of 125 steps of a collector in this process."""
    import torch
    from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential, TensorDictModule

    from steppe import Collector, SerialEnv, env_factory, make_env

    options = {"categorical_action_encoding": True}
    env = make_env("gym:CartPole-v1", **options) if n == 1 else SerialEnv(n, env_factory("gym:CartPole-v1", **options))
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
    policy: Any = None
    if kind == "module":
        policy = TensorDictModule(lambda observation: net(observation).argmax(-1), ["observation"], ["action"])
    elif kind == "probabilistic":
        policy = ProbabilisticTensorDictSequential(
            TensorDictModule(net, ["observation"], ["logits"]),
            ProbabilisticTensorDictModule(
                ["logits"], ["action"], distribution_class=torch.distributions.Categorical, return_log_prob=True
            ),
        )
    made = Collector(env, policy, frames_per_batch=125 * n, seed=0)
    return timed(lambda: next(made), 125), made.shutdown


@row("start again, ParallelEnv(8) of a lambda, 8 processes", "lambda")
@row("start again, ParallelEnv(8) of an id, 8 processes", "id")
def start(kind: str) -> tuple[Slice, Closer]:
    """Measure from the constructor to the end of the first reset.

    The process has had such a batch before.
    """
    from steppe import ParallelEnv
    from steppe_gym import GymEnv

    make: Any = "gym:CartPole-v1" if kind == "id" else lambda: GymEnv("CartPole-v1")

    def run() -> float:
        begin = time.perf_counter()
        env = ParallelEnv(8, make, num_processes=8)
        env.reset()
        seconds = time.perf_counter() - begin
        env.close()
        return seconds * 1e6

    return run, nothing


# -- the process of a checkout


def serve(checkout: Path) -> None:
    """Prepare, run and close rows, as lines of standard input say.

    Figures are written to standard output.
    """
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print, but standard output is only for figures
    import torch

    import steppe

    found = Path(steppe.__file__).resolve()
    if checkout not in found.parents:
        sys.exit(f"compare.py: {found} was imported instead of the packages of {checkout}.")
    torch.set_num_threads(1)
    prepared: dict[str, tuple[Slice, Closer]] = {}
    for line in sys.stdin:
        command, name = json.loads(line)
        answer = None
        if command == "prepare":
            prepared[name] = ROWS[name]()
        elif command == "run":
            answer = prepared[name][0]()
        else:
            prepared.pop(name)[1]()
        print(json.dumps(answer), file=answers, flush=True)


class Checkout:
    """A checkout, and the process that runs rows with its packages."""

    def __init__(self, folder: Path, *, cpu: bool = False) -> None:
        self.folder = folder.resolve()
        self.options = ["--cpu"] if cpu else []
        if not (self.folder / "packages/core/src/steppe").is_dir():
            sys.exit(f"compare.py: {folder} has no packages/core/src/steppe: give the root of a checkout.")
        self.process: subprocess.Popen[str] | None = None

    @property
    def commit(self) -> str:
        """The commit of the checkout, followed by ``+`` if files have changed."""
        git = partial(subprocess.run, capture_output=True, text=True, cwd=self.folder, timeout=60)
        name = git(["git", "rev-parse", "--short=12", "HEAD"]).stdout.strip() or str(self.folder)
        changed = git(["git", "status", "--porcelain", "--untracked-files=no", "packages"]).stdout.strip()
        return name + ("+" if changed else "")

    def ask(self, command: str, name: str) -> Any:
        """Send a command for a row to the process."""
        if self.process is None:
            sources = [*self.folder.glob("packages/*/src"), *self.folder.glob("packages/*/*/src")]
            path = os.pathsep.join([*map(str, sorted(sources)), os.environ.get("PYTHONPATH", "")])
            self.process = subprocess.Popen(
                [sys.executable, str(HERE), "--serve", str(self.folder), *self.options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
                cwd=self.folder,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([command, name]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"compare.py: the process of {self.folder} ended at {name!r}; its error stands above.")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            end(self.process)


# -- comparing


def measure(name: str, checkouts: list[Checkout], rounds: int) -> list[list[float]]:
    """Return the figures of a row, for each checkout.

    The checkouts take turns in starting a round.
    """
    for checkout in checkouts:
        checkout.ask("prepare", name)
        checkout.ask("run", name)  # warm-up
    figures: list[list[float]] = [[] for _ in checkouts]
    for number in range(rounds):
        order = list(zip(checkouts, figures, strict=True))
        for checkout, own in order if number % 2 else order[::-1]:
            own.append(checkout.ask("run", name))
    for checkout in checkouts:
        checkout.ask("close", name)
    return figures


def compare(old: Checkout, new: Checkout, names: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Return the best figures, and the ratios of bests and of medians."""
    found = {}
    for name in names:
        before, after = measure(name, [old, new], rounds)
        found[name] = {
            "old": min(before),
            "new": min(after),
            "ratio": min(after) / min(before),
            "ratio of medians": statistics.median(after) / statistics.median(before),
        }
        print(f"{found[name]['ratio']:.2f}  {name}", file=sys.stderr, flush=True)
    return found


def compare_with_file(
    file: dict[str, Any], new: Checkout, names: list[str], rounds: int
) -> dict[str, dict[str, float]]:
    """Compare with figures from a file, both relative to the control rows."""
    before = {name: row["new"] for name, row in file["rows"].items()}
    names = [name for name in dict.fromkeys((CONTROL, *names)) if name in before]
    after = {}
    for name in names:
        after[name] = min(measure(name, [new], rounds)[0])
        print(f"{after[name]:.1f} us  {name}", file=sys.stderr, flush=True)
    scale = after[CONTROL] / before[CONTROL]
    return {
        name: {"old": before[name] * scale, "new": value, "ratio": value / before[name] / scale}
        for name, value in after.items()
    }


def report(found: dict[str, dict[str, float]], old: str, new: str, limit: float | None) -> bool:
    """Print the table; return whether all rows are within the limit."""
    from common import show

    # The rows that run no code of steppe show the reliability of the others, and fail no comparison.
    over = [n for n, row in found.items() if limit is not None and row["ratio"] > limit and not n.startswith("raw ")]
    rows = [
        [name, f"{row['old']:,.1f}", f"{row['new']:,.1f}", f"{row['ratio']:.2f}", "slower" if name in over else ""]
        for name, row in found.items()
    ]
    show("us a step (of all rows), best slice; starts: us", ["row", old, new, "ratio", ""], rows)
    return not over


def markdown(found: dict[str, dict[str, float]], old: str, new: str) -> str:
    """Return the figures as a table in Markdown."""
    lines = [f"| Row (us, best slice) | {old} | {new} | Ratio |", "|---|---|---|---|"]
    lines += [f"| {name} | {row['old']:,.1f} | {row['new']:,.1f} | {row['ratio']:.2f} |" for name, row in found.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", nargs="?", type=Path, help="folder with the older checkout")
    parser.add_argument("new", nargs="?", type=Path, help="folder with the newer one")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", nargs="*", default=["*"], help="names or patterns")
    parser.add_argument("--limit", type=float, default=None)
    parser.add_argument("--cpu", action="store_true", help="count the time that the process computes")
    parser.add_argument("--read", type=Path, default=None, help="compare with the figures of this file")
    parser.add_argument("--write", type=Path, default=None, help="write figures to this file")
    parser.add_argument("--table", type=Path, default=None, help="write the figures to this file, as Markdown")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--serve", type=Path, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        if args.cpu:
            CLOCK[0] = time.process_time
        serve(args.serve)
        return
    names = [name for name in ROWS if any(fnmatch.fnmatchcase(name, pattern) for pattern in args.rows)]
    if args.cpu:
        names = [name for name in names if "ParallelEnv" not in name]
    if args.list:
        print("\n".join(names))
        return
    if not names:
        parser.error(f"no row is named {args.rows}: --list prints the names")
    if args.read is None and args.new is None:
        parser.error("give the folders of two checkouts, or --read FILE.json and the folder of one")

    if args.read is not None:
        file = json.loads(args.read.read_text())
        new = Checkout(args.old or HERE.parents[1], cpu=args.cpu)
        try:
            found = compare_with_file(file, new, names, args.rounds)
        finally:
            new.close()
        before = file["new"]
    else:
        old, new = Checkout(args.old, cpu=args.cpu), Checkout(args.new, cpu=args.cpu)
        try:
            found = compare(old, new, names, args.rounds)
        finally:
            old.close()
            new.close()
        before = old.commit
    within = report(found, before, new.commit, args.limit)
    if args.write is not None:
        figures = {name: {key: round(value, 3) for key, value in row.items()} for name, row in found.items()}
        content = {
            "old": before,
            "new": new.commit,
            "rounds": args.rounds,
            "unit": "us",
            "clock": "cpu" if args.cpu else "wall",
            "rows": figures,
        }
        args.write.write_text(json.dumps(content, indent=1) + "\n")
    if args.table is not None:
        args.table.write_text(markdown(found, before, new.commit))
    if not within:
        sys.exit(f"compare.py: rows above are more than {args.limit:g} times as slow as before.")


if __name__ == "__main__":
    main()
