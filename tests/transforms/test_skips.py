"""All skips of the kit's tests by transforms are listed in skips.toml."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

from steppe_testing import TransformConformance
from tools.workspace import read_toml

HERE = Path(__file__).parent
FLAGS = [name for name, value in vars(TransformConformance).items() if isinstance(value, bool)]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_".join(path.relative_to(HERE).with_suffix("").parts), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def switched_off() -> dict[str, set[str]]:
    """Of each conformance class of the families, the flags that leave a test out."""
    found: dict[str, set[str]] = {}
    for path in sorted(HERE.glob("*/test_*.py")):
        if "TransformConformance" not in path.read_text(encoding="utf-8"):
            continue
        for name, value in vars(load(path)).items():
            if isinstance(value, type) and issubclass(value, TransformConformance) and name.startswith("Test"):
                assert name not in found, f"two conformance classes are called {name}"
                found[name] = {flag for flag in FLAGS if not getattr(value, flag)}
    return found


def test_each_skipped_conformance_test_has_its_reason():
    """skips.toml has a reason for each test that a transform skips, and no other."""
    found, listed = switched_off(), read_toml(HERE / "skips.toml")
    missing = [f"[{name}] {flag}" for name, flags in found.items() for flag in flags - set(listed.get(name, {}))]
    superfluous = [f"[{name}] {flag}" for name, flags in listed.items() for flag in set(flags) - found.get(name, set())]
    empty = [f"[{name}] {flag}" for name, flags in listed.items() for flag, reason in flags.items() if not reason]
    unknown = sorted(set(listed) - set(found))

    assert found
    assert (missing, superfluous, empty, unknown) == ([], [], [], [])


def test_families_stand_in_alphabetical_order():
    families = re.findall(r"^# -- (steppe-\S+) --$", (HERE / "skips.toml").read_text(encoding="utf-8"), re.MULTILINE)

    assert families == sorted(families)
    assert families == [
        f"steppe-{path.name}" for path in sorted(HERE.iterdir()) if (path / "test_conformance.py").exists()
    ]
