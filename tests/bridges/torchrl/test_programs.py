"""Programs in ``programs/`` return equal data with both libraries.

Each program imports its names from ``environments``, a module that is made with the names of either library.
"""

from __future__ import annotations

import ast
import importlib
import sys
import types
from pathlib import Path

import pytest
from tensordict import TensorDictBase

from steppe_testing import assert_equal_data

pytest.importorskip("torchrl")

PROGRAMS = Path(__file__).parent / "programs"
# Where the names of TorchRL's users are.
MODULES = {
    "steppe": ["steppe", "steppe_gym", "steppe.transforms", "steppe_torchrl.names"],
    "torchrl": [
        "torchrl.envs",
        "torchrl.envs.transforms",
        "torchrl.data",
        "torchrl.collectors",
        "torchrl.envs.utils",
        "torchrl._utils",
        "torchrl.data.utils",
    ],
}


def run(name: str, library: str) -> dict:
    source = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    wanted = [
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "environments"
        for alias in node.names
    ]
    modules = [importlib.import_module(module) for module in MODULES[library]]
    environments = types.ModuleType("environments")
    for each in wanted:
        found = next((module for module in modules if hasattr(module, each)), None)
        assert found is not None, f"{library} has no {each}"
        setattr(environments, each, getattr(found, each))
    module = types.ModuleType(f"{name}_with_{library}")
    module.__file__ = str(PROGRAMS / f"{name}.py")
    before = sys.modules.get("environments")
    sys.modules["environments"] = environments
    sys.modules[module.__name__] = module  # it stays: TorchRL's implement_for writes into it whenever a backend is set
    try:
        exec(compile(source, module.__file__, "exec"), module.__dict__)
        return module.run()
    finally:
        sys.modules.pop("environments")
        if before is not None:
            sys.modules["environments"] = before


@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.py")))
@pytest.mark.filterwarnings("ignore")
def test_a_program_gives_the_same_data_with_either_library(name):
    expected = run(name, "torchrl")
    found = run(name, "steppe")

    assert list(found) == list(expected)
    wrong = {}
    for part in expected:
        try:
            if isinstance(expected[part], TensorDictBase):
                assert_equal_data(found[part], expected[part])
            else:
                assert found[part] == expected[part]
        except AssertionError as error:
            wrong[part] = str(error)
    assert not wrong, "\n".join(f"{part}: {text}" for part, text in wrong.items())
