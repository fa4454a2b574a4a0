from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from steppe.registry import Registry
from tools.workspace import package

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# A simulator as people write them: a seed for reset, a size that depends on the name, four values from step.
SIMULATOR = """
import random

print("a library that prints when it is imported")


class Warehouse:
    n_actions = 5

    def __init__(self, layout="small"):
        self.size = {"small": 4, "large": 8}[layout]

    def reset(self, seed=None):
        self.random = random.Random(seed)
        return self.seen()

    def seen(self):
        return {"battery": self.random.random(), "carrying": False, "floor": self.random.randrange(3)}

    def step(self, action):
        assert 0 <= action < 5
        return self.seen(), 1.0, self.random.random() < 0.1, {}
"""


@pytest.fixture
def installed(fake_dist):
    """The entry point of the command, in the registry of the test."""
    entry = package("steppe-testing").entry_points("steppe.commands")
    fake_dist("steppe-testing", "0.1.0", entry_points={"steppe.commands": entry})


@pytest.fixture
def new_plugin(steppe, installed, tmp_path):
    """Runs ``steppe new-plugin ARGUMENTS`` into a folder; returns its result."""

    def run(*arguments: str):
        return steppe("new-plugin", *arguments, "--dir", str(tmp_path))

    return run


@pytest.fixture
def warehouse(fake_dist):
    fake_dist("warehouse", "1.2", files={"warehouse.py": SIMULATOR})


def sources(folder: Path) -> dict[str, str]:
    """Every file of a package, by its path."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_package_is_written_and_the_next_commands_are_said(new_plugin, tmp_path):
    status, out, err = new_plugin("warehouse", "--transform", "GridOneHot")

    assert (status, err) == (0, "")
    files = sources(tmp_path / "warehouse-steppe")
    assert set(files) == {
        *("pyproject.toml", "README.md", ".gitignore", "tests/test_conformance.py"),
        *(f"src/warehouse_steppe/{name}.py" for name in ("__init__", "plugin", "env", "simulator", "transforms")),
    }
    assert [line for line in out.splitlines() if line.startswith("  ")][-4:] == [
        f"  cd {tmp_path / 'warehouse-steppe'}",
        "  python -m pip install -e '.[test]'",
        "  steppe check warehouse:small",
        "  python -m pytest",
    ]
    assert list(tmp_path.iterdir()) == [tmp_path / "warehouse-steppe"], "nothing is left beside it"


def test_its_metadata_has_both_entry_points_and_all_bounds(new_plugin, tmp_path):
    new_plugin("warehouse", "--library", "warehouse<2,>=1", "--transform", "GridOneHot,GridFlip")

    project = tomllib.loads((tmp_path / "warehouse-steppe/pyproject.toml").read_text())["project"]
    assert project["name"] == "warehouse-steppe"
    assert project["dependencies"] == ["steppe>=0.1,<0.2", "warehouse>=1,<2"]
    assert project["entry-points"] == {
        "steppe.envs": {"warehouse": "warehouse_steppe.plugin"},
        "steppe.transforms": {
            "GridOneHot": "warehouse_steppe.transforms:GridOneHot",
            "GridFlip": "warehouse_steppe.transforms:GridFlip",
        },
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("acme-sim",),
        ("acme-sim", "--names", "one"),
        ("acme-sim", "--names", "a-b,a.b,A-B/v0", "--transform", "Flip"),
        ("acme-sim", "--library", "acme~=2.1"),
        ("steppe-acme-sim", "--kind", "transforms"),
        ("acme-sim", "--kind", "transforms", "--transform", "Flip,Flop"),
        ("acme-sim", "--kind", "group", "--library", "acme~=2.1"),
        ("acme-sim", "--kind", "batch", "--names", "one", "--make", "acme:Engine"),
    ],
)
def test_every_generated_file_compiles_and_has_no_placeholders(new_plugin, tmp_path, arguments):
    assert new_plugin(*arguments).status == 0

    files = sources(tmp_path / "acme-sim-steppe")
    for name, text in files.items():
        assert "$" not in text, name
        assert max(map(len, text.splitlines()), default=0) <= 120, name
        assert text == text.rstrip("\n") + "\n", name
        if name.endswith(".py"):
            names = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
            assert len(names) == len(set(names)), name


def test_its_plugin_is_found_without_torch_and_says_what_it_has(new_plugin, tmp_path, fake_dist, monkeypatch):
    new_plugin("warehouse", "--names", "small,large")
    source = tmp_path / "warehouse-steppe/src"
    for module in ("torch", "tensordict", "numpy"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.syspath_prepend(str(source))
    fake_dist("warehouse-steppe", "0.1.0", envs={"warehouse": "warehouse_steppe.plugin"}, requires=["steppe"])
    registry = Registry(path=[str(fake_dist.path)])

    try:
        assert registry.env_names("warehouse") == ["large", "small"]
        with pytest.raises(LookupError, match=r"has no environment 'smal'\. Did you mean 'small'\?"):
            registry.make("warehouse:smal", {})
    finally:
        for module in ("warehouse_steppe", "warehouse_steppe.plugin"):
            sys.modules.pop(module, None)


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


def test_an_existing_folder_is_left_unchanged(new_plugin, tmp_path):
    kept = tmp_path / "warehouse-steppe"
    kept.mkdir()
    (kept / "notes.txt").write_text("mine")

    status, out, err = new_plugin("warehouse")

    assert (status, out) == (2, "")
    assert err.startswith(f"steppe new-plugin: {kept} exists, and nothing is overwritten:")
    assert sources(kept) == {"notes.txt": "mine"}


def test_where_writing_fails_nothing_half_written_is_left(new_plugin, tmp_path, monkeypatch):
    written = []

    def full(path, text, encoding):
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    status, _, err = new_plugin("warehouse")

    assert (status, err.count("\n")) == (2, 1)
    assert err.endswith("cannot be written: No space left on device\n")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_to_write_into_must_be_there(steppe, installed, tmp_path):
    status, _, err = steppe("new-plugin", "warehouse", "--dir", str(tmp_path / "nowhere"))

    assert status == 2
    assert err == f"steppe new-plugin: {tmp_path / 'nowhere'} cannot be written to: No such file or directory\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["ware house"], "'ware house' cannot be the name of a package: letters, digits"),
        (["-x"], "the following arguments are required: NAME"),
        (["2048"], "'2048' gives the module '2048_steppe', which cannot be imported: begin with a letter"),
        (["steppe"], "'steppe' is the core"),
        (["gym"], "'gym:' is the namespace of steppe-gym"),
        (["a", "--names", "a:small"], "--names must not contain the namespace: write 'small', not 'a:small'"),
        (["a", "--names", "small,,large"], "--names 'small,,large' has an empty name"),
        (["a", "--names", "x,x"], "--names 'x,x' names x twice"),
        (["a", "--names", 'x"y'], "--names 'x\"y' has a space, a quote or a backslash"),
        (["a", "--transform", "One-Hot"], "--transform 'One-Hot' is not the name of a public class"),
        (["a", "--transform", "class"], "--transform 'class' is not the name of a public class"),
        (["a", "--transform", "StepCounter"], "'StepCounter' is a transform of the core"),
        (["a", "--transform", "Resize"], "'Resize' is a transform of steppe-vision"),
        (["a", "--library", "a b"], "--library 'a b' is not a requirement"),
        (["a", "--library", "acme"], "--library 'acme' has no lower bound"),
        (["a", "--library", "acme>=1"], "--library 'acme>=1' has no upper bound"),
        (["a", "--library", "acme @ https://acme.org/a.whl"], "has an address or a marker"),
        (["a", "--library", "steppe>=0.1,<1"], "--library is the package that the plugin wraps"),
        (
            ["a", "--make", "acme.Env"],
            "--make 'acme.Env' is not a class or function of a module: write --make module:Class",
        ),
        (["a", "--kind", "transforms", "--names", "x"], "--names is for environments"),
        (["a", "--kind", "agents"], "argument --kind: invalid choice: 'agents'"),
    ],
)
def test_wrong_names_are_refused_in_one_line(new_plugin, tmp_path, arguments, text):
    status, out, err = new_plugin(*arguments)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert text in err
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--make", "warehouse:Warehouse", "--reset", "my reset"), "--reset 'my reset' is not the name of a method"),
        (("--step", "tick"), "add --library or --make"),
        (("--kind", "transforms", "--step", "tick"), "--step is for environments"),
    ],
)
def test_wrong_names_of_methods_are_refused(new_plugin, arguments, text):
    status, _, err = new_plugin("warehouse", *arguments)

    assert status == 2
    assert text in err


def test_names_that_make_one_environment_are_noted(new_plugin, tmp_path, fake_dist):
    nameless = SIMULATOR.replace('layout="small"):', "):").replace('{"small": 4, "large": 8}[layout]', "4")
    fake_dist("warehouse", "1.2", files={"warehouse.py": nameless.replace("self, )", "self)")})

    _, out, _ = new_plugin("warehouse", "--library", "warehouse>=1,<2", "--names", "small,large")

    assert "Warehouse takes no name, so small, large are the same environment" in out
    files = sources(tmp_path / "warehouse-steppe")
    assert 'NAMES = {"small": {}, "large": {}}' in files["src/warehouse_steppe/plugin.py"]
    assert "self._simulator = warehouse.Warehouse(**NAMES[name])" in files["src/warehouse_steppe/env.py"]


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
    (fake_dist.path / "diaries.py").write_text(LISTS)

    _, out, _ = new_plugin("diary", "--kind", "group", "--make", "diaries:Diary")

    assert "it has no list of the names of its agents, called possible_agents, agents" in out
    assert "src/diary_steppe/simulator.py stands in for diaries:Diary" in out
    assert "red_0" in sources(tmp_path / "diary-steppe")["src/diary_steppe/simulator.py"]
