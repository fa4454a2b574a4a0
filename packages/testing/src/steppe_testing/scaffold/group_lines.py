"""GroupLines: the source that depends on an inspected simulator of several agents."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .source_lines import SourceLines, composite, dtype_of, nested_dict

__all__ = ["GroupLines"]

# The episode of all ends where each agent is at its end; agents that are left out ended before.
_TRUNCATED = "all(terminated.get(agent, True) or truncated.get(agent, True) for agent in AGENTS)"

_WIDTH = 120  # length of a line of the generated source


def _of_group(lines: str) -> str:
    return composite(lines, "(m,)")


class GroupLines(SourceLines):
    """Write the source of an environment with groups of agents.

    Each entry of an agent is stacked with those of its group.
    """

    template = "env_group.py"
    on_tensordicts = True
    bases = ("Composite", "EnvBase", "Unbounded")

    def __init__(self, answer: Mapping[str, Any], stands_in: bool) -> None:
        super().__init__(answer, stands_in)
        self.in_group = True  # whether the entries being written are those of a group's agents

    def all(self) -> dict[str, str]:
        mask = self.answer["mask"]
        masks = f'self.action_masks = {{(group, "action"): (group, "{mask}") for group in self.group_map}}'
        lines = super().all()
        return {
            **lines,
            "agents": json.dumps(self.answer["agents"]),
            "masks": masks if mask else "",
            "rewards": "rewards[agent]" if self.answer["rewards"] else "rewards",
            "terminated": "all(terminated.values())" if self.answer["terminated"] else "bool(terminated)",
            "truncated": f"{_TRUNCATED} or at_limit" if self.answer["truncated"] else lines["truncated"],
        }

    def blocks(self) -> dict[str, str]:
        return {**super().blocks(), "shared_specs": self.shared_specs(), "shared_data": self.shared_data()}

    # -- specs ----------------------------------------------------------------------------------------------------

    def observation(self) -> str:
        return f"observation[group] = {_of_group(self.entries(self.leaves, self.spec, _of_group))}"

    def shared_specs(self) -> str:
        """Return the statements that declare the entries that all agents share."""
        return self._assignments("observation", self.spec, composite)

    def spec(self, leaf: Mapping[str, Any]) -> str:
        if leaf["key"] == self.answer["mask"]:
            n = self.answer["action"]["n"]
            return f"Binary({n}, shape=(m, {n}), dtype=torch.bool)"
        return super().spec(leaf)

    def outer(self) -> str:
        return "(m,)" if self.in_group else "()"

    def shape(self, leaf: Mapping[str, Any]) -> str:
        sizes = tuple(leaf["shape"]) or (1,)
        return f"(m, {', '.join(map(str, sizes))})" if self.in_group else repr(sizes)

    def action(self) -> tuple[str, str]:
        action = self.answer["action"]
        if action is None:
            return "Categorical(2, shape=(m,))", "# TODO: a guess; the simulator describes no actions.\n"
        if "n" in action:
            return f"Categorical({action['n']}, shape=(m,))", ""
        shape = f"(m, {', '.join(map(str, action['shape']))})"
        limits = f"{action['low']}, {action['high']}, " if "low" in action else "-1.0, 1.0, "
        dtype = "" if action["dtype"].startswith("float") else ", dtype=torch.int64"
        return f"Bounded({limits}shape={shape}{dtype})", "" if "low" in action else "# TODO: the bounds are a guess.\n"

    # -- data -----------------------------------------------------------------------------------------------------

    def native_action(self) -> str:
        action = self.answer["action"] or {"n": 2}
        if "n" not in action:
            return 'tensordict[group, "action"].cpu().numpy()'
        actions = 'tensordict[group, "action"]'
        return f"({actions} + {action['start']}).tolist()" if action.get("start") else f"{actions}.tolist()"

    def step(self) -> str:
        return super().step().replace("observed, reward,", "observed, rewards,")

    def step_argument(self) -> str:
        return "moves"

    def observed(self, leaf: Mapping[str, Any]) -> str:
        path = leaf.get("path", [leaf["key"]])
        if not self.in_group:
            keys = [json.dumps(key) for key in path]
        elif self.answer["layout"] == "agent":
            keys = ["agent", *([] if self.answer["single"] else map(json.dumps, path))]
        else:
            keys = [json.dumps(path[0]), "agent", *map(json.dumps, path[1:])]
        return "observed" + "".join(f"[{key}]" for key in keys)

    def data(self) -> str:
        """Return the entries of a group in the data."""
        return self.entries(self.leaves, self.tensor, nested_dict)

    def shared_data(self) -> str:
        """Return the entries that all agents share in the data."""
        return self._assignments("data", self.tensor, nested_dict)

    def _assignments(self, target: str, value: Callable[[Mapping[str, Any]], str], nest: Callable[[str], str]) -> str:
        """Return a statement for each entry that all agents share."""
        self.in_group = False
        members: dict[str, list[Mapping[str, Any]]] = {}
        for leaf in self.answer["shared"]:
            members.setdefault(leaf.get("path", [leaf["key"]])[0], []).append(leaf)
        lines = [self.entries(leaves, value, nest).rstrip(",") for leaves in members.values()]
        self.in_group = True
        return "\n".join(f"{target}[{line.replace(':', '] =', 1)}" for line in lines)

    def tensor(self, leaf: Mapping[str, Any]) -> str:
        if not self.in_group:
            return super().tensor(leaf)
        value = self.observed(leaf)
        if leaf["dtype"] in ("text", "object"):
            each = value if leaf["dtype"] == "text" else f"NonTensorData({value})"
            return f"NonTensorStack(*[{each} for agent in agents])"
        if leaf["scalar"]:
            return f"torch.tensor([[{value}] for agent in agents], dtype={dtype_of(leaf)})"
        dtype = "torch.bool" if leaf["key"] == self.answer["mask"] else dtype_of(leaf)
        stacked = f"np.stack([{value} for agent in agents]), dtype={dtype}"
        fits = len(f'{" " * 16}"{leaf["key"]}": torch.as_tensor({stacked}),') <= _WIDTH
        return f"torch.as_tensor({stacked})" if fits else f"torch.as_tensor(\n    {stacked}\n)"
