"""Families of transforms are installed one by one: lookups and texts with the core alone, each family, and all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from tests.ecosystem.installed import link_libraries
from tests.forked import python
from tests.limits import CHILD
from tools.workspace import Package, package, packages

pytestmark = pytest.mark.programs

GROUP = "steppe.transforms"
FAMILIES = [found.name for found in packages() if found.path.parent.name == "transforms" and not found.apart]

#: A transform of each family that is made by its name, with its arguments.
MADE: dict[str, tuple[str, dict[str, Any]]] = {
    "steppe-action": ("FlattenAction", {"first_dim": -2, "last_dim": -1}),
    "steppe-norm": ("RewardScaling", {"loc": 0.0, "scale": 2.0}),
    "steppe-record": ("TensorDictRecorder", {"out_file_base": "data"}),
    "steppe-reward": ("RewardClipping", {"clamp_min": -1.0}),
    "steppe-tensor": ("SignTransform", {"in_keys": ["observation"]}),
    "steppe-time": ("CatFrames", {"N": 4, "dim": -1}),
    "steppe-vision": ("Resize", {"w": 84}),
}

#: Lets a process that has torch and tensordict loaded, and nothing of ours, go on as one that has found only this path.
WITH_PATH = "import sys; sys.path[:] = {path}; sys.path_importer_cache.clear()"

#: Looks up every name, and prints what was found of each.
LOOKUPS = """
import json, sys
import steppe.transforms
from steppe.errors import TransformNotFound

names, made = json.loads(sys.argv[1])
listed = [name for name in names if name in dir(steppe.transforms)]
imported = sorted(name for name in sys.modules if name.startswith("steppe_"))
found = {}
for name in names:
    try:
        exec(f"from steppe.transforms import {name}")
        found[name] = ["found", globals()[name].__module__.partition(".")[0]]
    except TransformNotFound as error:
        found[name] = ["missing", str(error)]
types = [type(getattr(steppe.transforms, name)(**arguments)).__name__ for name, arguments in made]
print(json.dumps([listed, imported, found, types]))
"""


def names_of(family: str) -> list[str]:
    return sorted(package(family).entry_points(GROUP))


NAMES = {name: family for family in FAMILIES for name in names_of(family)}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all installed packages except those of steppe."""
    ours = ("steppe-", "steppe_", "_steppe_", "_editable_impl_steppe")
    return link_libraries(tmp_path_factory.mktemp("libraries"), ours)


def install(site: Path, one: Package) -> list[str]:
    """Write the metadata of a package into a folder; return additions to the path."""
    info = site / f"{one.name.replace('-', '_')}-{one.version}.dist-info"
    info.mkdir(parents=True)
    for name in ("METADATA", "entry_points.txt"):
        (info / name).write_text(distribution(one.name).read_text(name) or "", encoding="utf-8")
    return [str(one.path / "src"), str(site)]


@pytest.fixture
def run(libraries: Path, tmp_path: Path) -> Any:
    """Run Python with the core, some families, and no other package of ours."""

    def run_with(families: list[str], *arguments: str) -> str:
        site, path = tmp_path / "+".join(["site", *families]), []
        for name in ["steppe", *families]:
            if not (site / f"{name.replace('-', '_')}-{package(name).version}.dist-info").exists():
                install(site, package(name))
            path.append(str(package(name).path / "src"))
        path += [str(site), str(libraries)]
        command = [sys.executable, "-S", *arguments]
        if arguments[0] == "-c" and len(families) == 1:
            # The core alone and all families are looked up in an interpreter of their own; the others soon.
            found = [folder for folder in sys.path if folder.startswith(sys.base_prefix)]
            standard = [folder for folder in found if "-packages" not in folder]
            begin = WITH_PATH.format(path=["", *path, *standard])
            command = [*python(), "-c", f"{begin}\n{arguments[1]}", *arguments[2:]]
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            timeout=CHILD,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_with


@pytest.mark.parametrize("families", [[], *([name] for name in FAMILIES), FAMILIES], ids=lambda names: "+".join(names))
def test_each_name_is_found_or_says_which_package_to_install(run, families):
    made = [MADE[family] for family in families]

    listed, imported, found, types = json.loads(run(families, "-c", LOOKUPS, json.dumps([list(NAMES), made])))

    assert listed == [name for name, family in NAMES.items() if family in families]
    assert imported == [], "a family was imported before one of its names was used"
    assert found == {
        name: ["found", family.replace("-", "_")]
        if family in families
        else [
            "missing",
            f"No installed package has the transform {name!r}. It is in {family}: "
            f"pip install 'steppe[{package(family).short}]'.",
        ]
        for name, family in NAMES.items()
    }
    assert types == [name for name, _ in made]


@pytest.mark.parametrize("families", [[], *([name] for name in FAMILIES), FAMILIES], ids=lambda names: "+".join(names))
def test_the_command_line_lists_the_families_that_are_installed(run, families):
    short = run(families, "-m", "steppe", "plugins")
    rows = {
        row["name"]: row
        for row in json.loads(run(families, "-m", "steppe", "plugins", "--all", "--json"))
        if row["kind"] == "transform"
    }

    assert [name for name in FAMILIES if name in short] == families
    assert ("No plugin is installed." in short) == (not families)
    for name, family in NAMES.items():
        assert rows[name]["dist"] == family
        assert rows[name]["state"] == ("available" if family in families else "not installed")
        if family not in families:
            assert rows[name]["problem"] == f"pip install 'steppe[{package(family).short}]'"
