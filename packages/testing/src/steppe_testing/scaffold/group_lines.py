"""GroupLines: the source that depends on an inspected simulator of several agents."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .source_lines import SourceLines, composite, dtype_of, indented, nested_dict

__all__ = ["GroupLines"]

# The episode of all ends where each agent is at its end; agents that are left out ended before.
_TRUNCATED = "all(terminated.get(agent, True) or truncated.get(agent, True) for agent in AGENTS)"

_WIDTH = 120  # length of a line of the generated source

_GROUPS_BY_NAME = """\
group_map: the agents of each group: a dict of lists, or None, which groups agents called ``<name>_<number>`` by
    name."""
_GROUPS_OF_ONE = """\
group_map: the agents of each group: a dict of lists, or None, which makes a group of each
    agent."""

_EACH_AGENT = "MarlGroupMapType.ONE_GROUP_PER_AGENT if group_map is None else group_map"
_KINDS_OF_GROUPS = "self._kinds = {group: _kind_of(group, agents) for group, agents in self.group_map.items()}"
_KINDS = '''\
# Agents of one kind have the same entries and actions.
KINDS = {{
{kinds}
}}


def _kind_of(group, agents):
    """Return the kind of the agents of a group."""
    kinds = [kind for kind, members in KINDS.items() if not members.isdisjoint(agents)]
    if len(kinds) > 1:
        raise SpecError(f"The group {{group!r}} has agents of the kinds {{kinds}}: make a group of each.")
    return kinds[0]'''


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
        self.kinds: list[Mapping[str, Any]] = answer.get("kinds", [answer])
        self.kind = self.kinds[0]  # the kind of agents whose entries are being written

    def all(self) -> dict[str, str]:
        lines = super().all()
        by_name = self.answer.get("by_name", True)
        note = _GROUPS_BY_NAME if by_name else _GROUPS_OF_ONE
        return {
            **lines,
            "agents": json.dumps(self.answer["agents"]),
            "errors_import": "from steppe.errors import SpecError" if self._many else "",
            "group_imports": "group_agents" if by_name else "MarlGroupMapType, group_agents",
            "group_map_note": f"{note} The agents of a group are of one of the KINDS." if self._many else note,
            "group_map": "group_map" if by_name else _EACH_AGENT,
            "kinds": self._kinds_table() if self._many else "",
            "kinds_of_groups": _KINDS_OF_GROUPS if self._many else "",
            "masks": self._masks(),
            "rewards": "rewards[agent]" if self.answer["rewards"] else "rewards",
            "terminated": "all(terminated.values())" if self.answer["terminated"] else "bool(terminated)",
            "truncated": f"{_TRUNCATED} or at_limit" if self.answer["truncated"] else lines["truncated"],
        }

    def blocks(self) -> dict[str, str]:
        return {
            **super().blocks(),
            "group_specs": self._by_kind(self._group_specs),
            "group_moves": self._by_kind(self._group_moves),
            "group_data": self._by_kind(self.data),
            "shared_specs": self.shared_specs(),
            "shared_data": self.shared_data(),
        }

    # -- kinds of agents ------------------------------------------------------------------------------------------

    @property
    def _many(self) -> bool:
        return len(self.kinds) > 1

    def _by_kind(self, lines: Callable[[], str]) -> str:
        """Return the statements for a group: those of its kind, or the same ones for all kinds."""
        texts = []
        for kind in self.kinds:
            self.kind = kind
            texts.append(lines())
        self.kind = self.kinds[0]
        if len(set(texts)) == 1:
            return texts[0]
        names = [json.dumps(kind["name"]) for kind in self.kinds]
        heads = [f"{'el' if i else ''}if self._kinds[group] == {name}:" for i, name in enumerate(names[:-1])]
        heads.append(f"else:  # {names[-1]}")
        return "\n".join(f"{head}\n{indented(text)}" for head, text in zip(heads, texts, strict=True))

    def _kinds_table(self) -> str:
        rows = [f"{json.dumps(kind['name'])}: {{{json.dumps(kind['agents'])[1:-1]}}}," for kind in self.kinds]
        return _KINDS.format(kinds=indented("\n".join(rows)))

    def _masks(self) -> str:
        """Return the statements that declare which entries say the allowed actions."""
        masks = {kind.get("name", ""): kind["mask"] for kind in self.kinds if kind["mask"]}
        if not masks:
            return ""
        if len(masks) == len(self.kinds) and len(set(masks.values())) == 1:
            mask = next(iter(masks.values()))
            return f'self.action_masks = {{(group, "action"): (group, "{mask}") for group in self.group_map}}'
        return (
            f"masks = {json.dumps(masks)}\n"
            "self.action_masks = {\n"
            '    (group, "action"): (group, masks[kind]) for group, kind in self._kinds.items() if kind in masks\n'
            "}"
        )

    # -- specs ----------------------------------------------------------------------------------------------------

    def observation(self) -> str:
        return f"observation[group] = {_of_group(self.entries(self.kind['observation'], self.spec, _of_group))}"

    def _group_specs(self) -> str:
        action, note = self.action()
        return f"{self.observation()}\n{note}action[group] = Composite(action={action}, shape=(m,))"

    def shared_specs(self) -> str:
        """Return the statements that declare the entries that all agents share."""
        return self._assignments("observation", self.spec, composite)

    def spec(self, leaf: Mapping[str, Any]) -> str:
        if self.in_group and leaf["key"] == self.kind["mask"]:
            n = self.kind["action"]["n"]
            return f"Binary({n}, shape=(m, {n}), dtype=torch.bool)"
        return super().spec(leaf)

    def outer(self) -> str:
        return "(m,)" if self.in_group else "()"

    def shape(self, leaf: Mapping[str, Any]) -> str:
        sizes = tuple(leaf["shape"]) or (1,)
        return f"(m, {', '.join(map(str, sizes))})" if self.in_group else repr(sizes)

    def action(self) -> tuple[str, str]:
        action = self.kind["action"]
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
        action = self.kind["action"] or {"n": 2}
        if "n" not in action:
            return 'tensordict[group, "action"].cpu().numpy()'
        actions = 'tensordict[group, "action"]'
        return f"({actions} + {action['start']}).tolist()" if action.get("start") else f"{actions}.tolist()"

    def _group_moves(self) -> str:
        return f"moves.update(zip(agents, {self.native_action()}, strict=True))"

    def step(self) -> str:
        return super().step().replace("observed, reward,", "observed, rewards,")

    def step_argument(self) -> str:
        return "moves"

    def observed(self, leaf: Mapping[str, Any]) -> str:
        path = leaf.get("path", [leaf["key"]])
        if not self.in_group:
            keys = [json.dumps(key) for key in path]
        elif self.answer["layout"] == "agent":
            keys = ["agent", *([] if self.kind["single"] else map(json.dumps, path))]
        else:
            keys = [json.dumps(path[0]), "agent", *map(json.dumps, path[1:])]
        return "observed" + "".join(f"[{key}]" for key in keys)

    def data(self) -> str:
        """Return the statement that collects the entries of a group."""
        return f"entries = {nested_dict(self.entries(self.kind['observation'], self.tensor, nested_dict))}"

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
        dtype = "torch.bool" if leaf["key"] == self.kind["mask"] else dtype_of(leaf)
        stacked = f"np.stack([{value} for agent in agents]), dtype={dtype}"
        indent = " " * (20 if self._many else 16)
        fits = len(f'{indent}"{leaf["key"]}": torch.as_tensor({stacked}),') <= _WIDTH
        return f"torch.as_tensor({stacked})" if fits else f"torch.as_tensor(\n    {stacked}\n)"
