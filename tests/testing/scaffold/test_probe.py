"""A simulator of one agent is inspected, and its environment proposed."""

from __future__ import annotations

import sys

import pytest

from tests.testing.scaffold.conftest import SIMULATOR, sources

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_specs_are_proposed_from_a_reset_of_the_library(new_plugin, tmp_path, warehouse):
    """If the library can be imported, new-plugin reads the specs from one reset."""
    status, out, _ = new_plugin("warehouse", "--library", "warehouse>=1,<2")

    assert status == 0
    assert "proposed from one reset() of warehouse.Warehouse: read them." in out
    files = sources(tmp_path / "warehouse-steppe")
    assert "src/warehouse_steppe/simulator.py" not in files
    env = files["src/warehouse_steppe/env.py"]
    for line in (
        "self._simulator = warehouse.Warehouse(name)",
        '"battery": Unbounded(shape=(1,)),',
        '"carrying": Binary(shape=(1,), dtype=torch.bool),',
        '"floor": Unbounded(shape=(1,), dtype=torch.int64),',
        "self.action_spec = OneHot(5)",
        "observed, reward, terminated, _ = self._simulator.step(action)",
        # This library would draw a seed of its own at each reset without one.
        "observed = self._simulator.reset(seed=int(self._generator.integers(2**31)))",
        'out["battery"][0] = observed["battery"]',
    ):
        assert line in env
    assert "steppe_library" not in files["src/warehouse_steppe/plugin.py"]  # it is the requirement
    assert "import warehouse" not in files["src/warehouse_steppe/plugin.py"]


FORMS = """
import random


class Constructor:
    num_actions = 3

    def __init__(self, level="easy", seed=None):
        self.random = random.Random(seed)

    def reset(self):
        return self.random.random()

    def step(self, action):
        return self.random.random(), 1, True


class Method:
    actions = [0, 1]

    def __init__(self):
        self.random = random.Random()

    def seed(self, seed):
        self.random.seed(seed)

    def reset(self):
        return {"at": self.random.random()}, {}

    def step(self, action):
        return {"at": self.random.random()}, 1.0, False, self.random.random() < 0.1, {}


class Nothing:
    n_actions = 2

    def reset(self):
        return {"at": 0, "text": "no number"}

    def step(self, action):
        return {"at": action, "text": "no number"}, 0.0, action == 1, False
"""


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        (
            "Constructor",
            [
                "            self._simulator = forms.Constructor(self._name, seed=seed)\n",
                "        observed = self._simulator.reset()\n",
                "        observed, reward, terminated = self._simulator.step(action)\n",
                '        out["observation"][0] = observed\n',
                "self.action_spec = OneHot(3)",
                "time_limit=1000",
            ],
        ),
        (
            "Method",
            [
                "        if seed is not None:\n            self._simulator.seed(seed)\n",
                "        observed, _ = self._simulator.reset()\n",
                "        observed, reward, terminated, truncated, _ = self._simulator.step(action)\n",
                "self.action_spec = OneHot(2)",
                "time_limit=None",
                "bool(truncated) or at_limit",
            ],
        ),
        (
            "Nothing",
            [
                "# TODO: nothing in the library takes a seed.\n",
                "class FormedEnv(EnvBase):\n",
                '                "at": Unbounded(shape=(1,), dtype=torch.int64),\n',
                '                "text": NonTensor(shape=(), example_data=""),\n            },\n',
                '            "text": observed["text"],\n',
                "        observed, reward, terminated, truncated = self._simulator.step(action)\n",
            ],
        ),
    ],
)
def test_simulators_are_called_as_they_want_it(new_plugin, tmp_path, fake_dist, form, lines):
    (fake_dist.path / "forms.py").write_text(FORMS)

    status, out, _ = new_plugin("formed", "--make", f"forms:{form}", "--names", "one")

    assert (status, "proposed from one reset()" in out) == (0, True)
    env = (tmp_path / "formed-steppe/src/formed_steppe/env.py").read_text()
    assert [line for line in lines if line not in env] == []


def test_a_simulator_replaces_a_missing_library(new_plugin, tmp_path):
    """If the library cannot be imported, new-plugin writes a simulator and says so."""
    status, out, _ = new_plugin("warehouse", "--library", "warehouse>=1,<2")

    assert status == 0
    assert (
        "There is no module warehouse here. So src/warehouse_steppe/simulator.py stands in for warehouse>=1,<2" in out
    )
    assert (tmp_path / "warehouse-steppe/src/warehouse_steppe/simulator.py").is_file()


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("1 / 0", "import warehouse raises ZeroDivisionError: division by zero. So src/"),
        (
            "class Box: pass",
            "warehouse: no public class has reset() and step(). Name the class or factory: --make",
        ),
        (
            f"{SIMULATOR}\nclass Other(Warehouse): pass",
            "Other, Warehouse all have reset() and step(). Name the class or factory: --make warehouse:Class",
        ),
        (SIMULATOR.replace('layout="small"', "width, height"), "has arguments without a default (height)"),
        (
            SIMULATOR.replace("return self.seen()\n\n    def seen", "raise OSError('no GPU')\n\n    def seen"),
            "OSError: no GPU",
        ),
        ("import os; os._exit(3)", "warehouse could not be used: exit status 3. So src/"),
    ],
)
def test_a_library_that_cannot_be_used_is_named_with_the_reason(new_plugin, fake_dist, source, text):
    fake_dist("warehouse", "1.2", files={"warehouse.py": source})

    status, out, _ = new_plugin("warehouse", "--library", "warehouse>=1,<2")

    assert status == 0
    assert text in out


def test_a_library_that_is_no_distribution_is_named_by_its_class(new_plugin, tmp_path, fake_dist):
    (fake_dist.path / "sims").mkdir()
    (fake_dist.path / "sims/house.py").write_text(f"{SIMULATOR}\nclass Other(Warehouse): pass")

    assert "proposed from one reset() of sims.house.Other" in new_plugin("house", "--make", "sims.house:Other").out
    files = sources(tmp_path / "house-steppe")
    assert "import sims.house\n" in files["src/house_steppe/env.py"]
    assert tomllib.loads(files["pyproject.toml"])["project"]["dependencies"] == ["steppe>=0.1,<0.2"]
    assert "wraps_library = False" in files["tests/test_conformance.py"]


def test_methods_of_other_names_are_called(new_plugin, tmp_path, fake_dist):
    renamed = SIMULATOR.replace("def reset(", "def begin(").replace("def step(", "def tick(")
    fake_dist("warehouse", "1.2", files={"warehouse.py": renamed})
    arguments = ("warehouse", "--library", "warehouse>=1,<2", "--names", "small")

    status, out, _ = new_plugin(*arguments, "--reset", "begin", "--step", "tick")

    assert status == 0
    env = sources(tmp_path / "warehouse-steppe")["src/warehouse_steppe/env.py"]
    assert "observed = self._simulator.begin(seed=" in env
    assert "observed, reward, terminated, _ = self._simulator.tick(action)" in env
    assert "stands in" not in out


def test_names_that_make_one_environment_are_noted(new_plugin, tmp_path, fake_dist):
    nameless = SIMULATOR.replace('layout="small"):', "):").replace('{"small": 4, "large": 8}[layout]', "4")
    fake_dist("warehouse", "1.2", files={"warehouse.py": nameless.replace("self, )", "self)")})

    _, out, _ = new_plugin("warehouse", "--library", "warehouse>=1,<2", "--names", "small,large")

    assert "Warehouse takes no name, so small, large are the same environment" in out
    files = sources(tmp_path / "warehouse-steppe")
    assert 'NAMES = {"small": {}, "large": {}}' in files["src/warehouse_steppe/plugin.py"]
    assert "self._simulator = warehouse.Warehouse(**NAMES[name])" in files["src/warehouse_steppe/env.py"]


@pytest.mark.parametrize(
    ("argument", "size", "passed", "text"),
    [
        ('shed="small"', "{'small': 4, 'large': 8}[shed]", True, ""),
        ("shed=None", "{None: 2, 'small': 4, 'large': 8}[shed]", True, ""),
        ('shed="small", robots=2', "len(shed)", True, "passed as shed, which accepts any text"),
        ("shed: 'str | int' = 3", "len(str(shed))", True, "passed as shed, which accepts any text"),
        ("shed=None", "len(str(shed))", True, "passed as shed, which accepts any text"),
        ('shed="old"', "{'old': 4, 'small': 5}[shed]", False, "no name (shed='large' raises KeyError: 'large'), so"),
        ("robots: int = None", "robots", False, "no name (its first argument, robots, accepts any value), so"),
        ("robots=3", "robots", False, "no name (its first argument, robots, accepts any value), so"),
        ('device="cpu"', "device", False, "no name (its first argument is device), so"),
    ],
)
def test_the_first_argument_that_takes_all_names_is_the_name(
    new_plugin, tmp_path, fake_dist, argument, size, passed, text
):
    named = SIMULATOR.replace('layout="small"', argument).replace('{"small": 4, "large": 8}[layout]', size)
    fake_dist("warehouse", "1.2", files={"warehouse.py": named})

    _, out, _ = new_plugin("warehouse", "--library", "warehouse>=1,<2", "--names", "small,large")

    assert text in out
    assert ("takes no name" in out) is not passed
    assert ("accepts any" in out) is ("accepts any" in text)
    env = sources(tmp_path / "warehouse-steppe")["src/warehouse_steppe/env.py"]
    assert f"warehouse.Warehouse({'name' if passed else '**NAMES[name]'})" in env


LISTS = """
class Diary:
    n_actions = 4

    def __init__(self, name):
        self.pages = []

    def reset(self):
        self.pages = ["first"]
        return self.seen()

    def seen(self):
        return {"pages": list(self.pages), "counts": [1.0] * len(self.pages), "reader": {"mood": "calm", "age": 7}}

    def step(self, action):
        self.pages.append("more")
        return self.seen(), 0.5, len(self.pages) > 3, {}
"""


def test_lists_and_texts_are_entries_of_an_env_base(new_plugin, tmp_path, fake_dist):
    (fake_dist.path / "diaries.py").write_text(LISTS)

    new_plugin("diary", "--make", "diaries:Diary", "--names", "old")

    env = sources(tmp_path / "diary-steppe")["src/diary_steppe/env.py"]
    for line in (
        "class DiaryEnv(EnvBase):",
        '"pages": NonTensor(shape=(), example_data=None),',
        '"counts": NonTensor(shape=(), example_data=None),',
        '"mood": NonTensor(shape=(), example_data=""),',
        '"age": Unbounded(shape=(1,), dtype=torch.int64),',
        '"age": torch.tensor([observed["reader"]["age"]], dtype=torch.int64),',
        '"pages": NonTensorData(observed["pages"]),',
        'action = int(tensordict["action"].int().argmax())',
    ):
        assert line in env, line


def test_a_list_that_changes_its_length_is_named(new_plugin, fake_dist):
    pytest.importorskip("numpy")  # without it no list is an array
    (fake_dist.path / "diaries.py").write_text(LISTS)

    _, out, _ = new_plugin("diary", "--make", "diaries:Diary", "--names", "old")

    assert "'counts' changes its shape" in out
