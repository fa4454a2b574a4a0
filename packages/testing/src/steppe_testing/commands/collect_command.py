"""``steppe collect``: write transitions of an environment to a folder."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from steppe.cli import Act, UsageError, import_policy, natural, one_line, positive
from steppe.errors import (
    ActionError,
    ClosedError,
    PluginError,
    PolicyError,
    SteppeError,
    TransformNotFound,
    WorkerError,
)

from .formats import FORMATS, Target, make_target

if TYPE_CHECKING:
    from tensordict import TensorDictBase

    from steppe import EnvBase
    from steppe.registry import EnvFactory

# Ctrl-C loses at most one batch, so batches are short; shorter ones would have noticeable overhead.
_FRAMES_PER_BATCH = 256
_ROWS_PER_BATCH = 8

help = "collect transitions into a folder"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Collect transitions and write them to a folder, an HDF5 file or a data set of Minari."
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
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="OUT",
        help="folder to write; a file for hdf5; for minari the id of the data set, such as pendulum/random-v0",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the contents of OUT")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="memmap",
        help="memmap: a folder for TensorDict.load_memmap; minari: needs steppe-minari; hdf5: needs h5py",
    )
    parser.add_argument("--policy", metavar="MODULE:CALLABLE", help="chooses the actions (default: random ones)")
    parser.add_argument("--max-steps", type=positive, metavar="M", help="truncate episodes after M steps")


def run(args: argparse.Namespace) -> int:
    from steppe.registry import env_factory

    factory = env_factory(args.id)
    target = make_target(args)
    policy = import_policy(args.policy) if args.policy else None
    try:
        return _collect(args, factory, policy, target)
    finally:
        target.clean()


def _collect(args: argparse.Namespace, factory: EnvFactory, policy: Act | None, target: Target) -> int:
    from steppe.imports import import_tensordict

    import_tensordict()
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress

    from .collect_report import print_report
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
        dataset = Dataset(target.begin(), rows=steps)
        progress = Progress(
            *("{task.description}", BarColumn(), MofNCompleteColumn(), "{task.fields[speed]:,.0f} frames/s"),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        started = time.perf_counter()
        try:
            with progress:
                task = progress.add_task(args.id, total=frames, speed=0.0)
                for batch in _batches(env, policy, steps, seed=args.seed):
                    dataset.write(batch)
                    speed = dataset.frames / (time.perf_counter() - started)
                    progress.update(task, completed=dataset.frames, speed=speed)
        except KeyboardInterrupt as error:
            failure = error
        except Exception as error:
            if isinstance(error, (ActionError, PolicyError)) or not dataset.frames:
                raise
            failure = error
        seconds = time.perf_counter() - started
        if not dataset.frames:
            raise KeyboardInterrupt
        with _uninterrupted():
            data = dataset.finish()
            target.write(data)
    finally:
        if dataset is not None:
            dataset.discard()
        if not env.is_closed:  # the collector may have closed it
            env.close()
    print_report(args.id, data, seconds=seconds, out=target.shown)
    return _status(failure, kept=data.numel())


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
    """Make a batch of environments with a StepCounter, and a RewardSum if steppe-reward is installed."""
    import steppe

    batch: EnvBase | None = None
    try:
        if args.num_envs == 1 and args.num_processes is None:
            batch = steppe.SerialEnv(1, factory)
        else:
            batch = steppe.ParallelEnv(args.num_envs, factory, num_processes=args.num_processes)
        parts: list[steppe.Transform] = [steppe.StepCounter(max_steps=args.max_steps)]
        with suppress(TransformNotFound, PluginError):  # without steppe-reward, no returns are printed
            parts.append(steppe.RewardSum())
        env = steppe.TransformedEnv(batch, steppe.Compose(*parts))
        _ = env.action_keys  # starts the workers, which raise their errors here
        return env
    except BaseException as error:
        if batch is not None and not batch.is_closed:
            batch.close()
        if not isinstance(error, Exception) or (isinstance(error, SteppeError) and not isinstance(error, WorkerError)):
            raise
        text = str(error).partition("\n\nTraceback")[0]  # drop the worker's traceback
        raise UsageError(f"{args.id!r} cannot be made: {type(error).__name__}: {one_line(text)}") from error


def _batches(env: EnvBase, policy: Act | None, steps: int, *, seed: int) -> Iterator[TensorDictBase]:
    """Yield batches ``[n, t]`` of at least so many steps of an environment."""
    import steppe

    num_envs = env.numel()
    most = max(_ROWS_PER_BATCH, _FRAMES_PER_BATCH // num_envs)
    batches = -(-steps // most)
    rows = -(-steps // batches)  # batches of equal size, so that hardly any step is collected beyond --frames
    collector = steppe.Collector(
        env,
        policy,
        frames_per_batch=rows * num_envs,
        total_frames=rows * num_envs * batches,
        seed=seed,
    )
    try:
        yield from collector
    finally:
        with suppress(ClosedError):  # an interrupted batch closes the collector
            collector.shutdown()
