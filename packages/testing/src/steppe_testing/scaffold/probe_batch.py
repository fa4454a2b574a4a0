"""Inspect an unknown simulator that steps many worlds at once: arrays with a row for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steppe_testing.scaffold.probe_episodes import as_python, parts_of, try_episodes
from steppe_testing.scaffold.probe_values import (
    ProbeError,
    action_of,
    leaves_of,
    name_of,
    one_line,
    parameters_of,
    reset_simulator,
    result_form,
    sample_action,
    seed_route,
    space_of,
)

#: Number of worlds that are made: a size that no entry of one world is likely to have.
WORLDS = 13

_COUNTS = ("num_envs", "n_envs", "num_env", "num_worlds", "n_worlds", "batch_size", "num_games", "n", "num", "count")
_MASKS = ("rows", "mask", "reset_mask", "step_mask", "env_mask", "masks", "which", "where", "done", "dones", "active")
_INDICES = ("env_ids", "env_id", "ids", "indices", "index", "idx", "env_indices", "rows_to_reset", "reset_ids")
_ONE = 1  # the world that is reset or stepped without the others


def count_argument(maker: Any) -> str:
    """Return the argument of a class or factory that says how many worlds it has.

    Raises:
        ProbeError: none has a usual name, and no other is required besides the name.
    """
    parameters = parameters_of(maker)
    for name in _COUNTS:
        if name in parameters:
            return name
    required = [each.name for each in parameters.values() if each.default is each.empty and each.kind in (0, 1)]
    if len(required) == 2:  # the name of the environment comes first
        return str(required[1])
    raise ProbeError(
        f"{name_of(maker)} has no argument for the number of environments, called {', '.join(_COUNTS[:6])}: "
        "name one that has, with --make, or write --kind single"
    )


def describe_batch(simulators: list[Any], names: list[str], answer: dict[str, Any]) -> None:
    """Reset and step the simulators, and add to the answer what their environment needs.

    In addition to the entries of a simulator of one agent, whose shapes are those of one world: ``tensors``: the device
    of values that are tensors of torch, or ""; ``reset_rows``, ``step_rows``: the argument and the form (``"mask"`` or
    ``"indices"``) with which some worlds are reset or stepped without the others, None without; ``selected``: whether
    such a reset returns the selected worlds alone; ``independent``: whether worlds change no data of others.

    Raises:
        ProbeError: a value has no row for each world.
    """
    first = simulators[0]
    answer["seed"] = seed_route(first, answer)
    answer.update(selected=False, independent=True, tensors="")
    answer["reset_rows"], answer["step_rows"] = _argument_of_rows(first.reset), _argument_of_rows(first.step)
    worlds = [_Worlds(simulator, answer) for simulator in simulators]
    leaves = []
    for name, each, simulator in zip(names, worlds, simulators, strict=True):
        try:
            observed, answer["reset"] = reset_simulator(each, answer["seed"], 0)
        except Exception as error:
            raise ProbeError(f"reset() of the simulator {name!r} raises {one_line(error)}") from error
        leaves.append(_rows_of(observed, _space_of_world(simulator), answer["notes"]))
        answer["single"] = not isinstance(observed, Mapping)
        answer["tensors"] = answer["tensors"] or _device_of_tensors(observed)
    answer["observation"] = leaves[0]
    keys = [[leaf["key"] for leaf in group] for group in leaves]
    if any(group != keys[0] for group in keys):
        raise ProbeError(f"the simulators {names} do not observe the same entries: {keys}")
    answer["shapes"] = {
        name: {leaf["key"]: leaf["shape"] for leaf in group} for name, group in zip(names, leaves, strict=True)
    }
    answer["action"] = _action_of_world(first)
    if answer["action"] is None:
        answer["notes"].append("No action space was found: the action spec is a guess, and step() was not tried.")
    else:
        _try_steps(worlds[0], answer)
    _note_missing_rows(answer)


class _Worlds:
    """A simulator that is reset and stepped as one, with an action for each world."""

    def __init__(self, simulator: Any, answer: dict[str, Any]) -> None:
        self._simulator = simulator
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def reset(self, rows: Sequence[int] = range(WORLDS), **seed: Any) -> Any:
        return self._simulator.reset(**seed, **self._selection("reset_rows", rows))

    def step(self, actions: Any, rows: Sequence[int] = range(WORLDS)) -> Any:
        return self._simulator.step(actions, **self._selection("step_rows", rows))

    def _selection(self, method: str, rows: Sequence[int]) -> dict[str, Any]:
        if self._answer[method] is None:
            return {}
        import numpy

        name, form = self._answer[method]
        indices = numpy.asarray(rows)
        return {name: numpy.isin(numpy.arange(WORLDS), indices) if form == "mask" else indices}


def _argument_of_rows(method: Callable[..., Any]) -> tuple[str, str] | None:
    """Return the argument that selects worlds, and its usual form."""
    parameters = parameters_of(method)
    forms = [(name, form) for form, names in (("mask", _MASKS), ("indices", _INDICES)) for name in names]
    return next(((name, form) for name, form in forms if name in parameters), None)


def _space_of_world(simulator: Any) -> Any:
    space = getattr(simulator, "single_observation_space", None)
    return space if space is not None else space_of(simulator)


def _action_of_world(simulator: Any) -> dict[str, Any] | None:
    """Return the actions of one world: of the space of one, or without the first dimension of the space of all."""
    single = getattr(simulator, "single_action_space", None)
    if single is not None:
        return action_of(type("World", (), {"action_space": single}))
    counts = getattr(getattr(simulator, "action_space", None), "nvec", None)
    counts = as_python(counts) if counts is not None else []
    if len(counts) == WORLDS and len(set(map(repr, counts))) == 1 and isinstance(counts[0], int):
        return {"n": counts[0], "start": 0}
    action = action_of(simulator)
    if action is not None and action.get("shape", [])[:1] == [WORLDS]:
        action["shape"] = action["shape"][1:]
    return action


def _rows_of(values: Any, space: Any, notes: list[str]) -> list[dict[str, Any]]:
    """Describe one row of each entry; entries without a row for each world are left out, with a note."""
    if values is None:
        raise ProbeError("reset() returned None: it must return the observations")
    kept = []
    for leaf in leaves_of(values, space, notes):
        value = values
        for key in leaf.get("path", [leaf["key"]]) if isinstance(values, Mapping) else []:
            value = value[key]
        if isinstance(value, (list, tuple)) and len(value) == WORLDS and all(isinstance(each, str) for each in value):
            leaf.update(dtype="text", shape=[WORLDS], scalar=False)
        elif leaf["dtype"] == "object" and isinstance(value, (list, tuple)) and len(value) == WORLDS:
            leaf.update(shape=[WORLDS], scalar=False)
        if leaf["shape"][:1] != [WORLDS]:
            notes.append(
                f"The observation {leaf['key']!r} was left out: it has no row for each of {WORLDS} environments, but "
                f"the shape {tuple(leaf['shape'])}."
            )
            continue
        shape = leaf["shape"][1:]
        kept.append({**leaf, "shape": shape, "scalar": not shape})
    if not kept:
        raise ProbeError(f"reset() returned a {type(values).__name__} without a row for each environment")
    return kept


def _device_of_tensors(values: Any) -> str:
    """Return the device of values that are tensors of torch, or ""."""
    if isinstance(values, Mapping):
        return next(filter(None, map(_device_of_tensors, values.values())), "")
    return str(values.device) if type(values).__module__.split(".")[0] == "torch" else ""


# -- steps ------------------------------------------------------------------------------------------------------------


def _actions(answer: Mapping[str, Any], step: int, *, other: int | None = None) -> Any:
    """Return an action for each world; the world ``other`` takes the action of another step."""
    import numpy

    steps = [step + row + (1 if row == other else 0) for row in range(WORLDS)]
    actions = numpy.asarray([sample_action(answer["action"], each) for each in steps])
    if not answer["tensors"]:
        return actions
    import torch

    return torch.as_tensor(actions, device=answer["tensors"])


def _try_steps(worlds: _Worlds, answer: dict[str, Any]) -> None:
    """Step all worlds, find out how some are reset and stepped alone, and play episodes."""
    try:
        returned = worlds.step(_actions(answer, 0))
    except Exception as error:
        answer["notes"].append(f"step() was not understood: it raises {one_line(error)}. _step is a guess.")
        return
    try:
        answer["step"] = _form_of(returned, answer)
    except ProbeError as error:
        answer["notes"].append(f"step() was not understood: {error}. _step is a guess.")
        return

    def play(step: int) -> tuple[Any, Any, bool]:
        observed, reward, *ends = parts_of(worlds.step(_actions(answer, step)), answer["step"])
        return observed, reward, bool(sum(map(sum, map(_flat, ends))))

    try:
        _find_rows(worlds, answer)
    except Exception as error:
        answer["notes"].append(f"Some environments could not be reset without the others: {one_line(error)}.")
        answer["reset_rows"] = answer["step_rows"] = None
    try_episodes(worlds, answer, play)
    if answer["seed"] in ("reset", "method") and answer.get("deterministic"):
        answer["independent"] = answer["later_follow"] and _are_independent(worlds, answer)


def _form_of(returned: Any, answer: Mapping[str, Any]) -> str:
    """Return the form of the result of a step, whose rewards and ends have a row for each world."""
    form = result_form(returned)
    if (
        form == "flags"
        and isinstance(returned[3], (list, tuple))
        and all(isinstance(each, Mapping) for each in returned[3])
    ):
        form = "four"  # an info for each world
    if form == "timestep":
        raise ProbeError("it returned a time step of dm_env, which has one step type for all")
    observed, reward, *ends = parts_of(returned, form)
    later = [(leaf["key"], leaf["shape"]) for leaf in _rows_of(observed, None, [])]
    if later != [(leaf["key"], leaf["shape"]) for leaf in answer["observation"]]:
        raise ProbeError(f"it returned the observations {later}, but reset() returned others")
    for name, values in zip(("reward", "terminated", "truncated"), (reward, *ends), strict=True):
        if not isinstance(values, bool) and len(_flat(values)) != WORLDS:
            raise ProbeError(f"{name} has {len(_flat(values))} values for {WORLDS} environments")
    if isinstance(ends[0], bool):
        raise ProbeError("it returned one end for all environments")
    return form


def _flat(values: Any) -> list[Any]:
    values = as_python(values)
    return [each for part in values for each in _flat(part)] if isinstance(values, (list, tuple)) else [values]


# -- some of the worlds -----------------------------------------------------------------------------------------------


def _find_rows(worlds: _Worlds, answer: dict[str, Any]) -> None:
    """Find out with which form of rows a reset and a step leave the other worlds alone."""
    step_rows, reset_rows = answer["step_rows"], answer["reset_rows"]
    answer["step_rows"] = next((rows for rows in _forms(step_rows) if _steps_one(worlds, answer, rows)), None)
    answer["reset_rows"] = None
    for rows in _forms(reset_rows):
        selected = _resets_one(worlds, answer, rows)
        if selected is not None:
            answer["reset_rows"], answer["selected"] = rows, selected
            return


def _forms(rows: tuple[str, str] | None) -> list[tuple[str, str]]:
    """Return the argument with each form that it may take, the usual one of its name first."""
    return [] if rows is None else [(rows[0], form) for form in dict.fromkeys((rows[1], "mask", "indices"))]


def _resets_one(worlds: _Worlds, answer: dict[str, Any], rows: tuple[str, str]) -> bool | None:
    """Return whether a reset of one world returns that world alone; None if it changes others, or fails."""
    answer["reset_rows"] = rows
    try:
        reset_simulator(worlds, answer["seed"], 0)
        before = _others(parts_of(worlds.step(_actions(answer, 0)), answer["step"])[0])
        fresh, _ = reset_simulator(worlds, answer["seed"], None, rows=[_ONE])
        sizes = {len(value) for value in _values(fresh)}
        if sizes == {1}:
            return True
        return False if sizes == {WORLDS} and _others(fresh) == before else None
    except Exception:  # the library takes another form
        return None
    finally:
        answer["reset_rows"] = None


def _steps_one(worlds: _Worlds, answer: dict[str, Any], rows: tuple[str, str]) -> bool:
    """Return whether a step of one world leaves the others alone."""
    try:
        before = _others(reset_simulator(worlds, answer["seed"], 0)[0])
        answer["step_rows"] = rows
        stepped = parts_of(worlds.step(_actions(answer, 0), [_ONE]), answer["step"])[0]
        return all(len(value) == WORLDS for value in _values(stepped)) and _others(stepped) == before
    except Exception:  # the library takes another form
        return False
    finally:
        answer["step_rows"] = None


def _are_independent(worlds: _Worlds, answer: dict[str, Any]) -> bool:
    """Return whether another action, or a reset, of one world leaves the data of the others alone."""

    def data_of_others(other: int | None) -> list[str]:
        reset_simulator(worlds, answer["seed"], 0)
        worlds.step(_actions(answer, 0, other=other))
        if other is not None and answer["reset_rows"] is not None:
            reset_simulator(worlds, answer["seed"], None, rows=[other])
        observed, reward, *_ = parts_of(worlds.step(_actions(answer, 1)), answer["step"])
        data = [_others(observed), _others(reward)]
        if answer["reset_rows"] is not None:  # one generator of all worlds shows in later episodes
            rows = [row for row in range(WORLDS) if row != _ONE]
            fresh, _ = reset_simulator(worlds, answer["seed"], None, rows=rows)
            data.append(repr(list(map(as_python, _values(fresh)))) if answer["selected"] else _others(fresh))
        return data

    return data_of_others(_ONE) == data_of_others(None)


def _values(values: Any) -> list[Any]:
    """Return the arrays and lists of nested dicts."""
    if isinstance(values, Mapping):
        return [each for part in values.values() for each in _values(part)]
    return [values] if hasattr(values, "__len__") and not isinstance(values, str) else []


def _others(values: Any) -> str:
    """Return the rows of the worlds that are not reset or stepped, as a text: simulators may reuse their arrays."""
    return repr([[as_python(value[row]) for row in range(WORLDS) if row != _ONE] for value in _values(values)])


def _note_missing_rows(answer: dict[str, Any]) -> None:
    """Note which of the environments' rows the simulator cannot reset or step alone."""
    reset, step = (f"{answer['path']}.{answer['methods'][name]}()" for name in ("reset", "step"))
    if answer["reset_rows"] is None:
        answer["notes"].append(
            f"{reset} has no argument that resets some environments without the others "
            f"({', '.join(_MASKS[:2] + _INDICES[:2])}), so _reset refuses to. If step() begins the next episode "
            "of an ended environment itself, return the last observation of the ended episode from _step, and the "
            "first one of the next from _reset."
        )
    if answer["step_rows"] is None:
        answer["notes"].append(
            f"{step} has no argument that steps some environments without the others, so _step refuses to."
        )
