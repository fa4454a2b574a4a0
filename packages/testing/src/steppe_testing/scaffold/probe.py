"""Inspect an unknown simulator: make, reset and step it, and describe its data.

This module runs in a separate process (``python -m steppe_testing.scaffold.probe REQUEST ANSWER``), because a library
may print, hang or crash. REQUEST and ANSWER are JSON files; :class:`steppe_testing.scaffold.simulator.Simulator`
describes the entries of the answer. The module does not need torch. It needs numpy only for libraries that return
arrays, which depend on numpy themselves.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from steppe_testing.scaffold.probe_agents import describe_agents
from steppe_testing.scaffold.probe_batch import WORLDS, count_argument, describe_batch
from steppe_testing.scaffold.probe_episodes import parts_of, try_episodes
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
    value_of,
)

_NAMED = ("name", "id", "env_id", "env_name", "level", "map", "task", "layout", "scenario", "game")
_NO_NAMES = ("seed", "rng", "device", "dtype", "backend", "render_mode", "config", "options", "verbose")
_UNKNOWN = "no-environment-has-this-name"


def look(request: Mapping[str, Any]) -> dict[str, Any]:
    """Inspect the simulator of a request.

    Args:
        request: ``library`` (a distribution, or None), ``make`` (``"module:name"``, or None), ``names``, ``methods``
            (the methods for ``"reset"`` and ``"step"``), ``kind`` (``"single"``, ``"group"`` or ``"batch"``).

    Returns:
        The answer that :class:`~steppe_testing.scaffold.simulator.Simulator` describes; ``problem`` is the reason if
            the inspection stopped.
    """
    answer: dict[str, Any] = {"module": _module_name(request), "notes": []}
    try:
        module = _imported(answer["module"])
        methods = answer["methods"] = request["methods"]
        answer["path"] = _factory_path(module, request["make"], methods)
        maker = _attribute(module, answer["path"])
        if request["kind"] == "batch":
            answer["count"] = count_argument(maker)
        simulators = [_Renamed(each, methods) for each in _make_simulators(maker, request["names"], answer)]
        if request["kind"] == "group":
            describe_agents(simulators, request["names"], answer)
        elif request["kind"] == "batch":
            describe_batch(simulators, request["names"], answer)
        else:
            _describe(simulators, request["names"], answer)
    except ProbeError as error:
        answer["problem"] = str(error)
    return answer


# -- finding and making the simulator ---------------------------------------------------------------------------------


def _module_name(request: Mapping[str, Any]) -> str:
    if request["make"]:
        return str(request["make"]).partition(":")[0]
    library = _canonical(request["library"])
    modules = [
        module
        for module, dists in packages_distributions().items()
        if library in map(_canonical, dists) and module.isidentifier() and not module.startswith("_")
    ]
    same_name = library.replace("-", "_")
    return same_name if same_name in modules or not modules else min(modules)


def _canonical(name: str) -> str:
    return name.replace("_", "-").replace(".", "-").lower()


def _imported(name: str) -> Any:
    try:
        if find_spec(name) is None:
            raise ProbeError(f"There is no module {name} here")
        return importlib.import_module(name)
    except ProbeError:
        raise
    except ModuleNotFoundError as error:
        raise ProbeError(f"There is no module {error.name or name} here") from None
    except Exception as error:
        raise ProbeError(f"import {name} raises {one_line(error)}") from error


class _Renamed:
    """A simulator, whose methods are called ``reset`` and ``step`` here."""

    def __init__(self, simulator: Any, methods: Mapping[str, str]) -> None:
        self._simulator = simulator
        self.reset, self.step = (getattr(simulator, methods[name]) for name in ("reset", "step"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)


def _factory_path(module: Any, make: str | None, methods: Mapping[str, str]) -> str:
    """Return the name of the simulator class or factory in the module."""
    if make:
        return make.partition(":")[2]
    classes = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and inspect.isclass(value)
        and value.__module__.split(".")[0] == module.__name__.split(".")[0]
        and not inspect.isabstract(value)
        and all(callable(getattr(value, method, None)) for method in methods.values())
    ]
    if len(classes) == 1:
        return str(classes[0])
    if not classes and callable(getattr(module, "make", None)):
        return "make"
    candidates = f"{', '.join(sorted(classes))} all have" if classes else "no public class has"
    raise ProbeError(
        f"{module.__name__}: {candidates} {methods['reset']}() and {methods['step']}(). Name the class or factory: "
        f"--make {module.__name__}:Class, and other methods with --reset and --step"
    )


def _attribute(module: Any, path: str) -> Any:
    value = module
    for part in path.split("."):
        if not hasattr(value, part):
            raise ProbeError(f"{module.__name__} has no {path}")
        value = getattr(value, part)
    if not callable(value):
        raise ProbeError(f"{module.__name__}.{path} is not a class or function")
    return value


def _make_simulators(maker: Any, names: list[str], answer: dict[str, Any]) -> list[Any]:
    """Make a simulator for each name.

    Record whether the factory accepts names and seeds.
    """
    parameters = parameters_of(maker)
    count = {answer["count"]: WORLDS} if "count" in answer else {}
    count_is_first = bool(count) and next(iter(parameters)) == answer["count"]
    parameters = {key: parameter for key, parameter in parameters.items() if key not in count}
    first = next((each for each in parameters.values() if each.kind in (0, 1)), None)
    required = [each for each in parameters.values() if each.default is each.empty and each.kind in (0, 1)]
    if len(required) > 1:
        others = ", ".join(each.name for each in required[1:])
        raise ProbeError(f"{name_of(maker)} has arguments without a default ({others}), but only a name can be passed")
    answer["names"] = names
    answer["name_keyword"] = first.name if count_is_first and first is not None else ""
    answer["constructor_seed"] = "seed" in parameters

    def make(name: str | None) -> Any:
        return _call(maker, name, answer["name_keyword"], count)

    refusal = None if first is None or _is_name(first) else _refusal(make, first, answer)
    takes_name = answer["takes_name"] = first is not None and refusal is None
    simulators = []
    for name in names:
        try:
            simulators.append(make(name if takes_name else None))
        except Exception as error:
            arguments = [repr(name)] if takes_name else []
            arguments += [f"{key}={value}" for key, value in count.items()]
            raise ProbeError(f"{name_of(maker)}({', '.join(arguments)}) raises {one_line(error)}") from error
    for option, method in answer["methods"].items():
        if not callable(getattr(simulators[0], method, None)):
            raise ProbeError(
                f"{name_of(maker)} makes a {type(simulators[0]).__name__}, which has no {method}(): name the method "
                f"with --{option}"
            )
    if len(names) > 1 and not takes_name:
        reason = f" ({refusal})" if refusal else ""
        answer["notes"].append(
            f"{name_of(maker)} takes no name{reason}, so {', '.join(names)} are the same environment: write into NAMES "
            "of plugin.py which arguments each name passes to it."
        )
    answer["closes"] = callable(getattr(simulators[0], "close", None))
    return simulators


def _call(maker: Any, name: str | None, keyword: str, count: Mapping[str, int]) -> Any:
    if name is None:
        return maker(**count)
    return maker(**{keyword: name}, **count) if keyword else maker(name, **count)


def _is_name(parameter: inspect.Parameter) -> bool:
    """Return whether an argument takes the name without a doubt."""
    return parameter.default is parameter.empty or parameter.name in _NAMED


def _refusal(make: Callable[[str], Any], parameter: inspect.Parameter, answer: dict[str, Any]) -> str | None:
    """Return why an argument with a default takes no name, or None if it takes each name.

    A simulator made with the name must be reset without an error. Because many constructors only store their arguments,
    an argument must also refuse a name that does not exist; one that may be a text is taken with a note instead.
    """
    if parameter.name in _NO_NAMES:
        return f"its first argument is {parameter.name}"

    def error_of(name: str) -> Exception | None:
        try:
            simulator = _Renamed(make(name), answer["methods"])
            reset_simulator(simulator, seed_route(simulator, answer), 0)
            value_of(getattr(simulator, "close", None))  # a second open simulator may be refused
        except Exception as error:
            return error
        return None

    for name in answer["names"]:
        error = error_of(name)
        if error is not None:
            return f"{parameter.name}={name!r} raises {one_line(error)}"
    if error_of(_UNKNOWN) is not None:
        return None
    annotated = parameter.annotation is not parameter.empty
    may_be_text = re.search(r"\bstr\b", str(parameter.annotation)) if annotated else parameter.default is None
    if not isinstance(parameter.default, str) and not may_be_text:
        return f"its first argument, {parameter.name}, accepts any value"
    answer["notes"].append(f"The names are passed as {parameter.name}, which accepts any text: is that right?")
    return None


# -- resetting and stepping -------------------------------------------------------------------------------------------


def _describe(simulators: list[Any], names: list[str], answer: dict[str, Any]) -> None:
    first = simulators[0]
    answer["seed"] = seed_route(first, answer)
    observed = []
    for name, simulator in zip(names, simulators, strict=True):
        try:
            observed.append(reset_simulator(simulator, answer["seed"], 0))
        except Exception as error:
            raise ProbeError(f"reset() of the simulator {name!r} raises {one_line(error)}") from error
    answer["reset"] = observed[0][1]
    leaves = [
        leaves_of(values, space_of(sim), answer["notes"]) for sim, (values, _) in zip(simulators, observed, strict=True)
    ]
    if not leaves[0] or observed[0][0] is None:
        raise ProbeError(f"reset() returned a {type(observed[0][0]).__name__} without entries")
    answer["observation"] = leaves[0]
    answer["single"] = not isinstance(observed[0][0], Mapping)
    keys = [[leaf["key"] for leaf in group] for group in leaves]
    if any(group != keys[0] for group in keys):
        raise ProbeError(f"the simulators {names} do not observe the same entries: {keys}")
    answer["shapes"] = {
        name: {leaf["key"]: leaf["shape"] for leaf in group} for name, group in zip(names, leaves, strict=True)
    }
    answer["action"] = action_of(first)
    if answer["action"] is None:
        answer["notes"].append("No action space was found: the action spec is a guess, and step() was not tried.")
        return
    try:
        answer["step"] = _step_form(first, answer)
    except ProbeError as error:
        answer["notes"].append(f"step() was not understood: {error}. step_into is a guess.")
        return

    def play(step: int) -> tuple[Any, float, bool]:
        returned = first.step(sample_action(answer["action"], step))
        observation, reward, *ended = parts_of(returned, answer["step"])
        return observation, float(reward), any(map(bool, ended))

    try_episodes(first, answer, play)


def _step_form(simulator: Any, answer: dict[str, Any]) -> str:
    """Return the form of the result of ``step``."""
    try:
        returned = simulator.step(sample_action(answer["action"], 0))
    except Exception as error:
        raise ProbeError(f"it raises {one_line(error)}") from error
    form = result_form(returned)
    observation, reward, *_ = parts_of(returned, form)
    later = {leaf["key"]: leaf for leaf in leaves_of(observation, None, [])}
    if list(later) != [leaf["key"] for leaf in answer["observation"]]:
        raise ProbeError(f"it returned the observations {list(later)}, but reset() returned others")
    for leaf in answer["observation"]:
        if leaf["shape"] != later[leaf["key"]]["shape"]:
            answer["notes"].append(
                f"{leaf['key']!r} changes its shape, so it is a NonTensor: it is no array of fixed shape."
            )
            leaf.update(dtype="object", shape=[], scalar=True)
    try:
        float(reward)
    except (TypeError, ValueError):
        raise ProbeError(f"its reward is a {type(reward).__name__}, not a number") from None
    return form


def main(arguments: list[str], inspect_simulator: Callable[[Mapping[str, Any]], dict[str, Any]] = look) -> None:
    """Read the request from one file and write the answer to the other."""
    request, answer = map(Path, arguments)
    answer.write_text(json.dumps(inspect_simulator(json.loads(request.read_text(encoding="utf-8")))), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
