"""Triton is loaded with its own LLVM if MuJoCo has loaded Mesa's.

The libraries are stand-ins: which functions Triton would call depends on the build of torch and of Mesa. The row of
steppe-safety-gymnasium in the matrix runs the real ones.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.limits import CHILD

#: Modules of the child's path: Triton notes with which flags libraries are loaded.
FILES = {
    "mujoco/__init__.py": "",
    "mujoco/egl.py": "",
    "triton.py": "import sys; print('triton', sys.getdlopenflags())",
    "tensordict.py": "",
}


def printed(folder, program: str) -> list[str]:
    """What a program prints, with the libraries in its path."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    program = f"import sys; sys.path.insert(0, {str(folder)!r})\n{program}\nprint('then', sys.getdlopenflags())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=CHILD, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(not hasattr(os, "RTLD_DEEPBIND"), reason="this system has no such flag")
@pytest.mark.parametrize(
    "program",
    [
        "import mujoco.egl, steppe_gym",
        "import steppe_gym, mujoco.egl",
        "import mujoco.egl, steppe_dm_control, steppe_mo_gym",
    ],
)
def test_triton_calls_its_own_functions_after_mujoco(tmp_path, program):
    usual = sys.getdlopenflags()

    assert printed(tmp_path, program) == [f"triton {usual | os.RTLD_DEEPBIND}", f"then {usual}"]


@pytest.mark.parametrize(
    "program",
    ["import steppe_gym", "import tensordict, mujoco.egl, steppe_gym", "import mujoco, steppe_gym"],
)
def test_triton_is_not_loaded_without_a_reason(tmp_path, program):
    assert printed(tmp_path, program) == [f"then {sys.getdlopenflags()}"]


def test_a_triton_that_cannot_be_imported_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setitem(FILES, "triton.py", "raise ImportError('no driver')")

    assert printed(tmp_path, "import mujoco.egl, steppe_gym") == [f"then {sys.getdlopenflags()}"]
