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

from .batch_lines import BatchLines
from .group_lines import GroupLines
from .plan import Plan
from .source_lines import SourceLines, path_of

LINES = {"single": SourceLines, "group": GroupLines, "batch": BatchLines}

#: Time limit in seconds to import the library and to make, reset and step the simulator.
_TIMEOUT = 180.0

#: The templates ``simulator*.py`` as an inspection would describe them, by kind.
STAND_INS: dict[str, dict[str, Any]] = {
    "single": {
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
    },
}
STAND_INS["group"] = {
    **STAND_INS["single"],
    "agents": ["red_0", "red_1", "blue_0"],
    "layout": "agent",
    "observation": [
        {"key": "place", "dtype": "int64", "shape": [], "scalar": True},
        {"key": "action_mask", "dtype": "bool", "shape": [3], "scalar": False},
        {"key": "message", "dtype": "text", "shape": [], "scalar": True},
    ],
    "shared": [{"key": "moves", "dtype": "int64", "shape": [], "scalar": True}],
    "mask": "action_mask",
    "action": {"n": 3, "start": 0},
    "rewards": True,
    "terminated": False,
    "truncated": False,
}
STAND_INS["batch"] = {
    **STAND_INS["single"],
    "seed": "method",
    "count": "num_envs",
    "observation": [{"key": "place", "dtype": "int64", "shape": [], "scalar": True}],
    "action": {"n": 2, "start": 0},
    "reset_rows": ("rows", "mask"),
    "step_rows": ("rows", "mask"),
    "selected": False,
    "independent": True,
    "tensors": "",
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
            An environment with several agents has further entries (:func:`.probe_agents.describe_agents`), and so has a
            batch (:func:`.probe_batch.describe_batch`).
        kind: kind of its environment, as in :class:`~steppe_testing.scaffold.plan.Plan`.
        stands_in: whether this is the stand-in that the new package contains.
        notes: notes for the author, a paragraph each.
    """

    answer: Mapping[str, Any]
    stands_in: bool
    notes: tuple[str, ...] = field(default=())
    kind: str = "single"

    @property
    def template(self) -> str:
        """The template of its environment."""
        return LINES[self.kind](self.answer, self.stands_in).template

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
        return LINES[self.kind](self.answer, self.stands_in).all()


def look_at(plan: Plan) -> Simulator:
    """Inspect the library of a plan in a separate process.

    Without a library, or if the inspection fails, the result is a stand-in.
    """
    if not plan.names or (plan.library is None and plan.make is None):
        note = f"src/{plan.package}/simulator.py is a small example: replace it by your own." if plan.names else ""
        kind = plan.kind if plan.names else "single"
        return Simulator(STAND_INS[kind], True, (note,) if note else (), kind)
    answer = _probe(plan)
    notes = tuple(dict.fromkeys(answer.get("notes", ())))  # several names may have the same
    if "problem" not in answer:
        note = f"The specs in src/{plan.package}/env.py are proposed from one reset() of {path_of(answer)}: read them."
        return Simulator(answer, False, (note, *notes), plan.kind)
    library = requirement_text(plan.library) if plan.library is not None else plan.make
    problem = (
        f"{answer['problem']}. So src/{plan.package}/simulator.py stands in for {library}: replace it, or run "
        f"this command again when {library} can be used, to get specs from one reset() of it."
    )
    return Simulator(
        {**STAND_INS[plan.kind], "library_module": answer.get("module", "")}, True, (problem, *notes), plan.kind
    )


def _probe(plan: Plan) -> dict[str, Any]:
    library = plan.library.name if plan.library is not None else None
    with tempfile.TemporaryDirectory() as folder:
        values = {"library": library, "make": plan.make, "names": plan.names, "methods": dict(plan.methods)}
        values["kind"] = plan.kind
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
