"""BatchLines: the source that depends on an inspected simulator that steps many worlds at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .source_lines import SourceLines, composite, dtype_of, indented, nested_dict

__all__ = ["BatchLines"]

_ALL_OF_THEM = """\
if not rows.all():
    raise NotSupported("The simulator {verb} all of its environments together.")
"""


def _of_worlds(lines: str) -> str:
    return composite(lines, "(num_envs,)")


class BatchLines(SourceLines):
    """Write the source of an environment that is a batch: each entry has a row for each world."""

    template = "env_batch.py"
    on_tensordicts = True
    bases = ("Composite", "EnvBase", "Unbounded")
    modules = ("numpy as np",)

    def all(self) -> dict[str, str]:
        lines = super().all()
        whole = self.answer["reset_rows"] is None or self.answer["step_rows"] is None
        return {
            **lines,
            "errors_import": "from steppe.errors import NotSupported" if whole else "",
            "truncated": "self._column(truncated, torch.bool) | at_limit" if self.truncates else "at_limit",
            "reset_data": self.reset_data,
            "size_argument": ", num_envs" if self.answer["selected"] else "",
            "size": ", len(rows)" if self.answer["selected"] else "",
            "partial_reset": str(self.answer["reset_rows"] is not None),
            "partial_step": str(self.answer["step_rows"] is not None),
            "independent_rows": str(self.answer["independent"]),
        }

    # -- making it ------------------------------------------------------------------------------------------------

    def arguments(self, name: str, num_envs: str) -> list[str]:
        return [*super().arguments(name, num_envs), f"{self.answer['count']}={num_envs}"]

    # -- specs ----------------------------------------------------------------------------------------------------

    def observation(self) -> str:
        lines = self.entries(self.leaves, self.spec, _of_worlds)
        inner = f"{{\n{indented(lines)}\n}},\nshape=(num_envs,),\ndevice=self.device,"
        return f"self.observation_spec = Composite(\n{indented(inner)}\n)"

    def spec(self, leaf: Mapping[str, Any]) -> str:
        if self.stands_in and leaf["scalar"]:
            return "Categorical(self._simulator.size, shape=(num_envs, 1))"
        return super().spec(leaf)

    def outer(self) -> str:
        return "(num_envs,)"

    def shape(self, leaf: Mapping[str, Any]) -> str:
        if not self.same_shapes and leaf["shape"]:
            return f"(num_envs, *shapes[{json.dumps(leaf['key'])}])"
        return f"(num_envs, {', '.join(map(str, leaf['shape'] or [1]))})"

    def action(self) -> tuple[str, str]:
        action = self.answer["action"]
        if action is None:
            spec, note = "Categorical(2, shape=(num_envs,)", "# TODO: a guess; the simulator describes no actions.\n"
        elif "n" in action:
            spec, note = f"Categorical({action['n']}, shape=(num_envs,)", ""
        else:
            low, high = action.get("low", -1.0), action.get("high", 1.0)
            sizes = "".join(f", {size}" for size in action["shape"]) or ","
            spec, note = f"Bounded({low}, {high}, shape=(num_envs{sizes})", ""
            if not action["dtype"].startswith("float"):
                spec = f"Bounded({int(low)}, {int(high)}, shape=(num_envs{sizes}), dtype=torch.int64"
            if "low" not in action:
                note = "# TODO: the bounds are a guess.\n"
        return f"self.action_spec = {spec}, device=self.device)", note

    # -- reset and step -------------------------------------------------------------------------------------------

    def reset(self) -> str:
        rows = self.answer["reset_rows"]
        return (_ALL_OF_THEM.format(verb="resets") if rows is None else "") + super().reset()

    def reset_arguments(self) -> list[str]:
        return [*self._selection("reset_rows"), *super().reset_arguments()]

    def step(self) -> str:
        rows = self.answer["step_rows"]
        return (_ALL_OF_THEM.format(verb="steps") if rows is None else "") + super().step()

    def step_argument(self) -> str:
        action = 'tensordict["action"]' if self.answer["tensors"] else 'tensordict["action"].cpu().numpy()'
        start = (self.answer["action"] or {}).get("start")
        return ", ".join([f"{action} + {start}" if start else action, *self._selection("step_rows")])

    def _selection(self, method: str) -> list[str]:
        if self.answer[method] is None:
            return []
        name, form = self.answer[method]
        return [f"{name}={'rows' if form == 'mask' else 'rows.nonzero()[0]'}"]

    # -- data -----------------------------------------------------------------------------------------------------

    def data(self) -> str:
        """Return the statements that make the TensorDict of an observation."""
        size = "[num_envs]" if self.answer["selected"] else "self.batch_size"
        data = nested_dict(self.entries(self.leaves, self.tensor, nested_dict))
        return f"data = {data}\nreturn TensorDict(data, {size}, device=self.device)"

    @property
    def reset_data(self) -> str:
        """Return the statements that return the data of a reset."""
        if not self.answer["selected"]:
            return "return self._data(observed)"
        return (
            "# The simulator returned the rows that were reset; values of the others are ignored.\n"
            "data = self.observation_spec.zero()\n"
            "data[torch.as_tensor(rows, device=self.device)] = self._data(observed, int(rows.sum()))\n"
            "return data"
        )

    def tensor(self, leaf: Mapping[str, Any]) -> str:
        value = self.observed(leaf)
        if leaf["dtype"] in ("text", "object"):
            return (
                f"NonTensorStack(*{value})"
                if leaf["dtype"] == "text"
                else f"NonTensorStack(*map(NonTensorData, {value}))"
            )
        if leaf["scalar"]:
            return f"self._column({value}, {dtype_of(leaf)})"
        return f"torch.as_tensor({value}, dtype={dtype_of(leaf)}, device=self.device).clone()"
