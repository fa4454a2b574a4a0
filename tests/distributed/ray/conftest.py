"""A Ray cluster on this machine, for all tests of steppe-ray."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

ray = pytest.importorskip("ray")

os.environ.setdefault("RAY_AUTH_MODE", "disabled")


@pytest.fixture(scope="session", autouse=True)
def _short_folder() -> Iterator[None]:
    """Gives Ray a folder for its sockets, whose paths may have 107 bytes: that of a session of nox is too long."""
    os.environ["RAY_TMPDIR"] = folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Connects this process to a cluster with room for eight small actors."""
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()
