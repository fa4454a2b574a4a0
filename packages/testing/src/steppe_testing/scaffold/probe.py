"""Look at a simulator that we have never met: make it, reset it, step it, and write down what comes back.

Runs in a process of its own (``python -m steppe_testing.scaffold.probe REQUEST ANSWER``), because a library may print,
hang or crash. Both are JSON files; :class:`steppe_testing.scaffold.simulator.Simulator` describes the answer's entries.
Needs neither torch nor numpy: a library that returns arrays brings numpy along.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any, SupportsIndex, TypeGuard

_EPISODE = 1000  # steps in which an episode should have ended
_COMPARED = 12  # steps that are compared to find out what is random
_SEEDS = 4
_NAMED = ("name", "id", "env_id", "env_name", "level", "map", "task", "layout", "scenario", "game")
_COUNTS = ("n_actions", "num_actions", "action_count", "nb_actions", "action_size")


class Unknown(Exception):
    """What cannot be found out, in words for the author."""


def look(request: Mapping[str, Any]) -> dict[str, Any]:
    """Find out what there is to know.

    Args:
        request: ``library`` (a distribution, or None), ``make`` (``"module:name"``, or None), ``names``.

    Returns:
        What :class:`~steppe_testing.scaffold.simulator.Simulator` describes; ``problem`` says what stopped it.
    """
    answer: dict[str, Any] = {"module": _module_name(request), "notes": []}
    try:
        module = _imported(answer["module"])
        answer["path"] = _found(module, request["make"])
        maker = _attribute(module, answer["path"])
        simulators = _made(maker, request["names"], answer)
        _describe(simulators, request["names"], answer)
    except Unknown as unknown:
        answer["problem"] = str(unknown)
    return answer


# -- finding what makes a simulator -----------------------------------------------------------------------------------


def _module_name(request: Mapping[str, Any]) -> str:
    if request["make"]:
        return str(request["make"]).partition(":")[0]
    wanted = _canonical(request["library"])
    modules = [
        module
        for module, dists in packages_distributions().items()
        if wanted in map(_canonical, dists) and module.isidentifier() and not module.startswith("_")
    ]
    own = wanted.replace("-", "_")
    return own if own in modules or not modules else min(modules)


def _canonical(name: str) -> str:
    return name.replace("_", "-").replace(".", "-").lower()


def _imported(name: str) -> Any:
    try:
        if find_spec(name) is None:
            raise Unknown(f"There is no module {name} here")
        return importlib.import_module(name)
    except Unknown:
        raise
    except ModuleNotFoundError as error:
        raise Unknown(f"There is no module {error.name or name} here") from None
    except Exception as error:
        raise Unknown(f"import {name} raises {_words(error)}") from error


def _found(module: Any, make: str | None) -> str:
    """The name in the module of what makes a simulator."""
    if make:
        return make.partition(":")[2]
    classes = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and inspect.isclass(value)
        and value.__module__.split(".")[0] == module.__name__.split(".")[0]
        and not inspect.isabstract(value)
        and all(callable(getattr(value, method, None)) for method in ("reset", "step"))
    ]
    if len(classes) == 1:
        return str(classes[0])
    if not classes and callable(getattr(module, "make", None)):
        return "make"
    found = f"{', '.join(sorted(classes))} all have" if classes else "no public class of it has"
    raise Unknown(
        f"{module.__name__}: {found} reset() and step(). Say which makes a simulator: --make {module.__name__}:Class"
    )


def _attribute(module: Any, path: str) -> Any:
    value = module
    for part in path.split("."):
        if not hasattr(value, part):
            raise Unknown(f"{module.__name__} has no {path}")
        value = getattr(value, part)
    if not callable(value):
        raise Unknown(f"{module.__name__}.{path} is not a class or function")
    return value


def _made(maker: Any, names: list[str], answer: dict[str, Any]) -> list[Any]:
    """A simulator for each name; notes whether the name is given, and a seed could be."""
    parameters = _parameters(maker)
    first = next(iter(parameters.values()), None)
    needed = [one for one in parameters.values() if one.default is one.empty and one.kind in (0, 1)]
    takes_name = first is not None and first.kind in (0, 1) and (first.default is first.empty or first.name in _NAMED)
    if len(needed) > 1:
        others = ", ".join(one.name for one in needed[1:])
        raise Unknown(f"{_called(maker)} has arguments without a default ({others}), and only a name can be given")
    answer["takes_name"] = takes_name
    answer["constructor_seed"] = "seed" in parameters
    made = []
    for name in names:
        try:
            made.append(maker(name) if takes_name else maker())
        except Exception as error:
            given = repr(name) if takes_name else ""
            raise Unknown(f"{_called(maker)}({given}) raises {_words(error)}") from error
    for method in ("reset", "step"):
        if not callable(getattr(made[0], method, None)):
            raise Unknown(f"{_called(maker)} makes a {type(made[0]).__name__}, which has no {method}()")
    answer["closes"] = callable(getattr(made[0], "close", None))
    return made


def _parameters(function: Any) -> dict[str, Any]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # compiled code may not say
        return {}


def _called(maker: Any) -> str:
    return getattr(maker, "__qualname__", repr(maker))


def _words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


# -- resetting and stepping -------------------------------------------------------------------------------------------


def _describe(simulators: list[Any], names: list[str], answer: dict[str, Any]) -> None:
    first = simulators[0]
    answer["seed"] = _seed_way(first, answer)
    observed = []
    for name, simulator in zip(names, simulators, strict=True):
        try:
            observed.append(_reset(simulator, answer["seed"], 0))
        except Exception as error:
            raise Unknown(f"reset() of the simulator {name!r} raises {_words(error)}") from error
    answer["reset"] = observed[0][1]
    leaves = [
        _leaves(values, _space(sim), answer["notes"]) for sim, (values, _) in zip(simulators, observed, strict=True)
    ]
    if not leaves[0]:
        raise Unknown(f"reset() returned a {type(observed[0][0]).__name__} without numbers")
    answer["observation"] = leaves[0]
    answer["single"] = not isinstance(observed[0][0], Mapping)
    keys = [[leaf["key"] for leaf in one] for one in leaves]
    if any(one != keys[0] for one in keys):
        raise Unknown(f"the simulators {names} do not observe the same entries: {keys}")
    answer["shapes"] = {
        name: {leaf["key"]: leaf["shape"] for leaf in one} for name, one in zip(names, leaves, strict=True)
    }
    answer["action"] = _action(first)
    if answer["action"] is None:
        answer["notes"].append("No action space was found: the action spec is a guess, and step() was not tried.")
        return
    try:
        answer["step"] = _step_form(first, answer)
    except Unknown as unknown:
        answer["notes"].append(f"step() was not understood: {unknown}. step_into is a guess.")
        return
    _randomness(first, answer)


def _seed_way(simulator: Any, answer: Mapping[str, Any]) -> str:
    """How a seed is given: to ``reset``, to a method ``seed``, to the constructor, or not at all."""
    if "seed" in _parameters(simulator.reset):
        return "reset"
    if callable(getattr(simulator, "seed", None)):
        return "method"
    return "constructor" if answer["constructor_seed"] else "none"


def _reset(simulator: Any, way: str, seed: int | None) -> tuple[Any, str]:
    """The observation of a reset, and in which form it came."""
    if way == "method" and seed is not None:
        simulator.seed(seed)
    returned = simulator.reset(seed=seed) if way == "reset" else simulator.reset()
    if hasattr(returned, "observation") and hasattr(returned, "step_type"):
        return returned.observation, "timestep"
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping):
        return returned[0], "pair"
    return returned, "plain"


def _step_form(simulator: Any, answer: dict[str, Any]) -> str:
    """In which form ``step`` returns what it returns."""
    try:
        returned = simulator.step(_sample(answer["action"], 0))
    except Exception as error:
        raise Unknown(f"it raises {_words(error)}") from error
    form = _form(returned)
    observation, reward, *_ = _parts(returned, form)
    keys = [leaf["key"] for leaf in _leaves(observation, None, [])]
    if keys != [leaf["key"] for leaf in answer["observation"]]:
        raise Unknown(f"it returned the observations {keys}, and reset() others")
    try:
        float(reward)
    except (TypeError, ValueError):
        raise Unknown(f"its reward is a {type(reward).__name__}, not a number") from None
    return form


def _form(returned: Any) -> str:
    if hasattr(returned, "observation") and hasattr(returned, "step_type"):
        return "timestep"
    length = len(returned) if isinstance(returned, tuple) else 0
    if length == 5:
        return "five"
    if length == 4:
        return "four" if isinstance(returned[3], Mapping) else "flags"
    if length == 3:
        return "info" if isinstance(returned[2], Mapping) else "three"
    raise Unknown(f"it returned a {type(returned).__name__}" + (f" of {length}" if length else ""))


def _parts(returned: Any, form: str) -> tuple[Any, Any, bool, bool]:
    if form == "timestep":
        last = bool(returned.last())
        return returned.observation, returned.reward, last and returned.discount == 0, last and returned.discount != 0
    if form == "info":
        raise Unknown("it returned a dict in the place of whether the episode has ended")
    terminated = bool(returned[2])
    return returned[0], returned[1], terminated, bool(returned[3]) if form in ("five", "flags") else False


# -- data to specs ----------------------------------------------------------------------------------------------------


def _leaves(values: Any, space: Any, notes: list[str]) -> list[dict[str, Any]]:
    """Each number or array: its key, shape, dtype, and bounds where a space says them."""
    if not isinstance(values, Mapping):
        values, space = {"observation": values}, {"observation": space}
    else:
        space = getattr(space, "spaces", space)
    found = []
    for key, value in values.items():
        if key in ("action", "reward", "done", "terminated", "truncated"):
            notes.append(f"The observation {key!r} was left out: the name is that of another entry of the data.")
            continue
        leaf = None if isinstance(value, (str, bytes, Mapping)) or not isinstance(key, str) else _leaf(value)
        if leaf is None:
            notes.append(f"The observation {key!r} was left out: a {type(value).__name__} has no place in a row.")
            continue
        limits = _limits(space[key] if isinstance(space, Mapping) and key in space else None)
        found.append({"key": key, **leaf, **limits})
    return found


def _leaf(value: Any) -> dict[str, Any] | None:
    if isinstance(value, bool):
        return {"dtype": "bool", "shape": [], "scalar": True}
    if isinstance(value, int):
        return {"dtype": "int64", "shape": [], "scalar": True}
    if isinstance(value, float):
        return {"dtype": "float64", "shape": [], "scalar": True}
    if isinstance(value, (list, tuple)):
        try:
            import numpy
        except ImportError:
            return None
        try:
            value = numpy.asarray(value)
        except ValueError:  # lists of different lengths
            return None
    dtype = str(getattr(value, "dtype", "")).rpartition(".")[2]  # "torch.float32" too
    if not dtype.startswith(("bool", "int", "uint", "float")):
        return None
    shape = [int(size) for size in value.shape]
    return {"dtype": dtype, "shape": shape, "scalar": not shape}


def _space(simulator: Any) -> Any:
    """The observation space or spec that a simulator has, or None."""
    space = getattr(simulator, "observation_space", None)
    return space if space is not None else _answer(getattr(simulator, "observation_spec", None))


def _answer(value: Any) -> Any:
    try:
        return value() if callable(value) else value
    except Exception:  # it is a help and no need
        return None


def _limits(space: Any) -> dict[str, Any]:
    """``n`` of a discrete space; ``low`` and ``high`` of a box that has one lower and one upper bound."""
    n = getattr(space, "n", getattr(space, "num_values", None))
    if _is_count(n):
        return {"n": int(n)}
    low, high = (
        getattr(space, one, getattr(space, other, None)) for one, other in (("low", "minimum"), ("high", "maximum"))
    )
    if low is None or high is None:
        return {}
    bounds = [{float(each) for each in _flat(value)} for value in (low, high)]
    if any(len(values) != 1 or not all(map(_is_finite, values)) for values in bounds):
        return {}
    return {"low": bounds[0].pop(), "high": bounds[1].pop()}


def _flat(value: Any) -> list[Any]:
    value = value.tolist() if hasattr(value, "tolist") else value
    return [each for part in value for each in _flat(part)] if isinstance(value, (list, tuple)) else [value]


def _is_count(value: Any) -> TypeGuard[SupportsIndex]:
    return not isinstance(value, bool) and hasattr(value, "__index__") and int(value) > 0


def _is_finite(value: float) -> bool:
    return value - value == 0 and abs(value) < 1e30


# -- actions ----------------------------------------------------------------------------------------------------------


def _action(simulator: Any) -> dict[str, Any] | None:
    space = getattr(simulator, "action_space", None)
    space = space if space is not None else _answer(getattr(simulator, "action_spec", None))
    limits = _limits(space)
    if "n" in limits:
        return {"n": limits["n"], "start": int(getattr(space, "start", 0))}
    shape = getattr(space, "shape", None)
    if shape is not None and hasattr(space, "dtype"):
        sizes = [int(size) for size in shape]
        dtype = str(space.dtype).rpartition(".")[2].strip("<>'")
        return {"shape": sizes, "dtype": dtype, **limits}
    for name in _COUNTS:
        count = _answer(getattr(simulator, name, None))
        if _is_count(count):
            return {"n": int(count), "start": 0}
    for name in ("actions", "ACTIONS"):
        listed = getattr(simulator, name, None)
        if isinstance(listed, (list, tuple)) and listed == type(listed)(range(len(listed))):
            return {"n": len(listed), "start": 0}
    return None


def _sample(action: Mapping[str, Any], step: int) -> Any:
    if "n" in action:
        return int(action["start"]) + (step * 7 + step // 3) % int(action["n"])
    import numpy

    low, high = action.get("low", -1.0), action.get("high", 1.0)
    return numpy.full(action["shape"], low + (high - low) * ((step * 7) % 11) / 10, dtype=action["dtype"])


# -- what is random ---------------------------------------------------------------------------------------------------


def _randomness(simulator: Any, answer: dict[str, Any]) -> None:
    """Try whether one seed gives one data set, also in later episodes, and how long episodes are."""
    try:
        if answer["seed"] in ("reset", "method"):
            runs = {seed: _trace(simulator, answer, seed, episodes=1) for seed in range(_SEEDS)}
            answer["seed_matters"] = any(run != runs[0] for run in runs.values())
            answer["deterministic"] = _trace(simulator, answer, 0, episodes=1) == runs[0]
            later = [_trace(simulator, answer, 0, episodes=3) for _ in range(2)]
            answer["later_follow"] = later[0] == later[1]
        elif answer["seed"] == "none":
            answer["seed_matters"] = False
            answer["deterministic"] = len({repr(_trace(simulator, answer, 0, episodes=1)) for _ in range(3)}) == 1
        answer["ends"] = all(_length(simulator, answer) is not None for _ in range(2))
    except Exception as error:
        answer["notes"].append(f"It could not be played: {_words(error)}.")


def _trace(simulator: Any, answer: Mapping[str, Any], seed: int, episodes: int) -> list[Any]:
    found = []
    for episode in range(episodes):
        found.append(_plain(_reset(simulator, answer["seed"], None if episode else seed)[0]))
        for step in range(_COMPARED):
            observation, reward, *ended = _parts(simulator.step(_sample(answer["action"], step)), answer["step"])
            found.append([_plain(observation), float(reward)])
            if any(ended):
                break
    return found


def _length(simulator: Any, answer: Mapping[str, Any]) -> int | None:
    _reset(simulator, answer["seed"], None)
    for step in range(_EPISODE):
        if any(_parts(simulator.step(_sample(answer["action"], step)), answer["step"])[2:]):
            return step + 1
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def main(arguments: list[str], seek: Callable[[Mapping[str, Any]], dict[str, Any]] = look) -> None:
    """Answer the request in one file in the other."""
    request, answer = map(Path, arguments)
    answer.write_text(json.dumps(seek(json.loads(request.read_text(encoding="utf-8")))), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
