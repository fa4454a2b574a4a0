"""steppe-ray where Ray is not installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.distributed.in_time import in_time
from tests.limits import CHILD

PROGRAM = """
import sys
sys.modules["ray"] = None
from steppe.errors import LibraryMissing
try:
    from steppe_ray import RayCollector
except LibraryMissing as error:
    print(error)
"""


@pytest.mark.skipif(find_spec("steppe_ray") is None, reason="steppe-ray is tested apart")
def test_the_missing_library_is_named() -> None:
    with in_time():
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD, check=False)

    assert "steppe-ray needs Ray, which is not installed: pip install 'steppe[ray]'" in done.stdout, done.stderr
