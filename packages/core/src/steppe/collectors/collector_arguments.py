"""The arguments of collectors: validated, and converted to environments, policies, seeds and numbers of frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

from steppe.arguments import ignored_argument, unknown_argument
from steppe.envs import EnvBase
from steppe.errors import ArgumentError, NotSupported
from steppe.registry import env_factory

__all__ = [
    "IGNORED",
    "check",
    "check_others",
    "make",
    "makers_of",
    "one_for_each",
    "whole_number",
]

#: Arguments of TorchRL that have no effect here, and the behaviour of the collector in any case.
IGNORED = {
    "use_buffers": "data of fixed shape is written into one storage, other data is stacked",
    "no_cuda_sync": "data is moved between devices in order, with what has to be waited for",
    "cudagraph_policy": "the policy is called as it is given",
    "worker_idx": "this collector collects in the caller's process",
    "num_threads": "the caller's process keeps the number that it has",
}

_ONE_PROCESS = "collect in this process, with ParallelEnv to use several"
#: Arguments of TorchRL that are not supported: the values that can be passed all the same, and the alternative.
_NOT_SUPPORTED: dict[str, tuple[tuple[object, ...], str]] = {
    **dict.fromkeys(
        ("weight_updater", "weight_sync_schemes", "weight_recv_schemes"), ((None,), "call update_policy_weights_")
    ),
    "reset_when_done": ((True,), "a loop with env.step, because an environment is not stepped after its episode"),
    "extend_buffer": ((True,), "postproc=, or a replay buffer whose extend does it"),
    "backend": ((None, "direct"), _ONE_PROCESS),
    "num_collectors": ((None, 1), _ONE_PROCESS),
    "sync": ((None,), _ONE_PROCESS),
    "backend_options": ((None, {}), _ONE_PROCESS),
}

#: Arguments that only workers use.
_OF_WORKERS = (
    *("slot_len", "num_slots", "start_method", "batch_timeout", "preemptive_threshold", "start_timeout"),
    *("num_sub_threads", "update_at_each_batch", "devices"),
)


def check_others(name: str, others: Mapping[str, Any], known: Iterable[str]) -> None:
    """Warn of arguments of TorchRL's collectors that have no effect here, and refuse all other unknown ones.

    Args:
        name: the collector's class.
        others: arguments by name that are not in the signature of the collector.
        known: names of the arguments in the signature, suggested for a misspelt one.

    Raises:
        NotSupported: an argument requests something that is not supported.
        TypeError: there is no such argument.
    """
    for argument, value in others.items():
        if argument in IGNORED:
            ignored_argument(name, argument, IGNORED[argument])
            continue
        if argument not in _NOT_SUPPORTED:
            raise unknown_argument(name, argument, [*known, *IGNORED, *_NOT_SUPPORTED])
        accepted, instead = _NOT_SUPPORTED[argument]
        if value not in accepted:
            raise NotSupported(f"{name} does not take {argument}={value!r} yet. Instead: {instead}.")


def check(
    name: str, settings: Mapping[str, Any], defaults: Mapping[str, Any], *, has_workers: bool, joins_batches: bool
) -> None:
    """Refuse arguments that contradict each other, or that are of no use to the backend.

    Args:
        name: the collector's class.
        settings: all arguments of its constructor, defaults included.
        defaults: the defaults.
        has_workers: whether worker processes collect.
        joins_batches: whether the class joins the batches of workers as ``cat_results`` says.

    Raises:
        TypeError: two arguments contradict each other, or one has no use.
        ArgumentError: an argument has a value that is not allowed.
    """
    whole, split, traj_format = settings["trajs_per_batch"], settings["split_trajs"], settings["traj_format"]
    if traj_format not in (None, "padded", "cat"):
        raise ArgumentError(f"{name}: traj_format is 'padded' or 'cat', found {traj_format!r}.")
    cat_results, threshold = settings["cat_results"], settings["preemptive_threshold"]
    if joins_batches and cat_results not in (None, "stack", 0, -1):
        raise ArgumentError(f"{name}: cat_results is 'stack', 0 or -1, found {cat_results!r}.")
    if threshold is not None and not 0.0 <= threshold <= 1.0:
        raise ArgumentError(f"{name}: preemptive_threshold lies between 0 and 1, found {threshold!r}.")
    given = {argument for argument, value in settings.items() if value is not None}
    no_ids = not settings["track_traj_ids"]
    contradictions = {
        "split_trajs=True needs the ids that track_traj_ids=False leaves out": split and no_ids,
        "trajs_per_batch= needs the ids that track_traj_ids=False leaves out": whole and no_ids,
        "trajs_per_batch= gives whole trajectories, split_trajs=True parts of them": whole and split,
        "traj_format='cat' is for trajs_per_batch=": traj_format == "cat" and not whole,
        "replay_buffer= keeps what return_same_td=True writes over": "replay_buffer" in given
        and settings["return_same_td"],
        "give seed= or seeds=, not both": {"seed", "seeds"} <= given,
        "give a policy or a policy_factory, not both": {"policy", "policy_factory"} <= given,
        "interruptor= is for a collector in the caller's process; see preemptive_threshold=": has_workers
        and "interruptor" in given,
        "cat_results= is for MultiSyncDataCollector; here batches are [lanes, T]": not joins_batches
        and "cat_results" in given,
    }
    for argument in _OF_WORKERS:
        is_set = settings[argument] != defaults[argument]
        contradictions[f"{argument}= is for workers: say num_workers= too"] = is_set and not has_workers
    for text, applies in contradictions.items():
        if applies:
            raise TypeError(f"{name}: {text}.")


def makers_of(name: str, create_env_fn: Any, num_workers: int | None, *, always: bool) -> list[Any] | None:
    """Return the factory of each worker's environment; None for an environment in the caller's process.

    Args:
        name: the collector's class.
        create_env_fn, num_workers: its arguments.
        always: whether the class always has workers.

    Raises:
        ArgumentError: the number of workers is unclear.
    """
    if not always and not num_workers:
        return None
    if isinstance(create_env_fn, (list, tuple)):
        makers = list(create_env_fn)
        if num_workers and num_workers != len(makers):
            raise ArgumentError(f"{name}: num_workers={num_workers}, and create_env_fn lists {len(makers)}.")
        if not makers:
            raise ArgumentError(f"{name}: create_env_fn is an empty list, where each worker needs something to make.")
    elif not num_workers:
        raise ArgumentError(f"{name}: create_env_fn is a list with one entry for each worker; or say num_workers=.")
    else:
        makers = [create_env_fn] * whole_number(f"{name}: num_workers", num_workers)
    return [env_factory(maker) if isinstance(maker, str) else maker for maker in makers]


def make(create_env_fn: Any, kwargs: dict[str, Any] | None, name: str) -> tuple[EnvBase, bool]:
    """Return the environment, and whether this function made it (and the collector has to close it on errors).

    Args:
        create_env_fn: an environment, an id, a function, or a list with one of these.
        kwargs: keyword arguments for the function or the id.
        name: of the collector, for errors.

    Raises:
        TypeError: ``create_env_fn`` is something else, or ``kwargs`` cannot be passed to it.
        ArgumentError: the function returned something else than an environment.
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
        create_env_fn = env_factory(create_env_fn)
    if isinstance(create_env_fn, (list, tuple)):
        raise TypeError(
            f"{name} takes one environment, found a list of {len(create_env_fn)}. Make a batch of them: "
            "SerialEnv(n, functions) or ParallelEnv(n, functions)."
        )
    if not callable(create_env_fn):
        raise TypeError(
            f"{name} takes an environment, an id or a function that makes one, found {type(create_env_fn).__name__}."
        )
    env = create_env_fn(**(kwargs or {}))
    if not isinstance(env, EnvBase):
        raise ArgumentError(f"{name}: create_env_fn returned {type(env).__name__} where an environment is needed.")
    return env, True


def whole_number(argument: str, value: Any, *, optional: bool = False) -> int:
    """Convert a whole number >= 1 of any type (``1e6``, a number of NumPy) to int.

    Args:
        argument: its name, for errors.
        value: the number.
        optional: smaller numbers are allowed too, and None, which becomes -1.

    Raises:
        ArgumentError: it is something else.
    """
    number = -1 if optional and value is None else None
    if isinstance(value, float) and value.is_integer():
        number = int(value)
    elif isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = value.__index__()
    if number is None or (number < 1 and not optional):
        raise ArgumentError(f"{argument} is a whole number{', or None' if optional else ' >= 1'}, found {value!r}.")
    return number


def one_for_each(name: str, argument: str, value: Any, n: int, items: str = "values") -> list[Any]:
    """Return a list with a value for each worker, from one value for all or such a list.

    Raises:
        ArgumentError: the list has another length.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        return [value] * n
    if len(value) != n:
        raise ArgumentError(
            f"{name}: {argument} lists {len(value)} {items} for {n} {'worker' if n == 1 else 'workers'}."
        )
    return list(value)
