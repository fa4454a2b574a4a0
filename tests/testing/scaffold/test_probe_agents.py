"""A simulator of several agents is inspected, and its environment proposed."""

from __future__ import annotations

import ast

import pytest

from steppe_testing.scaffold.probe_agents import group_of
from tests.testing.scaffold.conftest import sources

AGENTS = """
class Field:
    possible_agents = ["goat_0", "goat_1", "dog_0"]

    def __init__(self, name):
        self.action_spaces = {agent: type("Discrete", (), {"n": 5, "start": 1}) for agent in self.possible_agents}

    def begin(self):
        return self.seen()

    def seen(self):
        return {BODY}

    def tick(self, moves):
        assert set(moves) == set(self.possible_agents) and set(moves.values()) <= {1, 2, 3, 4, 5}
        ends = {agent: False for agent in self.possible_agents}
        return self.seen(), {agent: 1.0 for agent in self.possible_agents}, ends, ends, {}
"""


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            '{**{agent: {"x": 1.5, "mask": [1, 0, 1, 1, 0], "cry": "meh"} for agent in self.possible_agents}, '
            '"sun": 3}',
            '"x": torch.tensor([[observed[agent]["x"]] for agent in agents], dtype=torch.float32),',
        ),
        (
            '{"x": dict.fromkeys(self.possible_agents, 1.5), '
            '"mask": dict.fromkeys(self.possible_agents, [1, 0, 1, 1, 0]), '
            '"cry": dict.fromkeys(self.possible_agents, "meh"), "sun": 3}',
            '"x": torch.tensor([[observed["x"][agent]] for agent in agents], dtype=torch.float32),',
        ),
    ],
    ids=["by agent", "by entry"],
)
def test_agents_of_a_simulator_are_grouped(new_plugin, tmp_path, fake_dist, body, line):
    (fake_dist.path / "fields.py").write_text(AGENTS.replace("BODY", f"**{body}"))
    pytest.importorskip("numpy")

    status, out, _ = new_plugin(
        *("field", "--kind", "group", "--make", "fields:Field"), "--reset", "begin", "--step", "tick"
    )

    assert (status, "stands in" in out, "understood" in out) == (0, False, False), out
    files = sources(tmp_path / "field-steppe")
    env = files["src/field_steppe/env.py"]
    for expected in (
        line,
        'AGENTS = ["goat_0", "goat_1", "dog_0"]',
        '"mask": Binary(5, shape=(m, 5), dtype=torch.bool),',
        'observation["sun"] = Unbounded(shape=(1,), dtype=torch.int64)',
        'moves.update(zip(agents, (tensordict[group, "action"] + 1).tolist(), strict=True))',
        "observed, rewards, terminated, truncated, _ = self._simulator.tick(moves)",
        "torch.tensor([all(terminated.values())]",
        'self.action_masks = {(group, "action"): (group, "mask") for group in self.group_map}',
    ):
        assert expected in env, expected
    assert '"steppe-multi-agent"' in files["pyproject.toml"]
    assert sum(len(text.splitlines()) for name, text in files.items() if name.startswith("src/")) <= 150


# Boats have a crew and steer in two ways more than buoys, which ring. The first argument takes the name.
BAY = """
ENTRIES = {"boat": {"crew": 3, "flag": "red"}, "buoy": {"bell": 0.5}}
MOVES = {"boat": 4, "buoy": 2}


class Bay:
    agents = ["boat_0", "buoy_0", "boat_1"]

    def __init__(self, tide="ebb"):
        self.depth = {"ebb": 2, "flow": 9}[tide]

    def action_space(self, agent):
        return type("Discrete", (), {"n": MOVES[self.kind(agent)]})

    def kind(self, agent):
        return KIND

    def reset(self, seed=None):
        return self.seen()

    def seen(self):
        return {**{agent: ENTRIES[self.kind(agent)] for agent in self.agents}, "depth": self.depth}

    def step(self, moves):
        assert all(move < MOVES[self.kind(agent)] for agent, move in moves.items())
        return self.seen(), dict.fromkeys(self.agents, 1.0), False
"""


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        (
            'agent.split("_")[0]',
            (
                '    "boat": {"boat_0", "boat_1"},\n    "buoy": {"buoy_0"},\n',
                "self.group_map = group_agents(group_map, AGENTS)\n",
                'if self._kinds[group] == "boat":',
                'else:  # "buoy"',
            ),
        ),
        (
            '"buoy" if agent == "boat_1" else "boat"',  # names do not say the kind
            (
                '    "boat_0": {"boat_0", "buoy_0"},\n    "boat_1": {"boat_1"},\n',
                "group_agents(MarlGroupMapType.ONE_GROUP_PER_AGENT if group_map is None else group_map, AGENTS)\n",
                "from steppe_multi_agent import MarlGroupMapType, group_agents",
                "            agent. The agents of a group are of one of the KINDS.\n",
            ),
        ),
    ],
    ids=["groups by name", "a group of each agent"],
)
def test_groups_of_other_entries_have_their_own_specs(new_plugin, tmp_path, fake_dist, kind, lines):
    (fake_dist.path / "bays.py").write_text(BAY.replace("KIND\n", f"{kind}\n"))

    status, out, _ = new_plugin("bay", "--kind", "group", "--make", "bays:Bay", "--names", "ebb,flow")

    assert (status, "stands in" in out, "understood" in out, "takes no name" in out) == (0, *[False] * 3), out
    assert "Agents of 2 kinds have entries and actions of their own" in out
    assert "has other agents" not in out
    env = sources(tmp_path / "bay-steppe")["src/bay_steppe/env.py"]
    ast.parse(env)
    assert max(map(len, env.splitlines())) <= 120
    for expected in (
        *lines,
        "self._simulator = bays.Bay(name)\n",
        '"bell": Unbounded(shape=(m, 1)),',
        "Composite(action=Categorical(2, shape=(m,)), shape=(m,))",
        "Composite(action=Categorical(4, shape=(m,)), shape=(m,))",
        '"flag": NonTensorStack(*[observed[agent]["flag"] for agent in agents]),',
        'observation["depth"] = Unbounded(shape=(1,), dtype=torch.int64)',
    ):
        assert expected in env, expected


def test_agents_with_different_actions_are_different_kinds(new_plugin, tmp_path, fake_dist):
    alike = BAY.replace('"buoy": {"bell": 0.5}', '"buoy": {"crew": 0.5, "flag": "none"}')
    (fake_dist.path / "bays.py").write_text(alike.replace("KIND\n", 'agent.split("_")[0]\n'))

    _, out, _ = new_plugin("bay", "--kind", "group", "--make", "bays:Bay", "--names", "ebb,flow")

    assert "of their own: boat, buoy." in out
    env = sources(tmp_path / "bay-steppe")["src/bay_steppe/env.py"]
    assert env.count("(action=Categorical(2,") == env.count("(action=Categorical(4,") == 1


def test_whole_numbers_of_some_agents_are_no_kind(new_plugin, tmp_path, fake_dist):
    same = BAY.replace('"buoy": 2', '"buoy": 4').replace('"buoy": {"bell": 0.5}', '"buoy": {"flag": "", "crew": 0.5}')
    (fake_dist.path / "bays.py").write_text(same.replace("KIND\n", 'agent.split("_")[0]\n'))

    new_plugin("bay", "--kind", "group", "--make", "bays:Bay", "--names", "ebb,flow")

    env = sources(tmp_path / "bay-steppe")["src/bay_steppe/env.py"]
    assert "KINDS" not in env
    assert '"crew": torch.tensor([[observed[agent]["crew"]] for agent in agents], dtype=torch.float32),' in env


def test_a_name_with_other_agents_is_noted(new_plugin, fake_dist):
    grown = BAY.replace("[tide]", "[tide]\n        self.agents = self.agents[: self.depth]")
    (fake_dist.path / "bays.py").write_text(grown.replace("KIND\n", 'agent.split("_")[0]\n'))

    _, out, _ = new_plugin("bay", "--kind", "group", "--make", "bays:Bay", "--names", "ebb,flow")

    assert "The simulator 'flow' has other agents, entries or actions than 'ebb'" in out


def test_the_probe_groups_names_like_group_agents():
    """The probe groups names itself, because it runs without torch."""
    pytest.importorskip("torch")
    group_agents = pytest.importorskip("steppe_multi_agent").group_agents
    names = ["boat_0", "boat 1", "old_boat_2", "buoy", "buoy_x"]

    assert [group_of(name) for name in names] == [
        next(group for group, agents in group_agents(None, names).items() if name in agents) for name in names
    ]


def test_a_simulator_without_agents_is_replaced(new_plugin, tmp_path, fake_dist):
    (fake_dist.path / "diaries.py").write_text(AGENTS.replace("possible_agents", "herd").replace("BODY", '"x": 1'))

    _, out, _ = new_plugin("diary", "--kind", "group", "--make", "diaries:Field", "--reset", "begin", "--step", "tick")

    assert "it has no list of the names of its agents, called possible_agents, agents" in out
    assert "src/diary_steppe/simulator.py stands in for diaries:Field" in out
    assert "red_0" in sources(tmp_path / "diary-steppe")["src/diary_steppe/simulator.py"]
