"""``steppe record``: a video of a policy at work. What writes it is a plugin, found by name."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ..errors import SpecError
from .numbers import natural, positive
from .output import UsageError
from .policy import checked_policy, import_policy

_LIMIT = 1000
# Frames in memory before they are written.
_FRAMES = 64
# Not "pixels", which the policy may act on.
_KEY = "recorded_frame"


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "record",
        help="record a video of a policy",
        description="Record a video of one episode: of each of several environments, side by side.",
    )
    parser.add_argument("id", metavar="ID", help="such as gym:Pendulum-v1")
    parser.add_argument("--policy", metavar="MODULE:CALLABLE", help="chooses the actions (default: random ones)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the video, .mp4 or .gif")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE")
    parser.add_argument(
        "--steps",
        type=positive,
        metavar="N",
        help=f"exactly so many steps, of several episodes (default: one episode, at most {_LIMIT} steps)",
    )
    parser.add_argument("--num-envs", type=positive, default=1, metavar="K", help="environments (default: 1)")
    parser.add_argument("--fps", type=positive, metavar="F", help="frames a second (default: the environment's, or 30)")
    parser.add_argument("--seed", type=natural, default=0, metavar="S", help="seed of everything random (default: 0)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..registry import env_factory, find_logger, find_transform

    env_factory(args.id)  # a wrong id is said before anything is loaded
    if args.out.suffix.lower() not in (".mp4", ".gif"):
        raise UsageError(f"--out {str(args.out)!r}: the name of a video ends in .mp4 or .gif")
    if args.out.exists() and not args.overwrite:
        raise UsageError(f"--out {str(args.out)!r} exists; --overwrite replaces it")
    try:
        render, recorder = find_transform("PixelRenderTransform"), find_transform("VideoRecorder")
        file = find_logger("VideoFileLogger")
    except ImportError as error:
        raise UsageError(str(error)) from None
    policy = import_policy(args.policy) if args.policy else None
    from ..imports import import_tensordict

    import_tensordict()
    import torch

    torch.manual_seed(args.seed)
    env = _make_env(args)
    try:
        if policy is not None:
            policy = checked_policy(policy, env, args.policy)
            torch.manual_seed(args.seed)
        try:
            env = _rendered(env, render, recorder)
        except SpecError as error:
            raise UsageError(f"{args.id} cannot be recorded: {error}") from None
        env.set_seed(args.seed)
        fps = args.fps or _own_fps(env)
        with file(args.out, fps, overwrite=args.overwrite) as video:
            env.transform[-1].logger = video
            interrupted = _record(env, policy, steps=args.steps)
            env.transform[-1].dump()
    finally:
        env.close()
    print(f"{video.frames} frames, {fps:g} a second, in {args.out}")
    if interrupted:
        print("steppe record: interrupted; the frames until then are kept", file=sys.stderr)
        return 130
    return 0


def _make_env(args: argparse.Namespace) -> Any:
    from ..batched import SerialEnv
    from ..registry import env_factory

    def make(**kwargs: Any) -> Any:
        factory = env_factory(args.id, **kwargs)
        return factory() if args.num_envs == 1 else SerialEnv(args.num_envs, factory).start()

    try:
        return make(render_mode="rgb_array")
    # Not every library has this argument, and each refuses it in its own way; what else is wrong is raised again.
    except Exception:
        return make()


def _rendered(env: Any, render: Any, recorder: Any) -> Any:
    """The environment with what renders and records behind it, or what records the frames that it returns itself."""
    from ..transforms import Compose, TransformedEnv

    own = next((key for key in ("pixels",) if env.full_observation_spec.get(key, None) is not None), None)
    try:
        return TransformedEnv(env, Compose(render(out_keys=[_KEY]), recorder(None, "video", in_keys=[_KEY], skip=1)))
    except SpecError:
        if own is None:
            raise
        return TransformedEnv(env, Compose(recorder(None, "video", in_keys=[own], skip=1)))


def _own_fps(env: Any) -> float:
    from ..batched import SerialEnv

    about = getattr(env, "metadata", None)
    if about is not None and isinstance(env.base_env, SerialEnv):
        about = next(iter(about), None)  # of the first environment
    found = about.get("render_fps") if isinstance(about, dict) else None
    return float(found) if isinstance(found, (int, float)) and found > 0 else 30.0


def _record(env: Any, policy: Any, *, steps: int | None) -> bool:
    """Act until every environment has ended once, or so many steps; whether Ctrl-C came before."""
    import torch

    act = env.rand_action if policy is None else policy
    ended: Any = None
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


def _done(env: Any, data: Any) -> Any:
    """Which environments have ended: where there are groups, with all of their agents."""
    import torch

    ends = [data.get(key) for key in env.done_keys if (key if isinstance(key, str) else key[-1]) == "done"]
    n = len(env.batch_size)
    return torch.stack([end.flatten(n).all(-1) if end.ndim > n else end for end in ends]).all(0)
