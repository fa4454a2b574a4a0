"""``steppe record``: record a video of a policy."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steppe.cli import UsageError, import_policy, natural, one_line, positive
from steppe.errors import SpecError, SteppeError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from tensordict import TensorDictBase

    from steppe import EnvBase, TransformedEnv

__all__ = ["add_arguments", "help", "run"]

_LIMIT = 1000
# Number of frames in memory before they are written.
_FRAMES = 64
# Not "pixels", which the policy may act on.
_KEY = "recorded_frame"

help = "record a video of a policy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = "Record a video of one episode. Several environments are shown side by side."
    parser.epilog = (
        "Environments of gymnasium render with the libraries of its extras: "
        "pip install 'gymnasium[classic-control,toy-text,box2d,mujoco]'."
    )
    parser.add_argument("id", metavar="ID", help="such as gym:Pendulum-v1")
    parser.add_argument("--policy", metavar="MODULE:CALLABLE", help="chooses the actions (default: random ones)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the video, .mp4 or .gif")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE")
    parser.add_argument(
        "--steps",
        type=positive,
        metavar="N",
        help=f"number of steps, over several episodes (default: one episode, at most {_LIMIT} steps)",
    )
    parser.add_argument("--num-envs", type=positive, default=1, metavar="K", help="number of environments (default: 1)")
    parser.add_argument(
        "--fps", type=positive, metavar="F", help="frames per second (default: the environment's, or 30)"
    )
    parser.add_argument(
        "--size",
        type=_size,
        metavar="WxH",
        help="width and height, such as 320x240 (default: as rendered)",
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="S", help="seed of everything random (default: 0)")


def _size(text: str) -> tuple[int, int]:
    """Return the width and the height of a text such as ``320x240``."""
    width, x, height = text.lower().partition("x")
    if not (x and width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f"expected width x height in pixels, such as 320x240, found {text!r}")
    return int(width), int(height)


def run(args: argparse.Namespace) -> int:
    """Record the video and print its path.

    Raises:
        UsageError: the arguments are wrong, or the environment renders no frames.
    """
    from steppe.registry import env_factory

    env_factory(args.id)  # report a wrong id before torch is imported
    if args.out.suffix.lower() not in (".mp4", ".gif"):
        raise UsageError(f"--out {str(args.out)!r}: the name of a video ends in .mp4 or .gif")
    if args.out.exists() and not args.overwrite:
        raise UsageError(f"--out {str(args.out)!r} exists; --overwrite replaces it")
    policy = import_policy(args.policy) if args.policy else None
    from steppe.imports import import_tensordict

    import_tensordict()
    import torch

    from .loggers.video_file import VideoFileLogger

    torch.manual_seed(args.seed)
    env = _make_env(args)
    try:
        if policy is not None:
            policy = _checked_policy(policy, env, args.policy)
            torch.manual_seed(args.seed)
        try:
            env = _with_recorder(env)
        # Libraries raise many kinds of errors if they cannot render: no display, no model, no window, ...
        except Exception as error:
            kind = "" if isinstance(error, SteppeError) else f"{type(error).__name__}: "
            raise UsageError(f"{args.id} cannot be recorded: {kind}{one_line(error)}") from error
        env.set_seed(args.seed)
        fps = args.fps or _own_fps(env)
        kwargs = {"overwrite": args.overwrite, "size": args.size, "pad_to_even": True}
        with VideoFileLogger(args.out, fps, **kwargs) as video:
            env.transform[-1].logger = video
            interrupted = _record(env, policy, steps=args.steps)
            env.transform[-1].dump()
    finally:
        env.close()
    print(f"{video.frames} frames, {fps:g} a second, in {args.out}")
    if interrupted:
        print("steppe record: interrupted; the video has the frames until then", file=sys.stderr)
        return 130
    return 0


def _make_env(args: argparse.Namespace) -> EnvBase:
    from steppe import SerialEnv
    from steppe.registry import env_factory

    def make(**kwargs: str) -> EnvBase:
        factory = env_factory(args.id, **kwargs)
        env: EnvBase = factory() if args.num_envs == 1 else SerialEnv(args.num_envs, factory).start()
        return env

    try:
        return make(render_mode="rgb_array")
    # Libraries without this argument raise different errors. Without it, any other error is raised again.
    except Exception:
        return make()


def _checked_policy(policy: Callable[..., Any], env: EnvBase, name: str) -> Callable[[TensorDictBase], TensorDictBase]:
    """Adapt a policy to TensorDicts, and validate its action after a reset of the environment.

    Args:
        policy: the policy.
        env: its environment.
        name: name of the policy, for errors.

    Raises:
        UsageError: the policy fails, or its action does not match the action spec.
    """
    from steppe.envs import as_policy

    adapted = as_policy(policy, env)
    data = env.reset()
    try:
        data = adapted(data)
    except Exception as error:
        raise UsageError(f"the policy {name!r} failed: {type(error).__name__}: {one_line(error)}") from error
    for key in env.action_keys:
        spec, action = env.full_action_spec[key], data.get(key, None)
        if action is None:
            raise UsageError(f"the policy {name!r} gives no {key!r}")
        if not spec.is_in(action, exact=True):
            raise UsageError(
                f"the policy {name!r} gives a wrong {key!r}: expected {one_line(repr(spec))}, "
                f"found shape {tuple(action.shape)}, {action.dtype}"
            )
    return adapted


def _with_recorder(env: EnvBase) -> TransformedEnv:
    """Add a recorder of rendered frames.

    If the environment cannot render, its ``pixels`` are recorded.
    """
    from steppe import TransformedEnv
    from steppe.transforms import Compose

    from .pixel_render import PixelRenderTransform
    from .video_recorder import VideoRecorder

    def recorder(key: str) -> VideoRecorder:
        return VideoRecorder(None, "video", in_keys=[key], skip=1)

    try:
        return TransformedEnv(env, Compose(PixelRenderTransform(out_keys=[_KEY]), recorder(_KEY)))
    except SpecError:
        if env.full_observation_spec.get("pixels", None) is None:
            raise
        return TransformedEnv(env, Compose(recorder("pixels")))


def _own_fps(env: TransformedEnv) -> float:
    """Return the frames per second from the environment's metadata; 30 if it has none."""
    from steppe import SerialEnv

    metadata = getattr(env, "metadata", None)
    if metadata is not None and isinstance(env.base_env, SerialEnv):
        metadata = next(iter(metadata), None)  # the metadata of the first environment
    fps = metadata.get("render_fps") if isinstance(metadata, dict) else None
    return float(fps) if isinstance(fps, (int, float)) and fps > 0 else 30.0


def _record(
    env: TransformedEnv, policy: Callable[[TensorDictBase], TensorDictBase] | None, *, steps: int | None
) -> bool:
    """Step until each environment has ended, or `steps` times.

    Returns whether Ctrl-C stopped it.
    """
    import torch

    act = env.rand_action if policy is None else policy
    ended: torch.Tensor | None = None
    try:
        with torch.no_grad():
            td = env.reset()
            for step in range(steps or _LIMIT):
                td = env.step(act(td))
                done = _done(env, td["next"])
                ended = done if ended is None else ended | done
                if step + 1 == steps or (steps is None and bool(ended.all())):
                    break
                td = env.maybe_reset(env.step_mdp(td))
                if step % _FRAMES == 0:
                    env.transform[-1].dump()
    except KeyboardInterrupt:
        return True
    return False


def _done(env: TransformedEnv, data: TensorDictBase) -> torch.Tensor:
    """Return which environments have ended.

    A group has ended if all of its agents have.
    """
    import torch

    ends = [data.get(key) for key in env.done_keys if (key if isinstance(key, str) else key[-1]) == "done"]
    n = len(env.batch_size)
    return torch.stack([end.flatten(n).all(-1) if end.ndim > n else end for end in ends]).all(0)
