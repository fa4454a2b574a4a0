"""Lazy imports, each tested in a separate interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.limits import CHILD
from tools.workspace import Package, packages

LIGHT = {"cloudpickle", "importlib_metadata", "packaging", "pluggy", "pytest", "rich"}

# What the packages wrap or compute with.
HEAVY = {
    requirement.name.replace("-", "_")
    for package in packages()
    for requirement in package.requirements
    if not requirement.name.startswith("steppe")
} - LIGHT

PLUGINS = {package.name.replace("-", "_") for package in packages() if package.entry_points("steppe.envs")}


def loaded_after(code: str) -> set[str]:
    """The top-level modules that an interpreter has loaded after some code."""
    code += "\nimport sys; print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=CHILD)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("LOADED")[2].split())


def test_heavy_libraries_come_from_the_packages():
    """The libraries that lazy imports are tested against come from the packages."""
    assert {"torch", "tensordict", "numpy", "gymnasium", "gym"} <= HEAVY


def test_importing_steppe_loads_nothing_else():
    loaded = loaded_after("import steppe")

    assert loaded & (HEAVY | PLUGINS | {"pluggy", "importlib_metadata", "packaging", "rich"}) == set()


def test_importing_the_registry_and_the_versions_loads_no_torch():
    assert loaded_after("import steppe.registry, steppe.versions, steppe.cli") & (HEAVY | PLUGINS) == set()


def test_listing_plugins_loads_no_plugin():
    assert loaded_after("from steppe.cli import main; assert main(['plugins']) == 0") & (HEAVY | PLUGINS) == set()


def test_asking_for_help_loads_no_torch():
    assert loaded_after("from steppe.cli import main; assert main(['--help']) == 0") & (HEAVY | PLUGINS) == set()


@pytest.mark.parametrize(
    ("package", "module"),
    [(package, target) for package in packages() for target in package.entry_points("steppe.envs").values()],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_plugin_module_imports_without_heavy_libraries(package: Package, module: str):
    """A plugin module imports while torch and the plugin's library are blocked."""
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in sorted(HEAVY))
    # Packages that are tested apart are not installed here, nor what they depend on among ours.
    path = f"sys.path += {[str(each.path / 'src') for each in packages()]!r}\n"

    freed = f"for name in {sorted(HEAVY)!r}: del sys.modules[name]"
    loaded = loaded_after(f"import sys\n{path}{blocked}import {module}\n{freed}")

    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    "code",
    [
        "from steppe import make_env, list_plugins, set_gym_backend, hookimpl",
        "import steppe; steppe.list_plugins()",
        "import steppe\ntry:\n    steppe.EnvBse\nexcept AttributeError as error:\n    assert 'EnvBse' in str(error)",
    ],
)
def test_a_light_or_unknown_name_loads_no_torch(code):
    assert loaded_after(code) & (HEAVY | {"rich", "cloudpickle"}) == set()
