"""Modules of the caller: the fork server imports some once, each worker imports the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.core.batched.callers_modules import OWN, run_own

pytestmark = [pytest.mark.programs, pytest.mark.usefixtures("nothing_left")]

#: What keeps a module out of the fork server.
UNSAFE = {
    "thread": "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "descriptor": "FILE = open(os.devnull)",
    "generator": "import numpy as np; RNG = np.random.default_rng()",
    "seeds": "import torch; torch.manual_seed(3)",
    "flag": "fork_safe = False",
    "handler": "os.register_at_fork(before=lambda: None)",
    "failing": "if os.environ.get('STEPPE_TRIAL') is None and 'steppe-server' in open('/proc/self/comm').read(): 1 / 0",
}


@pytest.mark.programs
@pytest.mark.usefixtures("nothing_left")
def test_each_worker_imports_modules_that_are_unsafe_to_share(run_script: Any, tmp_path: Path) -> None:
    code = f"""
import importlib
for name in {list(UNSAFE)}:
    make = importlib.import_module("own_" + name).make
    print(name, begun(make), begun(make), begun(make))
"""
    modules = {f"own_{name}": OWN.format(more=more, shift=0) for name, more in UNSAFE.items()}
    said = run_own(run_script, code, tmp_path, **modules)

    assert said == [f"{name} [1.0, 1.0] [1.0, 1.0] [1.0, 1.0]" for name in UNSAFE]
