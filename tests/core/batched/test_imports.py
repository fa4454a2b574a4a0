"""Processes of batches import torch's compiler only when something is compiled."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from steppe import ParallelEnv
from steppe.imports import after_import, import_tensordict
from steppe_testing import ArrayCountingEnv

pytestmark = [pytest.mark.programs, pytest.mark.usefixtures("nothing_left")]

COMPILER = "torch._dynamo"


class Compiling(ArrayCountingEnv):
    """Says whether the compiler is there, and compiles."""

    def compiler_is_there(self) -> bool:
        return COMPILER in sys.modules

    def collects_garbage(self) -> bool:
        return gc.isenabled()

    def doubled(self, values: list[float]) -> list[float]:
        # Nothing but what tensordict has marked lets a vmap over TensorDicts be compiled in one piece.
        double = torch.compile(torch.vmap(lambda row: row.apply(lambda x: 2 * x)), fullgraph=True, backend="eager")
        found: list[float] = double(TensorDict({"x": torch.tensor(values)}, [len(values)]))["x"].tolist()
        return found


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_worker_loads_the_compiler_when_it_compiles(method: str) -> None:
    env = ParallelEnv(1, Compiling, num_processes=1, mp_start_method=method)
    env.rollout(3)

    assert env.compiler_is_there() == [False]
    assert env.doubled([1.0, 2.0]) == [[2.0, 4.0]]
    assert env.compiler_is_there() == [True]
    env.close()


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_the_garbage_collector_of_a_worker_works(method: str) -> None:
    # While the interpreter imports, it does not.
    env = ParallelEnv(1, Compiling, num_processes=1, mp_start_method=method)

    assert env.collects_garbage() == [True]
    env.close()


def test_a_loaded_compiler_is_used() -> None:
    importlib.import_module(COMPILER)
    finders, mark = list(sys.meta_path), torch.compiler.allow_in_graph

    import_tensordict()

    assert sys.meta_path == finders
    assert torch.compiler.allow_in_graph is mark


def test_after_import_waits_for_an_import_that_succeeds(tmp_path: Any, monkeypatch: Any) -> None:
    """after_import calls its function after an import without error."""
    (tmp_path / "waited_for.py").write_text("import os\nif 'NOT_YET' in os.environ:\n    raise OSError('not yet')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("NOT_YET", "1")
    finders, called = list(sys.meta_path), []
    after_import("waited_for", lambda: called.append("waited_for" in sys.modules))

    with pytest.raises(OSError, match="not yet"):
        importlib.import_module("waited_for")
    assert called == []

    monkeypatch.delenv("NOT_YET")
    importlib.import_module("waited_for")
    assert called == [True]
    assert sys.meta_path == finders

    after_import("waited_for", lambda: called.append("at once"))
    assert called == [True, "at once"]
    del sys.modules["waited_for"]
