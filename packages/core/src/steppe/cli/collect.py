"""``steppe collect``: transitions of one environment into a folder."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import ActionError, ClosedError, PolicyError, SteppeError, WorkerError
from .numbers import natural, positive
from .output import UsageError, one_line
from .policy import checked_policy, import_policy

# A batch is what Ctrl-C may lose: short, and long enough that its overhead does not show.
_FRAMES_PER_BATCH = 256
_ROWS_PER_BATCH = 8


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "collect",
        help="collect transitions into a folder",
        description="Collect transitions and write them to a folder that TensorDict.load_memmap reads.",
    )
    parser.add_argument("id", metavar="ID", help="such as gym:Pendulum-v1")
    parser.add_argument(
        "--frames", type=positive, required=True, metavar="N", help="transitions, over all environments"
    )
    parser.add_argument("--num-envs", type=positive, default=1, metavar="K", help="environments (default: 1)")
    parser.add_argument(
        "--num-processes",
        type=positive,
        metavar="P",
        help="processes that share them (default: one per core; a single environment needs none)",
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="S", help="seed of everything random (default: 0)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace what is in DIR")
    parser.add_argument("--policy", metavar="MODULE:CALLABLE", help="chooses the actions (default: random ones)")
    parser.add_argument("--max-steps", type=positive, metavar="M", help="truncate episodes after M steps")
    parser.add_argument(
        "--async",
        dest="in_background",
        action="store_true",
        help="collect in a process of its own, while the last batch is written",
    )
    parser.add_argument(
        "--split-trajs", action="store_true", help="write trajectories, padded to the longest, with a mask"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="a picture of the return of each episode")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..registry import env_factory

    factory = env_factory(args.id)
    _check_folder(args.out, overwrite=args.overwrite)
    if args.plot is not None:
        _check_plot(args.plot)
    policy = import_policy(args.policy) if args.policy else None
    return _collect(args, factory, policy)


def _collect(args: argparse.Namespace, factory: Any, policy: Any) -> int:
    from ..imports import import_tensordict

    import_tensordict()
    import torch

    from .collect_report import Progress, Report, versions
    from .dataset import Dataset

    row_count = -(-args.frames // args.num_envs)
    rows = min(row_count, max(_ROWS_PER_BATCH, _FRAMES_PER_BATCH // args.num_envs))
    batches = -(-row_count // rows)
    if row_count * args.num_envs != args.frames:
        frames = row_count * args.num_envs
        print(f"{args.frames} frames are rounded up to {frames}: {row_count} steps of {args.num_envs} environments.")

    torch.manual_seed(args.seed)
    env = _make_env(args, factory)
    dataset: Dataset | None = None
    trouble: BaseException | None = None
    try:
        if policy is not None:
            policy = checked_policy(policy, env, args.policy)
            torch.manual_seed(args.seed)
        dataset = Dataset(args.out, rows=row_count, split=args.split_trajs)
        report = Report(env)
        if args.in_background:
            env.close()  # the worker makes its own
        started = time.perf_counter()
        try:
            with Progress(row_count * args.num_envs) as progress:
                source: Any = factory if args.in_background else env
                for batch in _batches(args, source, policy, rows=rows, batches=batches):
                    taken = dataset.write(batch)
                    report.add(taken)
                    progress.advance(taken.numel(), report.last_return)
        except KeyboardInterrupt as error:
            trouble = error
        except Exception as error:
            if isinstance(error, (ActionError, PolicyError)) or not dataset.frames:
                raise
            trouble = error
        seconds = time.perf_counter() - started
        if not dataset.frames:
            raise KeyboardInterrupt
        with _uninterrupted():
            dataset.finish()
    finally:
        if dataset is not None:
            dataset.discard()
        if not env.is_closed:  # the collector closes it too
            env.close()
    report.print(versions(args.id), frames=dataset.frames, seconds=seconds, out=args.out)
    if args.plot is not None:
        report.plot(args.plot, title=args.id)
    return _say(trouble, kept=dataset.frames)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Leave a second Ctrl-C without effect: it would lose what the first was to keep."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _say(trouble: BaseException | None, *, kept: int) -> int:
    if trouble is None:
        return 0
    if isinstance(trouble, KeyboardInterrupt):
        print(f"steppe collect: interrupted; the {kept} frames collected until then are kept", file=sys.stderr)
        return 130
    print(f"steppe collect: {trouble}\nThe {kept} frames collected until then are kept.", file=sys.stderr)
    return 1


def _make_env(args: argparse.Namespace, factory: Any) -> Any:
    try:
        return counted_env(factory, args.num_envs, args.num_processes, args.max_steps)
    except Exception as error:
        raise _why_not_made(args.id, factory, error) from error


def counted_env(factory: Any, num_envs: int, num_processes: int | None, max_steps: int | None) -> Any:
    """Make the batch of environments that is collected from, with its steps and rewards counted."""
    import steppe

    batch: Any = None
    try:
        if num_envs == 1 and num_processes is None:
            batch = steppe.SerialEnv(1, factory)
        else:
            batch = steppe.ParallelEnv(num_envs, factory, num_processes=num_processes)
        counter = steppe.StepCounter(max_steps=max_steps)
        env = steppe.TransformedEnv(batch, steppe.Compose(counter, steppe.RewardSum()))
        _ = env.action_keys  # workers start at the first question, and only then say what is wrong
        return env
    except BaseException:
        if batch is not None and not batch.is_closed:
            batch.close()
        raise


def _why_not_made(id: str, factory: Any, error: Exception) -> Exception:
    """What the environment itself raises: a worker hands it on with a traceback, which says less to a user."""
    if isinstance(error, WorkerError):
        try:
            factory().close()
        except Exception as own:
            error = own
    if isinstance(error, SteppeError) and not isinstance(error, WorkerError):
        return error
    return UsageError(f"{id!r} cannot be made: {type(error).__name__}: {one_line(error)}")


def _batches(args: argparse.Namespace, source: Any, policy: Any, *, rows: int, batches: int) -> Any:
    """Batches of an environment; or, collected in the background, of what a factory makes."""
    import steppe

    per_batch = rows * args.num_envs
    settings: dict[str, Any] = {"frames_per_batch": per_batch, "total_frames": per_batch * batches, "seed": args.seed}
    collector: Any
    if args.in_background:
        make = partial(counted_env, source, args.num_envs, args.num_processes, args.max_steps)
        collector = steppe.aSyncDataCollector(make, policy, **settings)
    else:
        collector = steppe.Collector(source, policy, **settings)
    try:
        yield from collector
    finally:
        with suppress(ClosedError):  # an interrupted batch closes itself
            collector.shutdown()


def _check_plot(file: Path) -> None:
    from importlib.util import find_spec

    if file.suffix.lower() != ".png":
        raise UsageError(f"--plot {str(file)!r}: the name of a picture ends in .png")
    if not file.absolute().parent.is_dir():
        raise UsageError(f"--plot {str(file)!r}: there is no such folder")
    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib: pip install matplotlib")


def _check_folder(out: Path, *, overwrite: bool) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {str(out)!r} is a file")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not overwrite:
        raise UsageError(f"--out {str(out)!r} is not empty; --overwrite replaces what is in it")
    here = out.resolve()
    if any(here == one or here in one.parents for one in (Path.cwd().resolve(), Path.home().resolve())):
        raise UsageError(f"--out {str(out)!r} holds the current or the home folder: it is not overwritten")
