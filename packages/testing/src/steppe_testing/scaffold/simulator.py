"""Simulator: properties of a wrapped simulator, and the code that depends on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steppe.registry import requirement_text

from .plan import Plan

#: Time limit in seconds to import the library and to make, reset and step the simulator.
_TIMEOUT = 180.0

_STAND_IN = {
    "module": "simulator",
    "path": "Simulator",
    "methods": {"reset": "reset", "step": "step"},
    "takes_name": True,
    "seed": "reset",
    "reset": "plain",
    "single": False,
    "observation": [
        {"key": "grid", "dtype": "int64", "shape": [5, 5], "scalar": False, "n": 3},
        {"key": "moves", "dtype": "float64", "shape": [], "scalar": True, "low": 0.0, "high": 1e6},
    ],
    "action": {"n": 4, "start": 0},
    "step": "three",
    "seed_matters": True,
    "deterministic": True,
    "later_follow": True,
    "ends": True,
}


@dataclass(frozen=True)
class Simulator:
    """The simulator that a new environment wraps.

    Attributes:
        answer: result of the inspection. ``module``, ``path``: the simulator class or factory; ``methods``: its methods
            for ``"reset"`` and ``"step"``; ``takes_name``,
            ``constructor_seed``: whether it accepts a name or a seed; ``seed``: what accepts a seed, ``"reset"``,
            ``"method"``, ``"constructor"`` or ``"none"``; ``reset``, ``step``: forms of their results; ``observation``:
            key, dtype, shape and bounds of each entry; ``single``: whether there is one entry, without a key;
            ``shapes``: shapes of the entries for each name; ``action``: number ``n`` of actions, or shape and bounds,
            None if unknown; ``seed_matters``, ``deterministic``, ``later_follow``, ``ends``: results of played
            episodes; ``problem``: why the inspection stopped, if it did.
        stands_in: whether this is the stand-in that the new package contains.
        notes: notes for the author, a paragraph each.
    """

    answer: Mapping[str, Any]
    stands_in: bool
    notes: tuple[str, ...] = field(default=())

    @property
    def module(self) -> str:
        """The module of the library, or of the stand-in if there is none."""
        return str(self.answer.get("library_module") or self.answer["module"])

    @property
    def first_key(self) -> str:
        """The key of the first integer observation, or of the first one if there is none."""
        leaves = self.answer["observation"]
        integers = [leaf for leaf in leaves if "int" in leaf["dtype"]]
        return str((integers or leaves)[0]["key"])

    def lines(self) -> dict[str, str]:
        """Return the parts of the source that depend on the simulator, by placeholder."""
        return _Lines(self.answer, self.stands_in).all()


def look_at(plan: Plan) -> Simulator:
    """Inspect the library of a plan in a separate process.

    Without a library, or if the inspection fails, the result is a stand-in.
    """
    if not plan.names or (plan.library is None and plan.make is None):
        note = f"src/{plan.package}/simulator.py is a small grid world: replace it by your own." if plan.names else ""
        return Simulator(_STAND_IN, True, (note,) if note else ())
    answer = _probe(plan)
    notes = tuple(answer.get("notes", ()))
    if "problem" not in answer:
        note = f"The specs in src/{plan.package}/env.py are proposed from one reset() of {_path(answer)}: read them."
        return Simulator(answer, False, (note, *notes))
    library = requirement_text(plan.library) if plan.library is not None else plan.make
    problem = (
        f"{answer['problem']}. So src/{plan.package}/simulator.py stands in for {library}: replace it, or run "
        f"this command again when {library} can be used, to get specs from one reset() of it."
    )
    return Simulator({**_STAND_IN, "library_module": answer.get("module", "")}, True, (problem, *notes))


def _probe(plan: Plan) -> dict[str, Any]:
    library = plan.library.name if plan.library is not None else None
    with tempfile.TemporaryDirectory() as folder:
        values = {"library": library, "make": plan.make, "names": plan.names, "methods": dict(plan.methods)}
        request, reply = Path(folder, "request.json"), Path(folder, "answer.json")
        request.write_text(json.dumps(values), encoding="utf-8")
        command = [sys.executable, "-m", f"{__package__}.probe", str(request), str(reply)]
        # The import path of this process; `python -m` adds the current folder.
        paths = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, env=paths)
        except subprocess.TimeoutExpired:
            return {"problem": f"{library or plan.make} was not reset and stepped within {_TIMEOUT:.0f} s"}
        if process.returncode != 0 or not reply.exists():
            last = (process.stderr.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
            return {"problem": f"{library or plan.make} could not be used: {last}"}
        answer: dict[str, Any] = json.loads(reply.read_text(encoding="utf-8"))
        return answer


def _path(answer: Mapping[str, Any]) -> str:
    return f"{answer['module']}.{answer['path']}"


class _Lines:
    """Write the source that depends on a simulator."""

    def __init__(self, answer: Mapping[str, Any], stands_in: bool) -> None:
        self.answer = answer
        self.stands_in = stands_in
        self.leaves: list[Mapping[str, Any]] = answer["observation"]
        shapes = list(answer.get("shapes", {}).values())
        self.same_shapes = all(each == shapes[0] for each in shapes)

    def all(self) -> dict[str, str]:
        answer = self.answer
        specs = "\n".join(f"    {json.dumps(leaf['key'])}: {self.spec(leaf)}," for leaf in self.leaves)
        observation = f"self.observation_spec = Composite(\n    {{\n{_indented(specs)}\n    }}\n)"
        action, action_note = self.action()
        limit = "None" if self.truncates and answer.get("ends") else "100" if self.stands_in else "1000"
        code = "\n".join([observation, action, self.writes, self.reset(), self.step()])
        names = ["ArrayEnv", "Composite", "Unbounded"]
        names += [name for name in ("Binary", "Bounded", "Categorical", "OneHot") if f"{name}(" in code]
        names += ["write_row"] if "write_row(" in code else []
        used = {"numpy as np": self.draws, "torch": "torch." in code, answer["module"]: not self.stands_in}
        return {
            "heads": "\n".join(f"import {name}" for name in sorted(used) if used[name]),
            "own_import": "\nfrom .simulator import Simulator" if self.stands_in else "",
            "spec_imports": ", ".join(sorted(names, key=str.lower)),
            "shapes": "" if self.same_shapes else self.shapes(),
            "what_is_wrapped": "the simulator" if self.stands_in else f"`{_path(answer)}`",
            "make": self.make(),
            "more_state": self.more_state(),
            "shapes_of_name": "" if self.same_shapes else "shapes = _SHAPES[name]",
            "observation": observation,
            "action": action,
            "action_note": action_note,
            "reset": self.reset(),
            "seed_note": self.seed_note,
            "step": self.step(),
            "truncated": "bool(truncated) or at_limit" if self.truncates else "at_limit",
            "writes": self.writes,
            "close": self.close,
            "time_limit": limit,
            "max_steps": "1000" if limit == "None" else limit,
            "deterministic": str(answer.get("deterministic", answer.get("seed") != "none")),
            "seed_matters": str(answer.get("seed_matters", answer.get("seed") != "none")),
            "ends": str(limit != "None" or answer.get("ends", True)),
        }

    # -- making it ------------------------------------------------------------------------------------------------

    def make(self, seed: str = "") -> str:
        maker = "Simulator" if self.stands_in else _path(self.answer)
        arguments = [*(["name"] if self.answer["takes_name"] else []), *([f"seed={seed}"] if seed else [])]
        return f"self._simulator = {maker}({', '.join(arguments)})"

    def more_state(self) -> str:
        lines = []
        if self.answer["seed"] == "constructor" and self.answer["takes_name"]:
            lines.append("self._name = name")
        if self.draws:
            lines.append("self._generator = np.random.default_rng()")
        return "\n".join(lines)

    @property
    def close(self) -> str:
        if not self.answer.get("closes"):
            return ""
        return (
            "\ndef close(self, *, raise_if_closed: bool = False) -> None:\n"
            "    was_closed = self.is_closed\n"
            "    super().close(raise_if_closed=raise_if_closed)\n"
            "    if not was_closed:  # a second close does nothing\n"
            "        self._simulator.close()"
        )

    # -- specs ----------------------------------------------------------------------------------------------------

    def spec(self, leaf: Mapping[str, Any]) -> str:
        shape, dtype = self.shape(leaf), leaf["dtype"]
        bounded = "low" in leaf
        if dtype == "bool":
            return f"Binary(shape={shape}, dtype=torch.bool)"
        if "n" in leaf:
            return f"Categorical({leaf['n']}, shape={shape})"
        if dtype.startswith("float"):
            return f"Bounded({leaf['low']}, {leaf['high']}, shape={shape})" if bounded else f"Unbounded(shape={shape})"
        if dtype == "uint8":
            return f"Bounded(0, 255, shape={shape}, dtype=torch.uint8)"
        if bounded:
            return f"Bounded({int(leaf['low'])}, {int(leaf['high'])}, shape={shape}, dtype=torch.int64)"
        return f"Unbounded(shape={shape}, dtype=torch.int64)"

    def shape(self, leaf: Mapping[str, Any]) -> str:
        if self.stands_in and leaf["shape"]:
            return "(self._simulator.size, self._simulator.size)"
        if not self.same_shapes and leaf["shape"]:
            return f"shapes[{json.dumps(leaf['key'])}]"
        return repr(tuple(leaf["shape"]) or (1,))

    def shapes(self) -> str:
        rows = [
            f"    {json.dumps(name)}: "
            + "{"
            + ", ".join(f"{json.dumps(key)}: {tuple(shape)!r}" for key, shape in shapes.items() if shape)
            + "},"
            for name, shapes in self.answer["shapes"].items()
        ]
        return "# Shapes of one reset() of each environment.\n_SHAPES = {\n" + "\n".join(rows) + "\n}"

    def action(self) -> tuple[str, str]:
        action = self.answer["action"]
        if action is None:
            return "self.action_spec = OneHot(2)", "# TODO: a guess; the simulator describes no actions.\n"
        if "n" in action:
            return f"self.action_spec = OneHot({action['n']})", ""
        shape = repr(tuple(action["shape"]))
        if not action["dtype"].startswith("float"):
            limits = (int(action.get("low", 0)), int(action.get("high", 1)))
            return f"self.action_spec = Bounded({limits[0]}, {limits[1]}, shape={shape}, dtype=torch.int64)", ""
        if "low" in action:
            return f"self.action_spec = Bounded({action['low']}, {action['high']}, shape={shape})", ""
        return f"self.action_spec = Unbounded(shape={shape})", "# TODO: no common bounds were found.\n"

    # -- reset and step -------------------------------------------------------------------------------------------

    @property
    def draws(self) -> bool:
        """Whether each reset must pass a seed.

        Without a seed, such a library would draw one itself.
        """
        return self.answer["seed"] == "reset" and self.answer.get("later_follow") is False

    @property
    def seed_note(self) -> str:
        if self.answer["seed"] == "none":
            return "# TODO: nothing in the library takes a seed."
        if self.draws:
            return (
                "# seed is None at all resets except the first one after set_seed: continue the generator. The\n"
                "# library would draw an unknown seed then, so pass one to each reset."
            )
        return (
            "# seed is None at all resets except the first one after set_seed: continue the generator.\n"
            "# `seed or 0` makes all later episodes equal; a new default_rng() makes them impossible to repeat."
        )

    def reset(self) -> str:
        seed_method = self.answer["seed"]
        lines, argument = [], ""
        if self.draws:
            lines = ["if seed is not None:", "    self._generator = np.random.default_rng(seed)"]
            argument = "seed=int(self._generator.integers(2**31))"
        elif seed_method == "reset":
            argument = "seed=seed"
        elif seed_method == "method":
            lines = ["if seed is not None:", "    self._simulator.seed(seed)"]
        elif seed_method == "constructor":
            made = self.make("seed").replace("(name", "(self._name")
            lines = ["if seed is not None:", f"    {made}"]
        call = f"self._simulator.{self.answer['methods']['reset']}({argument})"
        form = self.answer["reset"]
        lines.append(
            f"observed{', _' if form == 'pair' else ''} = {call}{'.observation' if form == 'timestep' else ''}"
        )
        return "\n".join(lines)

    @property
    def truncates(self) -> bool:
        """Whether the simulator reports truncations."""
        return self.answer.get("step") in ("five", "flags", "timestep")

    def step(self) -> str:
        action = self.answer["action"] or {}
        argument = f"action + {action['start']}" if action.get("start") else "action"
        call = f"self._simulator.{self.answer['methods']['step']}({argument})"
        forms = {
            "five": f"observed, reward, terminated, truncated, _ = {call}",
            "flags": f"observed, reward, terminated, truncated = {call}",
            "four": f"observed, reward, terminated, _ = {call}",
            "three": f"observed, reward, terminated = {call}",
            "timestep": f"step = {call}\n"
            "observed, reward = step.observation, step.reward\n"
            "terminated = step.last() and step.discount == 0\n"
            "truncated = step.last() and not terminated",
        }
        if "step" not in self.answer:
            return "# TODO: a guess; step() was not understood.\n" + forms["three"]
        return forms[self.answer["step"]]

    @property
    def writes(self) -> str:
        lines = []
        for leaf in self.leaves:
            key = json.dumps(leaf["key"])
            value = "observed" if self.answer["single"] else f"observed[{key}]"
            lines.append(f"out[{key}][0] = {value}" if leaf["scalar"] else f"write_row(out, {key}, {value})")
        return "\n".join(lines)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))
