"""SourceLines: the source that depends on an inspected simulator of one agent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["SourceLines", "composite", "dtype_of", "nested_dict", "path_of"]


def path_of(answer: Mapping[str, Any]) -> str:
    """Return the dotted name of the simulator class or factory."""
    return f"{answer['module']}.{answer['path']}"


class SourceLines:
    """Write the source of an environment of one agent.

    Args:
        answer: description of the simulator, as in :class:`~steppe_testing.scaffold.simulator.Simulator`.
        stands_in: whether it is the stand-in of the new package.
    """

    def __init__(self, answer: Mapping[str, Any], stands_in: bool) -> None:
        self.answer = answer
        self.stands_in = stands_in
        self.leaves: list[Mapping[str, Any]] = answer["observation"]
        shapes = list(answer.get("shapes", {}).values())
        self.same_shapes = all(each == shapes[0] for each in shapes)

    @property
    def on_tensordicts(self) -> bool:
        """Whether an entry is no array, so that the environment has no array path."""
        return any(leaf["dtype"] in ("text", "object") for leaf in self.leaves)

    @property
    def template(self) -> str:
        """The template of the environment."""
        return "env_on_tensordicts.py" if self.on_tensordicts else "env.py"

    @property
    def bases(self) -> tuple[str, ...]:
        """Classes of steppe that the template names."""
        return ("EnvBase" if self.on_tensordicts else "ArrayEnv", "Composite", "Unbounded")

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules that the template names."""
        return ()

    def all(self) -> dict[str, str]:
        """Return the parts by the names of their placeholders."""
        answer = self.answer
        action, action_note = self.action()
        limit = "None" if self.truncates and answer.get("ends") else "100" if self.stands_in else "1000"
        blocks = {"observation": self.observation(), "action": action, "reset": self.reset(), "step": self.step()}
        blocks |= self.blocks()
        code = "\n".join(blocks.values())
        names = [*self.bases]
        names += [name for name in ("Binary", "Bounded", "Categorical", "NonTensor", "OneHot") if f"{name}(" in code]
        names += ["write_row"] if "write_row(" in code else []
        used = {"numpy as np": self.draws or "np." in code, "torch": self.on_tensordicts or "torch." in code}
        used |= dict.fromkeys(self.modules, True)
        used[answer["module"]] = not self.stands_in
        own = ["from .plugin import NAMES"] if self.settings else []
        own += ["from .simulator import Simulator"] if self.stands_in else []
        tensordict = [name for name in ("NonTensorData", "NonTensorStack") if f"{name}(" in code]
        return {
            "heads": "\n".join(f"import {name}" for name in sorted(used) if used[name]),
            "tensordict_imports": ", ".join([*tensordict, "TensorDict"]),
            "own_import": "\n" + "\n".join(own) if own else "",
            "spec_imports": ", ".join(sorted(names, key=str.lower)),
            "shapes": "" if self.same_shapes else self.shapes(),
            "what_is_wrapped": "the simulator" if self.stands_in else f"`{path_of(answer)}`",
            "make": self.make(),
            "more_state": self.more_state(),
            "shapes_of_name": "" if self.same_shapes else "shapes = _SHAPES[name]",
            "action_note": action_note,
            "native_action": self.native_action(),
            "seed_note": self.seed_note,
            "truncated": "bool(truncated) or at_limit" if self.truncates else "at_limit",
            "writes": "",
            "data": "",
            **blocks,
            "close": self.close,
            "time_limit": limit,
            "max_steps": "1000" if limit == "None" else limit,
            "deterministic": str(answer.get("deterministic", answer.get("seed") != "none")),
            "seed_matters": str(answer.get("seed_matters", answer.get("seed") != "none")),
            "partial_reset": "True",
            "partial_step": "True",
            "independent_rows": "True",
            "ends": str(limit != "None" or answer.get("ends", True)),
        }

    def blocks(self) -> dict[str, str]:
        """Return the parts that write the data."""
        return {"data": self.data()} if self.on_tensordicts else {"writes": self.writes}

    # -- making it ------------------------------------------------------------------------------------------------

    def make(self) -> str:
        return f"self._simulator = {self._maker()}({', '.join(self.arguments('name', 'num_envs'))})"

    def make_again(self) -> str:
        """Return the statement that makes the simulator once more, with a seed."""
        arguments = [*self.arguments("self._name", "len(self._steps)"), "seed=seed"]
        return f"self._simulator = {self._maker()}({', '.join(arguments)})"

    def _maker(self) -> str:
        return "Simulator" if self.stands_in else path_of(self.answer)

    def arguments(self, name: str, num_envs: str) -> list[str]:
        """Return the arguments of the simulator.

        Args:
            name: the expression of the name of the environment.
            num_envs: the expression of the number of worlds, for simulators that step many.
        """
        keyword = self.answer.get("name_keyword", "")
        named = [f"{keyword}={name}" if keyword else name]
        return named if self.answer["takes_name"] else [f"**NAMES[{name}]"] if self.settings else []

    @property
    def settings(self) -> bool:
        """Whether the simulator takes no name, and names stand for its arguments."""
        return not self.answer["takes_name"] and len(self.answer.get("names", ())) > 1

    def more_state(self) -> str:
        lines = []
        if self.answer["seed"] == "constructor" and (self.answer["takes_name"] or self.settings):
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

    def observation(self) -> str:
        device = ",\n    device=self.device,\n)" if self.on_tensordicts else "\n)"
        lines = self.entries(self.leaves, self.spec, composite)
        return f"self.observation_spec = Composite(\n    {{\n{indented(lines, 2)}\n    }}{device}"

    def entries(
        self, leaves: Sequence[Mapping[str, Any]], value: Callable[[Mapping[str, Any]], str], nest: Callable[[str], str]
    ) -> str:
        """Return a line ``"key": value,`` for each entry; ``nest`` makes a value of the lines of nested entries."""
        groups: dict[str, list[tuple[list[str], Mapping[str, Any]]]] = {}
        for leaf in leaves:
            path = list(leaf.get("rest", leaf.get("path", [leaf["key"]])))
            groups.setdefault(path[0], []).append((path[1:], leaf))
        lines = []
        for key, members in groups.items():
            if members[0][0]:
                inner = self.entries([{**leaf, "rest": rest} for rest, leaf in members], value, nest)
                lines.append(f"{json.dumps(key)}: {nest(inner)},")
            else:
                lines.append(f"{json.dumps(key)}: {value(members[0][1])},")
        return "\n".join(lines)

    def spec(self, leaf: Mapping[str, Any]) -> str:
        shape, dtype = self.shape(leaf), leaf["dtype"]
        bounded = "low" in leaf
        if dtype in ("text", "object"):
            example = '""' if dtype == "text" else "None"
            return f"NonTensor(shape={self.outer()}, example_data={example})"
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

    def outer(self) -> str:
        """Return the shape in front of each entry."""
        return "()"

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
        lines = []
        if self.draws:
            lines = ["if seed is not None:", "    self._generator = np.random.default_rng(seed)"]
        elif self.answer["seed"] == "method":
            lines = ["if seed is not None:", "    self._simulator.seed(seed)"]
        elif self.answer["seed"] == "constructor":
            lines = ["if seed is not None:", f"    {self.make_again()}"]
        call = f"self._simulator.{self.answer['methods']['reset']}({', '.join(self.reset_arguments())})"
        form = self.answer["reset"]
        lines.append(
            f"observed{', _' if form == 'pair' else ''} = {call}{'.observation' if form == 'timestep' else ''}"
        )
        return "\n".join(lines)

    def reset_arguments(self) -> list[str]:
        """Return the arguments of the simulator's reset."""
        if self.draws:
            return ["seed=int(self._generator.integers(2**31))"]
        return ["seed=seed"] if self.answer["seed"] == "reset" else []

    @property
    def truncates(self) -> bool:
        """Whether the simulator reports truncations."""
        return self.answer.get("step") in ("five", "flags", "timestep")

    def step_argument(self) -> str:
        """Return the argument of the simulator's step."""
        start = (self.answer["action"] or {}).get("start")
        return f"action + {start}" if start else "action"

    def step(self) -> str:
        call = f"self._simulator.{self.answer['methods']['step']}({self.step_argument()})"
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

    def native_action(self) -> str:
        """Return the expression of the action for the simulator, from a TensorDict."""
        if "n" in (self.answer["action"] or {"n": 2}):
            return 'int(tensordict["action"].int().argmax())'
        return 'tensordict["action"].cpu().numpy()'

    def observed(self, leaf: Mapping[str, Any]) -> str:
        """Return the expression of an observed value."""
        if self.answer["single"]:
            return "observed"
        return "observed" + "".join(f"[{json.dumps(key)}]" for key in leaf.get("path", [leaf["key"]]))

    @property
    def writes(self) -> str:
        lines = []
        for leaf in self.leaves:
            path = leaf.get("path", [leaf["key"]])
            key = ", ".join(map(json.dumps, path))
            value = self.observed(leaf)
            row = f"({key})" if len(path) > 1 else key
            lines.append(f"out[{key}][0] = {value}" if leaf["scalar"] else f"write_row(out, {row}, {value})")
        return "\n".join(lines)

    def data(self) -> str:
        """Return the statement that makes the TensorDict of an observation."""
        entries = self.entries(self.leaves, self.tensor, nested_dict)
        return f"data = {{\n{indented(entries)}\n}}\nreturn TensorDict(data, [], device=self.device)"

    def tensor(self, leaf: Mapping[str, Any]) -> str:
        """Return the expression of the tensor, or of the text, of an observed value."""
        value = self.observed(leaf)
        if leaf["dtype"] in ("text", "object"):
            return value if leaf["dtype"] == "text" else f"NonTensorData({value})"
        if leaf["scalar"]:
            return f"torch.tensor([{value}], dtype={dtype_of(leaf)})"
        return f"torch.as_tensor({value}, dtype={dtype_of(leaf)}).clone()"


def dtype_of(leaf: Mapping[str, Any]) -> str:
    """Return the dtype of the spec of an entry."""
    if leaf["dtype"] == "bool":
        return "torch.bool"
    if leaf["dtype"].startswith("float") and "n" not in leaf:
        return "torch.float32"
    return "torch.uint8" if leaf["dtype"] == "uint8" and "n" not in leaf else "torch.int64"


def composite(lines: str, shape: str = "") -> str:
    """Return the source of a Composite with these entries."""
    last = f",\n    shape={shape},\n)" if shape else "\n)"
    return f"Composite(\n    {{\n{indented(lines, 2)}\n    }}{last}"


def nested_dict(lines: str) -> str:
    """Return the source of a dict with these entries."""
    return f"{{\n{indented(lines)}\n}}"


def indented(text: str, levels: int = 1) -> str:
    return "\n".join(f"{'    ' * levels}{line}" for line in text.split("\n"))
