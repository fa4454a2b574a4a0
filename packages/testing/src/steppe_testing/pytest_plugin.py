"""Fixtures, a marker and an option for the tests of plugins.

Every run of pytest imports this module, so it imports no large package itself.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .capabilities import CAPABILITY, GATE

if TYPE_CHECKING:
    import torch

    from steppe.registry import Registry

    from .fake_dists import FakeDists
    from .pools import WorkerPools


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--steppe-workers``."""
    parser.getgroup("steppe").addoption(
        "--steppe-workers",
        type=int,
        default=2,
        metavar="N",
        help="worker processes of the pools that conformance tests share (default: 2)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``slow``."""
    config.addinivalue_line("markers", "slow: takes seconds; leave it out with -m 'not slow'")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print and count the tests that conformance classes skipped."""
    reasons = [
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    ]
    flags = Counter(reason.removeprefix(CAPABILITY) for reason in reasons if reason.startswith(CAPABILITY))
    gated = Counter(reason.removeprefix(GATE) for reason in reasons if reason.startswith(GATE))
    if not flags and not gated:
        return
    terminalreporter.section("steppe conformance")
    for reason, count in sorted(flags.items()):
        terminalreporter.line(f"{count} skipped by {reason}")
    for reason, count in sorted(gated.items()):
        terminalreporter.line(f"{count} not run before this is fixed: {reason}")
    terminalreporter.line(f"{sum(flags.values())} skipped by capability flags, {sum(gated.values())} not run")


@pytest.fixture(scope="session")
def steppe_pools(request: pytest.FixtureRequest) -> Iterator[WorkerPools]:
    """Shared ``ParallelEnv`` of a factory, ``steppe_pools(factory)``; do not close it."""
    from .pools import WorkerPools

    pools = WorkerPools(request.config.getoption("--steppe-workers"))
    yield pools
    pools.close()


@pytest.fixture
def cuda_or_skip() -> torch.device:
    """The device ``cuda:0``; skips the test if there is none."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    return torch.device("cuda:0")


@pytest.fixture
def blocked_import(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Hide installed modules from one test: ``blocked_import("gymnasium")``."""

    def block(*names: str) -> None:
        for name in names:
            for module in list(sys.modules):
                if module.startswith(f"{name}."):
                    monkeypatch.delitem(sys.modules, module)
            monkeypatch.setitem(sys.modules, name, None)

    return block


@pytest.fixture
def fake_dist(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDists]:
    """Write fake installed packages.

    Call ``fake_dist("acme-sim", "2.1", envs={"acme": "acme_sim.plugin"})``.
    """
    from .fake_dists import FakeDists

    folder: Path = tmp_path_factory.mktemp("site-packages")
    monkeypatch.syspath_prepend(str(folder))
    dists = FakeDists(folder)
    yield dists
    dists.forget()


@pytest.fixture
def steppe_registry(fake_dist: FakeDists, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Replace the registry of the process by one with only the packages of `fake_dist`."""
    from steppe.registry import Registry, use

    for variable in ("STEPPE_DISABLE_PLUGINS", "STEPPE_PLUGINS", "STEPPE_TRACE_PLUGINS"):
        monkeypatch.delenv(variable, raising=False)
    with use(Registry(path=[str(fake_dist.path)])) as registry:
        yield registry
