"""The arguments of collectors: validated, and converted to environments, policies, seeds and numbers of frames."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from steppe.arguments import ignored_argument, unknown_argument
from steppe.envs import EnvBase, next_seed
from steppe.errors import NotSupported, PolicyError, SpecError
from steppe.registry import make_env
from steppe.transforms import StepCounter, TransformedEnv

__all__ = [
    "IGNORED",
    "check_output",
    "frames_of_workers",
    "limit_steps",
    "make",
    "one_for_each",
    "policy_of",
    "seeds_of",
    "take_others",
    "warn_of_rounding",
    "weights_given",
    "whole_frames",
    "whole_number",
    "whole_total",
]

#: Arguments of TorchRL that have no effect here: the default value, and what the collector does in any case.
IGNORED: dict[str, tuple[object, str]] = {
    "use_buffers": (None, "data of fixed shape is written into one storage, other data is stacked"),
    "no_cuda_sync": (False, "data is moved between devices in order, with what has to be waited for"),
    "cudagraph_policy": (None, "the policy is called as it is given"),
    "worker_idx": (None, "this collector collects in the caller's process"),
}

#: Arguments of TorchRL that are not supported: the values that can be passed all the same, and the alternative.
_NOT_SUPPORTED: dict[str, tuple[tuple[object, ...], str]] = {
    **dict.fromkeys(
        ("weight_updater", "weight_sync_schemes", "weight_recv_schemes"), ((None,), "call update_policy_weights_")
    ),
    "extend_buffer": ((True,), "postproc=, or a replay buffer whose extend does it"),
    "backend": ((None, "direct"), "collect in this process, with ParallelEnv to use several"),
    "num_collectors": ((None, 1), "collect in this process, with ParallelEnv to use several"),
    "sync": ((None,), "collect in this process, with ParallelEnv to use several"),
    "backend_options": ((None, {}), "collect in this process, with ParallelEnv to use several"),
}


def take_others(name: str, others: dict[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Accept the arguments of TorchRL's collectors that have no effect here, each with a warning.

    Args:
        name: the collector's class.
        others: arguments by name that are not in the signature of the collector.
        known: names of the arguments in the signature, suggested for a misspelt one.

    Returns:
        The values of all arguments in ``IGNORED``.

    Raises:
        NotSupported: an argument requests something that is not supported.
        TypeError: there is no such argument.
    """
    for argument, value in others.items():
        if argument not in _NOT_SUPPORTED and argument not in IGNORED:
            raise unknown_argument(name, argument, [*known, *IGNORED, *_NOT_SUPPORTED])
        accepted, instead = _NOT_SUPPORTED.get(argument, ((value,), ""))
        if value not in accepted:
            raise NotSupported(f"{name} does not take {argument}={value!r} yet. Instead: {instead}.")
    values = {argument: default for argument, (default, _) in IGNORED.items()}
    for argument in values.keys() & others.keys():
        ignored_argument(name, argument, IGNORED[argument][1])
        values[argument] = others[argument]
    return values


def make(create_env_fn: Any, kwargs: dict[str, Any] | None, name: str) -> tuple[EnvBase, bool]:
    """Return the environment, and whether this function made it (and the collector has to close it on errors).

    Args:
        create_env_fn: an environment, an id, a function, or a list with one of these.
        kwargs: keyword arguments for the function or the id.
        name: of the collector, for errors.

    Raises:
        TypeError: ``create_env_fn`` is something else, or ``kwargs`` cannot be passed to it.
        SpecError: the function returned something else than an environment.
    """
    if isinstance(create_env_fn, (list, tuple)) and len(create_env_fn) == 1:
        create_env_fn = create_env_fn[0]
    if isinstance(create_env_fn, EnvBase):
        if kwargs:
            if not create_env_fn.makes_its_envs:
                raise TypeError(f"{name}: create_env_kwargs= is for a function or an id, and an environment was given.")
            create_env_fn.update_kwargs(kwargs)
        return create_env_fn, False
    if isinstance(create_env_fn, str):
        env = make_env(create_env_fn, **(kwargs or {}))
    elif isinstance(create_env_fn, (list, tuple)):
        raise TypeError(
            f"{name} takes one environment, found a list of {len(create_env_fn)}. Make a batch of them: "
            "SerialEnv(n, functions) or ParallelEnv(n, functions)."
        )
    elif callable(create_env_fn):
        env = create_env_fn(**(kwargs or {}))
    else:
        raise TypeError(
            f"{name} takes an environment, an id or a function that makes one, found {type(create_env_fn).__name__}."
        )
    if not isinstance(env, EnvBase):
        raise SpecError(f"{name}: create_env_fn returned {type(env).__name__} where an environment is needed.")
    return env, True


def limit_steps(env: EnvBase, max_frames: object) -> EnvBase:
    """Return an environment that truncates episodes after ``max_frames`` steps; None, 0 and negative: no limit.

    Raises:
        SpecError: it is not a whole number, or the environment counts steps already.
    """
    limit = 0 if max_frames is None else whole_number(max_frames)
    if limit is None:
        raise SpecError(f"max_frames_per_traj is a whole number of steps, found {max_frames!r}.")
    if limit <= 0:
        return env
    if any((key if isinstance(key, str) else key[-1]) == "step_count" for key in env.observation_keys):
        raise SpecError(
            "max_frames_per_traj adds a StepCounter, and the environment has a 'step_count' already: give its "
            "StepCounter max_steps= instead."
        )
    return TransformedEnv(env, StepCounter(max_steps=limit))


def whole_number(value: Any) -> int | None:
    """Convert a whole number of any type (``1e6``, a number of NumPy) to int; None if it is not one."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def whole_frames(frames_per_batch: object) -> int:
    """Return a number of frames in a batch.

    Raises:
        SpecError: it is not a whole number >= 1.
    """
    frames = whole_number(frames_per_batch)
    if frames is None or frames < 1:
        raise SpecError(f"frames_per_batch is a whole number >= 1, found {frames_per_batch!r}.")
    return frames


def whole_total(total_frames: object) -> int:
    """Return the total number of frames, negative for no end.

    Raises:
        SpecError: it is not a whole number.
    """
    total = -1 if total_frames is None else whole_number(total_frames)
    if total is None:
        raise SpecError(f"total_frames is a whole number, or negative for no end, found {total_frames!r}.")
    return total


def frames_of_workers(name: str, frames_per_batch: object, n: int, *, together: bool) -> list[int]:
    """Return the frames per batch of each worker, before they are rounded up to whole steps.

    Args:
        name: the collector's class.
        frames_per_batch: a number, or a list with one for each worker.
        n: number of workers.
        together: a number is that of all workers together; False: that of each.

    Raises:
        SpecError: an argument is not a number of frames.
    """
    if not isinstance(frames_per_batch, Sequence):
        frames = whole_frames(frames_per_batch)
        return [-(-frames // n) if together else frames] * n
    return [whole_frames(number) for number in one_for_each(name, "frames_per_batch", frames_per_batch, n, "numbers")]


def warn_of_rounding(name: str, frames_per_batch: object, total: int, frames: int, parts: str) -> None:
    """Warn if a batch, or the last one, has more frames than were asked for.

    Args:
        name: the collector's class.
        frames_per_batch: its argument.
        total: frames to collect in all; negative for no end.
        frames: the frames in a batch.
        parts: how the frames are divided, for the warning.
    """
    requested = whole_number(frames_per_batch)
    if requested is not None and requested != frames:
        note = f"{name}: frames_per_batch={requested} is rounded up to {frames}: {parts}."
        warnings.warn(note, stacklevel=3)
    if total > 0 and total % frames:
        whole = -(-total // frames) * frames
        note = f"{name}: total_frames={total} is rounded up to {whole}: whole batches of {frames}."
        warnings.warn(note, stacklevel=3)


def check_output(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse settings for the delivery of batches that contradict each other.

    Args:
        name: of the collector, for errors.
        settings: all arguments of its constructor, defaults included.

    Raises:
        TypeError: two arguments contradict each other.
        SpecError: an argument has a value that is not allowed.
    """
    whole, split, traj_format = settings["trajs_per_batch"], settings["split_trajs"], settings["traj_format"]
    if traj_format not in (None, "padded", "cat"):
        raise SpecError(f"{name}: traj_format is 'padded' or 'cat', found {traj_format!r}.")
    if whole is not None and (whole_number(whole) or 0) < 1:
        raise SpecError(f"{name}: trajs_per_batch is a whole number >= 1, found {whole!r}.")
    no_ids = not settings["track_traj_ids"]
    contradictions = {
        "split_trajs=True needs the ids that track_traj_ids=False leaves out": split and no_ids,
        "trajs_per_batch= needs the ids that track_traj_ids=False leaves out": whole and no_ids,
        "trajs_per_batch= gives whole trajectories, split_trajs=True parts of them": whole and split,
        "traj_format='cat' is for trajs_per_batch=": traj_format == "cat" and not whole,
        "replay_buffer= keeps what return_same_td=True writes over": settings["replay_buffer"] is not None
        and settings["return_same_td"],
    }
    for text, applies in contradictions.items():
        if applies:
            raise TypeError(f"{name}: {text}.")


def one_for_each(name: str, argument: str, value: Any, n: int, items: str = "values") -> list[Any]:
    """Return a list with a value for each worker, from one value for all or such a list.

    Raises:
        SpecError: the list has another length.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        return [value] * n
    if len(value) != n:
        raise SpecError(f"{name}: {argument} lists {len(value)} {items} for {n} {'worker' if n == 1 else 'workers'}.")
    return list(value)


def seeds_of(name: str, argument: str, seeds: int | Sequence[int], n: int) -> list[int]:
    """Return a seed for each worker, from a list or from the first of a chain of seeds.

    Raises:
        SpecError: the list has another length.
    """
    if not isinstance(seeds, Sequence):
        chain = [int(seeds)]
        while len(chain) < n:
            chain.append(next_seed(chain[-1]))
        return chain
    return [int(seed) for seed in one_for_each(name, argument, seeds, n, "numbers")]


def policy_of(policy: Any, policy_factory: Callable[[], Any] | None) -> Any:
    """Return the policy, made by ``policy_factory`` if that is passed; None for random actions."""
    if policy_factory is None:
        return policy
    made = policy_factory()
    if made is None:
        raise PolicyError("policy_factory() returned None where a policy is needed.")
    return made


def weights_given(name: str, first: Any, named: Mapping[str, Any]) -> Any:
    """Return the weights passed to ``update_policy_weights_`` under any of their names; None for none.

    Args:
        name: the method, for errors.
        first: its positional argument.
        named: its keyword arguments.

    Raises:
        TypeError: several arguments have weights.
        NotSupported: weights for another model than the policy, or for some of the workers only.
    """
    passed = {key: value for key, value in named.items() if value is not None}
    if passed.get("model_id") == "policy":
        del passed["model_id"]
    if set(passed.get("weights_dict", ())) == {"policy"}:
        passed["weights_dict"] = passed["weights_dict"]["policy"]
        unsupported = ["worker_ids", "model_id"]
    else:
        unsupported = ["worker_ids", "model_id", "weights_dict"]
    for argument in unsupported:
        if argument in passed:
            raise NotSupported(
                f"{name} has one policy, 'policy', which acts everywhere: {argument}={passed[argument]!r} has no use."
            )
    weights = [value for value in (first, *passed.values()) if value is not None]
    if len(weights) > 1:
        raise TypeError(
            f"{name} takes one of policy_or_weights, weights, policy and weights_dict, found {len(weights)}."
        )
    return weights[0] if weights else None
