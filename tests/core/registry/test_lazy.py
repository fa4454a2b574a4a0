"""What is loaded when; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

from tests.limits import CHILD


def loaded_after(source: str, *names: str) -> list[str]:
    code = f"import sys\n{source}\nprint(*(name for name in {names!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=CHILD)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_steppe_loads_nothing():
    heavy = ("torch", "tensordict", "numpy", "pluggy", "importlib_metadata", "packaging", "steppe.errors")
    assert loaded_after("import steppe", *heavy) == []


def test_the_registry_loads_neither_torch_nor_numpy():
    source = "import steppe\nfrom steppe import hookimpl\nsteppe.list_plugins()"
    assert loaded_after(source, "torch", "numpy", "rich", "cloudpickle") == []


def test_an_unknown_name_is_an_attribute_error():
    source = (
        "import steppe\ntry:\n    steppe.EnvBse\nexcept AttributeError as error:\n    assert 'EnvBse' in str(error)"
    )
    assert loaded_after(source, "torch") == []
