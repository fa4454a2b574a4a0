"""``steppe collect``: write transitions of an environment to a folder."""

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
from typing import TYPE_CHECKING, Any, cast

from ..errors import ActionError, ClosedError, PolicyError, SteppeError, WorkerError
from .output import UsageError, natural, one_line, positive
from .policy import Act, checked_policy, import_policy

if TYPE_CHECKING:
    from tensordict import TensorDictBase

    from steppe import EnvBase
    from steppe.registry import EnvFactory

# Ctrl-C loses at most one batch, so batches are short; shorter ones would have noticeable overhead.
_FRAMES_PER_BATCH = 256
_ROWS_PER_BATCH = 8

help = "collect transitions into a folder"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Collect transitions and write them to a folder that TensorDict.load_memmap reads."
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
    parser.add_argument("--overwrite", action="store_true", help="replace the contents of DIR")
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


def run(args: argparse.Namespace) -> int:
    from ..registry import env_factory

    factory = env_factory(args.id)
    _check_folder(args.out, overwrite=args.overwrite)
    if args.plot is not None:
        _check_plot(args.plot)
    policy = import_policy(args.policy) if args.policy else None
    return _collect(args, factory, policy)


def _collect(args: argparse.Namespace, factory: EnvFactory, policy: Act | None) -> int:
    from ..imports import import_tensordict

    import_tensordict()
    import torch

    from .collect_report import Report
    from .dataset import Dataset

    torch.manual_seed(args.seed)
    env = _make_env(args, factory)
    dataset: Dataset | None = None
    failure: BaseException | None = None
    try:
        num_envs = env.numel()  # more than --num-envs if the library steps several environments at once
        steps = -(-args.frames // num_envs)
        frames = steps * num_envs
        if frames != args.frames:
            print(f"{args.frames} frames are rounded up to {frames}: {steps} steps of {num_envs} environments.")
        if policy is not None:
            policy = checked_policy(policy, env, args.policy)
            torch.manual_seed(args.seed)
        dataset = Dataset(args.out, rows=steps, split=args.split_trajs)
        report = Report(env)
        if args.in_background:
            env.close()  # the worker process makes its own environment
        started = time.perf_counter()
        try:
            for batch in _batches(args, factory if args.in_background else env, policy, steps, num_envs):
                report.add(dataset.write(batch))
                if sys.stderr.isatty():
                    print(f"\r{dataset.frames} of {frames} frames", end="", file=sys.stderr, flush=True)
        except KeyboardInterrupt as error:
            failure = error
        except Exception as error:
            if isinstance(error, (ActionError, PolicyError)) or not dataset.frames:
                raise
            failure = error
        seconds = time.perf_counter() - started
        if sys.stderr.isatty():
            print(file=sys.stderr)
        if not dataset.frames:
            raise KeyboardInterrupt
        with _uninterrupted():
            dataset.finish()
    finally:
        if dataset is not None:
            dataset.discard()
        if not env.is_closed:  # the collector may have closed it
            env.close()
    report.print(args.id, frames=dataset.frames, seconds=seconds, out=args.out)
    if args.plot is not None:
        report.plot(args.plot, title=args.id)
    return _status(failure, kept=dataset.frames)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C in a block: it would lose the data that was kept after the first Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _status(failure: BaseException | None, *, kept: int) -> int:
    if failure is None:
        return 0
    if isinstance(failure, KeyboardInterrupt):
        print(f"steppe collect: interrupted; the {kept} frames collected until then are kept", file=sys.stderr)
        return 130
    print(f"steppe collect: {failure}\nThe {kept} frames collected until then are kept.", file=sys.stderr)
    return 1


def _make_env(args: argparse.Namespace, factory: EnvFactory) -> EnvBase:
    try:
        return counted_env(factory, args.num_envs, args.num_processes, args.max_steps)
    except Exception as error:
        cause: Exception = error
        if isinstance(error, WorkerError):
            # The error of the environment itself, made in this process, is clearer than that of a worker.
            try:
                factory().close()
            except Exception as original:
                cause = original
        if isinstance(cause, SteppeError) and not isinstance(cause, WorkerError):
            raise cause from error
        raise UsageError(f"{args.id!r} cannot be made: {type(cause).__name__}: {one_line(cause)}") from error


def counted_env(factory: EnvFactory, num_envs: int, num_processes: int | None, max_steps: int | None) -> EnvBase:
    """Make a batch of environments with a StepCounter and a RewardSum."""
    import steppe

    batch: EnvBase | None = None
    try:
        if num_envs == 1 and num_processes is None:
            batch = steppe.SerialEnv(1, factory)
        else:
            batch = steppe.ParallelEnv(num_envs, factory, num_processes=num_processes)
        counter = steppe.StepCounter(max_steps=max_steps)
        env = steppe.TransformedEnv(batch, steppe.Compose(counter, steppe.RewardSum()))
        _ = env.action_keys  # starts the workers, which raise their errors here
        return env
    except BaseException:
        if batch is not None and not batch.is_closed:
            batch.close()
        raise


def _batches(
    args: argparse.Namespace, source: EnvBase | EnvFactory, policy: Act | None, steps: int, num_envs: int
) -> Iterator[TensorDictBase]:
    """Yield batches of an environment, or of one that a factory makes in a process of its own."""
    import steppe

    most = max(_ROWS_PER_BATCH, _FRAMES_PER_BATCH // num_envs)
    batches = -(-steps // most)
    rows = -(-steps // batches)  # batches of equal size, so that hardly any step is collected beyond --frames
    make, made = cast(Any, steppe.Collector), cast(Any, source)
    if args.in_background:
        make = steppe.aSyncDataCollector
        made = partial(counted_env, made, args.num_envs, args.num_processes, args.max_steps)
    collector = make(
        made,
        policy,
        frames_per_batch=rows * num_envs,
        total_frames=rows * num_envs * batches,
        seed=args.seed,
    )
    try:
        yield from collector
    finally:
        with suppress(ClosedError):  # an interrupted batch closes the collector
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
        raise UsageError(f"--out {str(out)!r} is not empty; --overwrite replaces its contents")
    here = out.resolve()
    if any(here == folder or here in folder.parents for folder in (Path.cwd().resolve(), Path.home().resolve())):
        raise UsageError(f"--out {str(out)!r} contains the current or the home folder: it is not overwritten")
