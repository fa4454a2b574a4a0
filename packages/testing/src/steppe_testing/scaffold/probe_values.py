"""Describe an unknown simulator: its seed, results, observations and actions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, SupportsIndex, TypeGuard

_COUNTS = ("n_actions", "num_actions", "action_count", "nb_actions", "action_size")


class ProbeError(Exception):
    """A property of the simulator cannot be determined; the text is for the author."""


def one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def name_of(maker: Any) -> str:
    return getattr(maker, "__qualname__", repr(maker))


def parameters_of(function: Any) -> dict[str, Any]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # compiled functions may have no signature
        return {}


def seed_route(simulator: Any, answer: Mapping[str, Any]) -> str:
    """Return how to pass a seed.

    The methods are an argument of ``reset``, ``seed()``, an argument of the constructor, or none.
    """
    if "seed" in parameters_of(simulator.reset):
        return "reset"
    if callable(getattr(simulator, "seed", None)):
        return "method"
    return "constructor" if answer["constructor_seed"] else "none"


def reset_simulator(simulator: Any, route: str, seed: int | None, **arguments: Any) -> tuple[Any, str]:
    """Reset the simulator; return the observation and the form of the result."""
    if route == "method" and seed is not None:
        simulator.seed(seed)
    if route == "reset":
        arguments["seed"] = seed
    returned = simulator.reset(**arguments)
    if hasattr(returned, "observation") and hasattr(returned, "step_type"):
        return returned.observation, "timestep"
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping):
        return returned[0], "pair"
    return returned, "plain"


def result_form(returned: Any) -> str:
    if hasattr(returned, "observation") and hasattr(returned, "step_type"):
        return "timestep"
    length = len(returned) if isinstance(returned, tuple) else 0
    if length == 5:
        return "five"
    if length == 4:
        return "four" if isinstance(returned[3], Mapping) else "flags"
    if length == 3:
        return "info" if isinstance(returned[2], Mapping) else "three"
    raise ProbeError(f"it returned a {type(returned).__name__}" + (f" of {length}" if length else ""))


def leaves_of(values: Any, space: Any, notes: list[str]) -> list[dict[str, Any]]:
    """Describe each entry: key, shape, dtype, and the bounds of its space; entries of nested dicts have a path."""
    if not isinstance(values, Mapping):
        values, space = {"observation": values}, {"observation": space}
    else:
        space = getattr(space, "spaces", space)
    leaves = []
    for key, value in values.items():
        if key in ("action", "reward", "done", "terminated", "truncated"):
            notes.append(f"The observation {key!r} was left out: the name is reserved.")
            continue
        if not isinstance(key, str):
            notes.append(f"The observation {key!r} was left out: keys of the data are texts.")
            continue
        inner = space[key] if isinstance(space, Mapping) and key in space else None
        if isinstance(value, Mapping) and value:
            for leaf in leaves_of(value, inner, notes):
                path = [key, *leaf.get("path", [leaf["key"]])]
                leaves.append({**leaf, "key": ".".join(path), "path": path})
            continue
        leaves.append({"key": key, **_leaf(value), **_limits(inner)})
    return leaves


def _leaf(value: Any) -> dict[str, Any]:
    other: dict[str, Any] = {"dtype": "text" if isinstance(value, str) else "object", "shape": [], "scalar": True}
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
            return other
        try:
            value = numpy.asarray(value)
        except ValueError:  # lists of different lengths
            return other
        if not value.size:  # a list that will be filled
            return other
    dtype = str(getattr(value, "dtype", "")).rpartition(".")[2]  # "torch.float32" too
    if not dtype.startswith(("bool", "int", "uint", "float")):
        return other
    shape = [int(size) for size in value.shape]
    return {"dtype": dtype, "shape": shape, "scalar": not shape}


def space_of(simulator: Any) -> Any:
    """Return the observation space or spec of a simulator, or None."""
    space = getattr(simulator, "observation_space", None)
    return space if space is not None else value_of(getattr(simulator, "observation_spec", None))


def value_of(value: Any) -> Any:
    try:
        return value() if callable(value) else value
    except Exception:  # spaces are optional
        return None


def _limits(space: Any) -> dict[str, Any]:
    """Return ``n`` of a discrete space, or ``low`` and ``high`` of a box.

    The bounds of the box must be uniform.
    """
    n = getattr(space, "n", getattr(space, "num_values", None))
    if _is_count(n):
        return {"n": int(n)}
    low, high = (
        getattr(space, name, getattr(space, other, None)) for name, other in (("low", "minimum"), ("high", "maximum"))
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


def action_of(simulator: Any) -> dict[str, Any] | None:
    space = getattr(simulator, "action_space", None)
    space = space if space is not None else value_of(getattr(simulator, "action_spec", None))
    limits = _limits(space)
    if "n" in limits:
        return {"n": limits["n"], "start": int(getattr(space, "start", 0))}
    shape = getattr(space, "shape", None)
    if shape is not None and hasattr(space, "dtype"):
        sizes = [int(size) for size in shape]
        dtype = str(space.dtype).rpartition(".")[2].strip("<>'")
        return {"shape": sizes, "dtype": dtype, **limits}
    for name in _COUNTS:
        count = value_of(getattr(simulator, name, None))
        if _is_count(count):
            return {"n": int(count), "start": 0}
    for name in ("actions", "ACTIONS"):
        listed = getattr(simulator, name, None)
        if isinstance(listed, (list, tuple)) and listed == type(listed)(range(len(listed))):
            return {"n": len(listed), "start": 0}
    return None


def sample_action(action: Mapping[str, Any], step: int) -> Any:
    if "n" in action:
        return int(action["start"]) + (step * 7 + step // 3) % int(action["n"])
    import numpy

    low, high = action.get("low", -1.0), action.get("high", 1.0)
    return numpy.full(action["shape"], low + (high - low) * ((step * 7) % 11) / 10, dtype=action["dtype"])
