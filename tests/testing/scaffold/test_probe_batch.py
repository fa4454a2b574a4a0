"""A simulator of many worlds is inspected, and its environment proposed."""

from __future__ import annotations

import pytest

from tests.testing.scaffold.conftest import FLEET, sources


@pytest.fixture
def propose(new_plugin, tmp_path, fake_dist):
    """Writes the plugin of a batch; returns what the command prints, and the files by their paths in the package."""
    pytest.importorskip("numpy")

    def run(source: str, path: str, *arguments: str):
        (fake_dist.path / "worlds.py").write_text(source)
        made = new_plugin("sea", "--kind", "batch", "--make", f"worlds:{path}", *arguments)
        assert made.status == 0
        return made.out, sources(tmp_path / "sea-steppe")

    return run


def lacking(text: str, lines: list[str]) -> list[str]:
    return [line for line in lines if line not in text]


def test_a_batch_has_specs_and_calls_of_its_simulator(propose):
    out, files = propose(FLEET, "Fleet", "--names", "bay,ocean", "--reset", "launch", "--step", "sail")

    assert "stands in" not in out
    assert "src/sea_steppe/simulator.py" not in files
    expected = [
        '    "ocean": {"at": (2,), "chart": (9, 9)},',
        "super().__init__(device=device, batch_size=[num_envs])",
        "self._simulator = worlds.Fleet(name, num_envs=num_envs)",
        '"at": Unbounded(shape=(num_envs, *shapes["at"])),',
        '"hours": Unbounded(shape=(num_envs, 1), dtype=torch.int64),',
        '"chart": Bounded(0, 255, shape=(num_envs, *shapes["chart"]), dtype=torch.uint8),',
        '"flags": NonTensor(shape=(num_envs,), example_data=""),',
        "self.action_spec = Categorical(4, shape=(num_envs,), device=self.device)",
        "observed, _ = self._simulator.launch(mask=rows, seed=seed)",
        'observed, reward, terminated, truncated, _ = self._simulator.sail(tensordict["action"].cpu().numpy())',
        'data["truncated"] = self._column(truncated, torch.bool) | at_limit',
        '"flags": NonTensorStack(*observed["flags"]),',
        "time_limit=None",
    ]
    assert lacking(files["src/sea_steppe/env.py"], expected) == []
    assert out.count("'tide' was left out: it has no row for each of 13 environments, but the shape ()") == 1
    assert "Fleet.sail() has no argument that steps some environments without the others" in out
    flags = ["supports_partial_reset = True", "supports_partial_step = False", "independent_rows = True"]
    assert lacking(files["tests/test_conformance.py"], flags) == []


def test_a_name_behind_the_number_of_worlds_is_passed_by_keyword(propose):
    source = FLEET.replace("harbour, num_envs=2", 'num_envs=2, harbour="bay"')
    out, files = propose(source, "Fleet", "--names", "bay,ocean", "--reset", "launch", "--step", "sail")

    assert "takes no name" not in out
    assert "worlds.Fleet(harbour=name, num_envs=num_envs)" in files["src/sea_steppe/env.py"]


# Each takes rows, names and seeds in another way.
FORMS = """
import numpy as np


class Box:
    def __init__(self, low, high, shape, dtype="float32"):
        self.low, self.high, self.shape = np.full(shape, low), np.full(shape, high), shape
        self.dtype = np.dtype(dtype)


class Indexed:
    "Indices select worlds, whose rows alone a reset returns; the names stand behind the number; lists of rewards."

    def __init__(self, n_envs, level="one"):
        self.action_space = Box(-2.0, 2.0, (n_envs, 3))
        self.single_observation_space = Box(-9.0, 9.0, (2,))
        self.at = np.zeros((n_envs, 2))
        self.random = np.random.default_rng()

    def seed(self, seed):
        self.random = np.random.default_rng(seed)

    def reset(self, env_ids=None):
        env_ids = np.arange(len(self.at)) if env_ids is None else env_ids
        for i in env_ids:
            assert i == int(i) and not isinstance(i, (bool, np.bool_)), "an index"
            self.at[i] = self.random.normal(size=2)
        return self.at[env_ids]

    def step(self, actions, env_ids):
        for i in env_ids:
            assert not isinstance(i, (bool, np.bool_)), "an index"
            self.at[i] = np.clip(self.at[i] + actions[i][:2], -9, 9)
        return self.at, list(-abs(self.at).sum(1)), abs(self.at[:, 0]) > 8, {}

    def close(self):
        pass


class Together:
    "All worlds begin together, after a seed of the constructor, and step with another argument."

    single_action_space = type("Discrete", (), {"n": 3, "start": 1})

    def __init__(self, worlds_of, batch_size=1, seed=0):
        self.random = np.random.default_rng(seed)
        self.n = batch_size

    def reset(self):
        self.t = 0
        return self.random.random(self.n)

    def step(self, actions):
        assert set(actions) <= {1, 2, 3}
        self.t += 1
        return self.random.random(self.n), np.ones((self.n, 1)), np.full(self.n, self.t == 5)
"""


@pytest.mark.parametrize(
    ("form", "lines", "flags"),
    [
        (
            "Indexed",
            [
                "self._simulator = worlds.Indexed(level=name, n_envs=num_envs)",
                '"observation": Bounded(-9.0, 9.0, shape=(num_envs, 2)),',
                "self.action_spec = Bounded(-2.0, 2.0, shape=(num_envs, 3), device=self.device)",
                "self._simulator.seed(seed)",
                "observed = self._simulator.reset(env_ids=rows.nonzero()[0])",
                "data[torch.as_tensor(rows, device=self.device)] = self._data(observed, int(rows.sum()))",
                'tensordict["action"].cpu().numpy(), env_ids=rows.nonzero()[0]',
                "self._simulator.close()",
            ],
            # One generator draws for all worlds.
            ["supports_partial_reset = True", "supports_partial_step = True", "independent_rows = False"],
        ),
        (
            "Together",
            [
                "self._simulator = worlds.Together(self._name, batch_size=len(self._steps), seed=seed)",
                '"observation": Unbounded(shape=(num_envs, 1)),',
                'raise NotSupported("The simulator resets all of its environments together.")',
                "observed = self._simulator.reset()",
                'observed, reward, terminated = self._simulator.step(tensordict["action"].cpu().numpy() + 1)',
                "from steppe.errors import NotSupported",
            ],
            ["supports_partial_reset = False", "supports_partial_step = False"],
        ),
    ],
)
def test_batches_are_called_as_they_want_it(propose, form, lines, flags):
    out, files = propose(FORMS, form, "--names", "one")

    assert "proposed from one reset()" in out
    assert "was not understood" not in out
    assert lacking(files["src/sea_steppe/env.py"], lines) == []
    assert lacking(files["tests/test_conformance.py"], flags) == []


def test_tensors_are_passed_to_a_simulator_of_tensors(propose):
    pytest.importorskip("torch")
    source = (
        FLEET.replace("import numpy as np", "import numpy as np\nimport torch")
        .replace("def sail(self, moves):", "def sail(self, moves):\n        moves = moves.cpu().numpy()")
        .replace('"at": self.at,', '"at": torch.as_tensor(self.at),')
    )

    out, files = propose(source, "Fleet", "--names", "bay", "--reset", "launch", "--step", "sail")

    assert "was not understood" not in out
    assert 'self._simulator.sail(tensordict["action"])' in files["src/sea_steppe/env.py"]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("num_envs=2", "boats=2", "Fleet has no argument for the number of environments, called num_envs, n_envs"),
        ("return self.seen(), {}", "return None", "reset() returned None: it must return the observations"),
        ("return self.seen(), {}", "return [1.0, 2.0], {}", "reset() returned a list without a row for each"),
    ],
)
def test_a_simulator_that_is_no_batch_is_replaced(propose, old, new, text):
    source = FLEET.replace(old, new).replace("num_envs", "boats" if "boats" in new else "num_envs")

    out, files = propose(source, "Fleet", "--names", "bay", "--reset", "launch", "--step", "sail")

    assert text in out
    assert "src/sea_steppe/simulator.py stands in for worlds:Fleet" in out
    assert "Walkers on streets" in files["src/sea_steppe/simulator.py"]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("abs(self.at).max(1) > 3", "True", "it returned one end for all environments"),
        ("-abs(self.at).sum(1)", "self.at", "reward has 26 values for 13 environments"),
        ("self.hours += 1", "raise OSError('no wind')", "it raises OSError: no wind"),
    ],
)
def test_a_step_that_is_not_understood_is_noted(propose, old, new, text):
    out, files = propose(FLEET.replace(old, new), "Fleet", "--names", "bay", "--reset", "launch", "--step", "sail")

    assert f"step() was not understood: {text}" in out
    assert "# TODO: a guess; step() was not understood." in files["src/sea_steppe/env.py"]
