"""Each environment library has its classes with TorchRL's arguments, its tests, its errors and its matrix row."""

from __future__ import annotations

import ast
import operator
import re
import sys
from pathlib import Path

import pytest

from steppe.errors import LibraryMissing, LibraryVersionError
from steppe.registry import Registry
from steppe_testing import FakeDists
from tests.ecosystem.test_library_pages import LIBRARIES
from tools.workspace import ROOT, Package, all_rows, package

_MULTI_AGENT = {"categorical_actions", "group_map"}

#: TorchRL's classes of the library wrappers, and the arguments that its users write, beside those of EnvBase.
CLASSES: dict[str, dict[str, set[str]]] = {
    "brax": {
        "BraxEnv": {"cache_clear_frequency", "requires_grad", "num_workers", "categorical_action_encoding"},
        "BraxWrapper": {"cache_clear_frequency", "requires_grad", "categorical_action_encoding"},
    },
    "dm-control": {
        "DMControlEnv": {"from_pixels", "pixels_only", "camera_id", "render_kwargs", "num_workers", "frame_skip"},
        "DMControlWrapper": {"from_pixels", "pixels_only", "frame_skip"},
    },
    "envpool": {"MultiThreadedEnv": {"num_workers", "create_env_kwargs"}, "MultiThreadedEnvWrapper": set()},
    "gym": {
        "GymEnv": {
            *("categorical_action_encoding", "from_pixels", "pixels_only", "frame_skip", "num_envs", "num_workers"),
            *("disable_env_checker", "convert_actions_to_numpy", "missing_obs_value"),
        },
        "GymWrapper": {"categorical_action_encoding", "from_pixels", "pixels_only", "frame_skip"},
    },
    "habitat": {"HabitatEnv": {"from_pixels", "pixels_only", "categorical_action_encoding"}},
    "isaac": {"IsaacGymEnv": {"num_envs"}, "IsaacGymWrapper": set(), "IsaacLabWrapper": set()},
    "jumanji": {"JumanjiEnv": {"categorical_action_encoding", "jit"}, "JumanjiWrapper": {"jit"}},
    "meltingpot": {"MeltingpotEnv": {"max_steps", *_MULTI_AGENT}, "MeltingpotWrapper": {"max_steps", *_MULTI_AGENT}},
    "mo-gym": {"MOGymEnv": {"from_pixels", "frame_skip"}, "MOGymWrapper": {"from_pixels"}},
    "openml": {"OpenMLEnv": {"batch_size"}},
    "openspiel": {
        "OpenSpielEnv": {"return_state", "chance_sampler", *_MULTI_AGENT},
        "OpenSpielWrapper": {"return_state", "chance_sampler", *_MULTI_AGENT},
    },
    "pettingzoo": {
        "PettingZooEnv": {"parallel", "return_state", "use_mask", "seed", "done_on_any", *_MULTI_AGENT},
        "PettingZooWrapper": {"return_state", "use_mask", "seed", "done_on_any", *_MULTI_AGENT},
    },
    "playground": {
        "MujocoPlaygroundEnv": {"config", "config_overrides", "num_workers", "agent_mapping"},
        "MujocoPlaygroundWrapper": {"agent_mapping"},
    },
    "procgen": {"ProcgenEnv": {"num_envs"}, "ProcgenWrapper": set()},
    "robohive": {"RoboHiveEnv": {"from_pixels", "from_depths"}},
    "safety-gymnasium": {"SafetyGymnasiumEnv": {"from_pixels", "frame_skip"}, "SafetyGymnasiumWrapper": {"frame_skip"}},
    "smacv2": {
        "SMACv2Env": {"capability_config", "seed", "categorical_actions"},
        "SMACv2Wrapper": {"categorical_actions"},
    },
    "unity": {"UnityMLAgentsEnv": set(_MULTI_AGENT), "UnityMLAgentsWrapper": set(_MULTI_AGENT)},
    "vmas": {
        "VmasEnv": {"num_envs", "continuous_actions", "max_steps", "seed", "scenario_kwargs", *_MULTI_AGENT},
        "VmasWrapper": set(_MULTI_AGENT),
    },
}

#: Libraries for which D1 has no class.
CLASSES |= {
    "craftax": {"CraftaxEnv": {"batch_size"}},
    "gymnax": {"GymnaxEnv": {"batch_size"}, "GymnaxWrapper": {"batch_size"}},
    "pgx": {"PgxEnv": {"batch_size"}, "PgxWrapper": {"batch_size"}},
}

#: Arguments of EnvBase that every class takes.
_BASE = {"device", "batch_size", "allow_done_after_reset", "run_type_checks"}

#: Libraries that pip's index has not: no package can require them, so their plugins look for them.
NOT_ON_AN_INDEX = {"isaac", "smacv2"}

#: By id of an environment: the installed libraries, and texts of the error: what is needed, what is found, the command.
SOUGHT_BY_PLUGINS: dict[str, list[tuple[dict[str, str], list[str]]]] = {
    "isaacgym:Ant": [
        ({}, ["isaacgymenvs>=1.4, which is not installed", "pip install -e IsaacGymEnvs"]),
        ({"isaacgymenvs": "1.3"}, ["isaacgymenvs>=1.4, but isaacgymenvs 1.3 is", "pip install -e IsaacGymEnvs"]),
        ({"isaacgymenvs": "1.5"}, ["isaacgym>=1.0rc4, which is not installed", "pip install -e isaacgym/python"]),
        (
            {"isaacgymenvs": "1.4", "isaacgym": "1.0rc3"},
            ["isaacgym>=1.0rc4, but isaacgym 1.0rc3 is installed in", "pip install -e isaacgym/python"],
        ),
    ],
    "isaaclab:Isaac-Ant-v0": [
        ({}, ["isaaclab>=0.30, which is not installed", "pip install 'isaaclab[isaacsim]'"]),
        ({"isaaclab": "0.27.1"}, ["isaaclab>=0.30, but isaaclab 0.27.1 is", "pip install 'isaaclab[isaacsim]'"]),
    ],
    "smacv2:10gen_terran": [
        ({}, ["SMACv2>=1.0, which is not installed", "pip install -e smacv2"]),
        ({"SMACv2": "0.9"}, ["SMACv2>=1.0, but SMACv2 0.9 is installed in", "pip install -e smacv2"]),
    ],
}


def classes() -> dict[str, ast.ClassDef]:
    """Return each class of the core and of the packages about environments, by name."""
    paths = [path for folder in ("core", "libs", "envs") for path in (ROOT / "packages" / folder).rglob("src/**/*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    return {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


KNOWN = classes()


def lineage(name: str, seen: tuple[str, ...] = ()) -> list[str]:
    """Return a class and its bases, in the order in which their arguments are looked up."""
    if name not in KNOWN or name in seen:
        return []
    bases = [base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in KNOWN[name].bases]
    return [name, *(each for base in bases for each in lineage(base, (*seen, name)))]


def arguments(name: str) -> set[str]:
    """Return the arguments of a class, and those of its bases as long as ``**kwargs`` passes them on."""
    found: set[str] = set()
    for each in lineage(name):
        made = [item for item in KNOWN[each].body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
        for method in made:
            found |= {argument.arg for argument in (*method.args.args, *method.args.kwonlyargs)}
            if method.args.kwarg is None:
                return found
    return found


NAME = operator.attrgetter("short")


def text_of_tests(package: Package) -> str:
    """Return the text of the tests of a package."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / package.tests).rglob("*.py")))


def test_the_table_has_a_line_for_each_library():
    assert set(CLASSES) == {package.short for package in LIBRARIES}


def popped(short: str) -> set[str]:
    """Return the strings in the modules of a package: names that they take from ``kwargs`` are among them."""
    paths = [*package(f"steppe-{short}").path.rglob("src/**/*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    constants = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return {node.value for node in constants if isinstance(node.value, str)}


@pytest.mark.parametrize("short", CLASSES)
def test_each_class_exists_with_torchrls_arguments(short):
    entry_points = package(f"steppe-{short}").entry_points("steppe.env_classes")
    for name, wanted in CLASSES[short].items():
        assert name in entry_points
        missing = (wanted | _BASE) - arguments(name) - popped(short)
        assert not missing, f"{name} does not take {sorted(missing)}"


#: What the tests of each library do, and the words that show it.
CHECKS = {
    "the kit's test of its plugin": r"PluginConformance\)",
    "the kit's test of its environments": r"EnvConformance\)",
    "a comparison of SerialEnv": r"\bSerialEnv\b",
    "a comparison of ParallelEnv": r"\bParallelEnv\b",
    "a comparison of a collector": r"Collector\(",
    "an unknown name with a suggestion": r"EnvNotFound",
}


@pytest.mark.parametrize("package", LIBRARIES, ids=NAME)
def test_each_library_has_tests_of_each_kind(package):
    text = text_of_tests(package)
    missing = [check for check, words in CHECKS.items() if not re.search(words, text)]

    assert not missing, f"{package.tests} lacks {missing}"
    for namespace in package.entry_points("steppe.envs"):
        assert f'namespace = "{namespace}"' in text


@pytest.mark.parametrize("package", LIBRARIES, ids=NAME)
def test_each_library_with_masks_tries_100_episodes(package):
    page = (package.path / "README.md").read_text(encoding="utf-8")
    if "action_mask" not in page:
        pytest.skip("its data has no masks")

    assert re.search(r"\b100\b", text_of_tests(package))


@pytest.mark.parametrize("package", LIBRARIES, ids=NAME)
def test_each_library_has_a_row_in_the_matrix(package):
    assert any(of.name == package.name for of, _ in all_rows())


def registry_with(package: Package, folder: Path, library_version: str | None) -> Registry:
    """Return a registry that finds a plugin, and its libraries if they have a version."""
    dists = FakeDists(folder)
    project = package.pyproject["project"]
    extras = [f'{text}; extra == "{extra}"' for extra, lines in package.extras.items() for text in lines]
    envs = package.entry_points("steppe.envs")
    dists(package.name, "0.1.0", envs=envs, requires=[*project["dependencies"], *extras], extras=package.extras)
    ours = {each.name for each in package.requirements if each.name.startswith("steppe")}
    for name in ours - {package.name}:
        dists(name, "0.1.0")
    if library_version is not None:
        for name in {each.name for each in package.requirements} - ours:
            dists(name, library_version)
    return Registry(path=[str(folder)], steppe_version="0.1.0")


@pytest.mark.parametrize(
    ("version", "error", "texts"),
    [
        (None, LibraryMissing, ["installed", "pip install"]),
        ("0.0.0.dev0", LibraryVersionError, ["0.0.0.dev0", "pip install"]),
    ],
    ids=["missing", "too old"],
)
@pytest.mark.parametrize("package", [each for each in LIBRARIES if each.short not in NOT_ON_AN_INDEX], ids=NAME)
def test_a_library_that_cannot_be_used_is_named(package, version, error, texts, tmp_path):
    registry = registry_with(package, tmp_path, version)
    names = {each.name for each in package.requirements if not each.name.startswith("steppe")}
    for record in registry.found():
        with pytest.raises(error) as caught:
            registry.check(record)

        text = str(caught.value)
        assert any(name in text for name in names)
        assert all(part in text for part in texts), text


@pytest.fixture
def forget_plugins():
    """Forgets the plugins that a test imports: other tests skip if they are not installed."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("steppe_isaac", "steppe_smacv2"):
            del sys.modules[name]


def test_each_plugin_that_looks_for_its_library_is_tried():
    namespaces = {name for short in NOT_ON_AN_INDEX for name in package_envs(short)}

    assert {env_id.partition(":")[0] for env_id in SOUGHT_BY_PLUGINS} == namespaces


@pytest.mark.parametrize(
    ("env_id", "installed", "texts"),
    [(env_id, *case) for env_id, cases in SOUGHT_BY_PLUGINS.items() for case in cases],
)
def test_a_library_that_a_plugin_looks_for_is_named(env_id, installed, texts, tmp_path, monkeypatch, forget_plugins):
    short = next(each for each in NOT_ON_AN_INDEX if env_id.partition(":")[0] in package_envs(each))
    dists = FakeDists(tmp_path)
    for name, version in installed.items():
        dists(name, version, files={f"{name.lower()}/__init__.py": ""})
    dists(f"steppe-{short}", "0.1.0", envs=package_envs(short))
    monkeypatch.syspath_prepend(str(package(f"steppe-{short}").path / "src"))
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = {"num_envs": 2} if env_id.startswith("isaacgym:") else {}
    error = LibraryVersionError if " but " in texts[0] else LibraryMissing

    with pytest.raises(error) as caught:
        Registry(path=[str(tmp_path)], steppe_version="0.1.0").make(env_id, arguments)

    assert [text for text in texts if text not in str(caught.value)] == []


def package_envs(short: str) -> dict[str, str]:
    """Return the namespaces of a package, and their modules."""
    return package(f"steppe-{short}").entry_points("steppe.envs")
