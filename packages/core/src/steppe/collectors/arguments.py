"""From the arguments of a collector to an environment and a policy that fit."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import CudaGraphModule

from steppe.arguments import ignored_argument, unknown_argument
from steppe.collectors.delivery import Output
from steppe.envs import EnvBase, next_seed
from steppe.errors import NotSupported, PolicyError, SpecError
from steppe.registry import make_env
from steppe.transforms import StepCounter, TransformedEnv

__all__ = [
    "IGNORED",
    "asked_between_steps",
    "check_frames",
    "check_slots",
    "checked_output",
    "compiled",
    "frames_of_workers",
    "limit_steps",
    "make",
    "moved",
    "one_for_each",
    "one_seed",
    "policy_of",
    "seeds_of",
    "take_others",
    "weights_given",
    "whole_number",
    "within_devices",
]

#: Arguments that only choose how: the value that is read where none is given, and what is done.
IGNORED: dict[str, tuple[Any, str]] = {
    "use_buffers": (None, "data of fixed shape is written into one storage, other data is stacked"),
    "no_cuda_sync": (False, "data is moved between devices in order, with what has to be waited for"),
    "worker_idx": (None, "this collector collects in the caller's process"),
}

#: Arguments of collectors that are not built yet, the values that ask for nothing, and what to do instead.
_NOT_YET: dict[str, tuple[tuple[Any, ...], str]] = {
    "weight_updater": ((None,), "call update_policy_weights_"),
    "weight_sync_schemes": ((None,), "call update_policy_weights_"),
    "weight_recv_schemes": ((None,), "call update_policy_weights_"),
    "backend": ((None, "direct"), "collect in this process, with ParallelEnv to use several"),
    "num_collectors": ((None, 1), "collect in this process, with ParallelEnv to use several"),
    "sync": ((None,), "collect in this process, with ParallelEnv to use several"),
    "backend_options": ((None, {}), "collect in this process, with ParallelEnv to use several"),
}


def take_others(name: str, given: dict[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Take what a collector of TorchRL takes beside the arguments that have an effect here.

    Args:
        name: the collector's class.
        given: arguments and their values.
        known: those that have an effect, to be suggested for a name that does not exist.

    Returns:
        Values of the arguments that only choose how.

    Raises:
        NotSupported: one asks for something that is not built yet.
        TypeError: there is no such argument.
    """
    for argument, value in given.items():
        if argument not in _NOT_YET and argument not in IGNORED:
            raise unknown_argument(name, argument, [*known, *IGNORED, *_NOT_YET])
        nothing, instead = _NOT_YET.get(argument, ((value,), ""))
        if value not in nothing:
            raise NotSupported(f"{name} does not take {argument}={value!r} yet. Instead: {instead}.")
    own = {argument: value for argument, value in given.items() if argument in IGNORED}
    for argument in own:
        ignored_argument(name, argument, IGNORED[argument][1])
    return {**{argument: value for argument, (value, _) in IGNORED.items()}, **own}


def make(create_env_fn: Any, kwargs: dict[str, Any] | None, name: str) -> tuple[EnvBase, bool]:
    """Return the environment, and whether it was made here.

    Raises:
        TypeError: ``create_env_fn`` is none of an environment, an id or a function, or ``kwargs`` has no use.
        SpecError: the function returned something else.
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


def limit_steps(env: EnvBase, max_frames: Any) -> EnvBase:
    """Let episodes be truncated after ``max_frames`` steps; no limit where it is None, 0 or negative.

    Raises:
        SpecError: it is not a number of steps, or something counts steps already.
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
    """The number that ``value`` stands for, ``1e6`` and a number of NumPy too; None where it is none."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def check_frames(frames_per_batch: Any, total_frames: Any, rows: int) -> tuple[int, int, list[str]]:
    """Return how many steps a batch has, how many frames there are in all (-1 for no end), and what to warn of.

    Raises:
        SpecError: one of them is not a number of frames.
    """
    batch, total = whole_number(frames_per_batch), -1 if total_frames is None else whole_number(total_frames)
    if batch is None or batch < 1:
        raise SpecError(f"frames_per_batch is a whole number >= 1, found {frames_per_batch!r}.")
    if total is None:
        raise SpecError(f"total_frames is a whole number, or negative for no end, found {total_frames!r}.")
    steps = -(-batch // rows)
    frames, notes = steps * rows, []
    if frames != batch:
        notes.append(f"frames_per_batch={batch} is rounded up to {frames}: {steps} steps of {rows} rows.")
    if total > 0 and total % frames:
        whole = -(-total // frames) * frames
        notes.append(f"total_frames={total} is rounded up to {whole}: whole batches of {frames}.")
    return steps, total, notes


def checked_output(name: str, given: Mapping[str, Any], storing_device: torch.device | None) -> Output:
    """What is to become of batches, checked: it has to fit together. ``postproc`` is moved to ``storing_device``.

    Args:
        name: of the collector, for errors.
        given: the arguments of its constructor, those that have a default and were not given included.
        storing_device: where batches go.

    Raises:
        TypeError: two arguments contradict each other.
        SpecError: a value that an argument does not have.
    """
    buffer, whole, postproc = given["replay_buffer"], given["trajs_per_batch"], given["postproc"]
    split, form = given["split_trajs"], given["traj_format"]
    if form not in (None, "padded", "cat"):
        raise SpecError(f"{name}: traj_format is 'padded' or 'cat', found {form!r}.")
    if whole is not None and (whole_number(whole) or 0) < 1:
        raise SpecError(f"{name}: trajs_per_batch is a whole number >= 1, found {whole!r}.")
    no_ids, steps_alone = not given["track_traj_ids"], not given["extend_buffer"]
    contradictions = {
        "split_trajs=True needs the ids that track_traj_ids=False leaves out": split and no_ids,
        "trajs_per_batch= needs the ids that track_traj_ids=False leaves out": whole and no_ids,
        "trajs_per_batch= gives whole trajectories, split_trajs=True parts of them": whole and split,
        "traj_format='cat' is for trajs_per_batch=": form == "cat" and not whole,
        "extend_buffer=False adds steps, without postproc= and split_trajs=": steps_alone and (postproc or split),
        "replay_buffer= keeps what return_same_td=True writes over": buffer is not None and given["return_same_td"],
    }
    for said, holds in contradictions.items():
        if holds:
            raise TypeError(f"{name}: {said}.")
    return Output(
        split_trajs=bool(split),
        postproc=moved(postproc, storing_device),
        hook=given["post_collect_hook"],
        replay_buffer=buffer,
        extend_buffer=given["extend_buffer"],
        trajs_per_batch=whole,
        trajs_per_write=given["trajs_per_write"],
        traj_format=form or "padded",
        reset_at_each_iter=bool(given["reset_at_each_iter"]),
    )


def one_for_each(name: str, argument: str, value: Any, n: int) -> list[Any]:
    """A value for each worker, from one for all or a list of them."""
    if not isinstance(value, (list, tuple)):
        return [value] * n
    if len(value) != n:
        raise SpecError(f"{name}: {argument} lists {len(value)} values for {n} workers.")
    return list(value)


def frames_of_workers(
    name: str, frames_per_batch: Any, total_frames: Any, n: int, share: Callable[[int], int]
) -> tuple[list[int], int]:
    """How many frames each worker is asked for, and how many there are in all (-1 for no end).

    Args:
        name: the collector's class.
        frames_per_batch: of all, or a list with one for each.
        total_frames: of all.
        n: workers.
        share: a worker's part of what is said for all.

    Raises:
        SpecError: these are no numbers of frames.
    """
    total = -1 if total_frames is None else whole_number(total_frames)
    if total is None:
        raise SpecError(f"total_frames is a whole number, or negative for no end, found {total_frames!r}.")
    listed = isinstance(frames_per_batch, Sequence)
    numbers = [whole_number(each) for each in (frames_per_batch if listed else [frames_per_batch])]
    if any(each is None or each < 1 for each in numbers):
        raise SpecError(f"frames_per_batch is a whole number >= 1, found {frames_per_batch!r}.")
    if not listed:
        return [share(numbers[0] or 1)] * n, total
    if len(numbers) != n:
        raise SpecError(f"{name}: frames_per_batch lists {len(numbers)} numbers for {n} workers.")
    return [each or 1 for each in numbers], total


#: Steps of a slot where nobody says how many.
_SLOT_LEN = 100


def check_slots(name: str, length: Any, number: Any, lanes: int) -> tuple[int, int]:
    """Steps of a slot, and how many slots there are.

    Raises:
        SpecError: these are no whole numbers, or there are fewer slots than lanes, which all write at once.
    """
    length, number = _SLOT_LEN if length is None else length, 2 * lanes if number is None else number
    for argument, value in {"slot_len": length, "num_slots": number}.items():
        if (whole_number(value) or 0) < 1:
            raise SpecError(f"{name}: {argument} is a whole number >= 1, found {value!r}.")
    if number < lanes:
        raise SpecError(f"{name}: num_slots={number} is less than the {lanes} environments that run at once.")
    return int(length), int(number)


def asked_between_steps(name: str, interruptor: Any) -> Callable[[], bool] | None:
    """What says whether a batch is to end here; None where nobody has a say.

    Raises:
        TypeError: the interruptor cannot be asked.
    """
    if interruptor is None:
        return None
    asked = getattr(interruptor, "collection_stopped", None)
    if not callable(asked):
        raise TypeError(
            f"{name}: interruptor= is asked between steps by its collection_stopped(), which "
            f"{type(interruptor).__name__} has not."
        )
    return asked  # type: ignore[no-any-return]


def moved(postproc: Any, device: torch.device | None) -> Any:
    """``postproc`` on the device of the batches, where it is something that moves."""
    if device is None or not hasattr(postproc, "to"):
        return postproc
    there = postproc.to(device)
    return postproc if there is None else there


def one_seed(name: str, seed: int | None, seeds: int | Sequence[int] | None) -> int | None:
    """The seed of a collector without workers, by whichever name it was given."""
    if seeds is None:
        return seed
    if seed is not None:
        raise TypeError(f"{name}: give seed= or seeds=, not both.")
    return seeds_of(name, "seeds", seeds, 1)[0]


def seeds_of(name: str, argument: str, seeds: int | Sequence[int], n: int) -> list[int]:
    """A seed for each worker, from one for all that follow from it, or a list.

    Raises:
        SpecError: the list has another length.
    """
    if not isinstance(seeds, Sequence):
        found = [int(seeds)]
        while len(found) < n:
            found.append(next_seed(found[-1]))
        return found
    if len(seeds) != n:
        raise SpecError(f"{name}: {argument} lists {len(seeds)} numbers for {n} {'worker' if n == 1 else 'workers'}.")
    return [int(seed) for seed in seeds]


def policy_of(policy: Any, policy_factory: Callable[[], Any] | None) -> Any:
    """The policy that was given, or that the factory makes; None for random actions."""
    if policy is not None and policy_factory is not None:
        raise TypeError("Give a policy or a policy_factory, not both.")
    if policy_factory is None:
        return policy
    made = policy_factory()
    if made is None:
        raise PolicyError("policy_factory() returned None where a policy is needed.")
    return made


def within_devices(act: Callable[[TensorDictBase], TensorDictBase], there: torch.device, back: torch.device) -> Any:
    """Run a policy on another device than the environment."""

    def cast(tensordict: TensorDictBase) -> TensorDictBase:
        written = act(tensordict.to(there))
        # What a policy may return beside a TensorDict is told by who adds it to the root.
        return written.to(back) if isinstance(written, TensorDictBase) else written

    return cast


_WEIGHTS = ("policy_or_weights", "weights", "policy", "policy_weights", "weights_dict", "model_id", "worker_ids")


def weights_given(name: str, first: Any, named: Mapping[str, Any]) -> Any:
    """The one thing that ``update_policy_weights_`` was given, by whichever name; None for nothing.

    Args:
        name: the method, for errors.
        first: its positional argument.
        named: its others.

    Raises:
        TypeError: there are several, or an argument that does not exist.
        NotSupported: another model than the policy, or some of the workers.
    """
    unknown = sorted(set(named) - set(_WEIGHTS[1:]))
    if unknown:
        raise unknown_argument(name, unknown[0], _WEIGHTS)
    asked = {key: value for key, value in named.items() if value is not None}
    if asked.get("model_id") == "policy":
        del asked["model_id"]
    refused: dict[str, Any]
    if set(asked.get("weights_dict", {"policy"})) == {"policy"}:
        own = asked.pop("weights_dict", {}).get("policy")
        asked.update({} if own is None else {"weights_dict": own})
        refused = {key: asked[key] for key in ("worker_ids", "model_id") if key in asked}
    else:
        refused = {key: asked[key] for key in ("worker_ids", "model_id", "weights_dict") if key in asked}
    for argument, value in refused.items():
        raise NotSupported(f"{name} has one policy, 'policy', which acts everywhere: {argument}={value!r} has no use.")
    given = [one for one in (first, *asked.values()) if one is not None]
    if len(given) > 1:
        raise TypeError(
            "update_policy_weights_ takes one of policy_or_weights, weights, policy, policy_weights and "
            f"weights_dict, found {len(given)}."
        )
    return given[0] if given else None


def compiled(act: Any, compile_policy: Any, cudagraph_policy: Any, device: torch.device | None) -> Any:
    """Apply ``torch.compile``, or CUDA graphs, to what acts.

    Args:
        act: a callable on TensorDicts.
        compile_policy: True, or keyword arguments of ``torch.compile``; None or False for no.
        cudagraph_policy: True, or keyword arguments of ``tensordict.nn.CudaGraphModule``; None or False for no.
        device: where it acts.
    """
    if compile_policy is not None and compile_policy is not False:
        arguments = dict(compile_policy) if isinstance(compile_policy, Mapping) else {}
        arguments.pop("warmup", None)  # how many calls go uncompiled first: TorchRL's own
        act = torch.compile(act, **arguments)
    if cudagraph_policy is not None and cudagraph_policy is not False:
        arguments = dict(cudagraph_policy) if isinstance(cudagraph_policy, Mapping) else {}
        act = CudaGraphModule(act, in_keys=[], out_keys=[], device=device, **arguments)
    return act
