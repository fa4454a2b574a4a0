"""A simulator of several agents is inspected, and its environment proposed."""

from __future__ import annotations

import pytest

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


def test_a_simulator_without_agents_is_replaced(new_plugin, tmp_path, fake_dist):
    (fake_dist.path / "diaries.py").write_text(AGENTS.replace("possible_agents", "herd").replace("BODY", '"x": 1'))

    _, out, _ = new_plugin("diary", "--kind", "group", "--make", "diaries:Field", "--reset", "begin", "--step", "tick")

    assert "it has no list of the names of its agents, called possible_agents, agents" in out
    assert "src/diary_steppe/simulator.py stands in for diaries:Field" in out
    assert "red_0" in sources(tmp_path / "diary-steppe")["src/diary_steppe/simulator.py"]
