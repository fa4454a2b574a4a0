"""Pools with each backend, and checks that they leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.core.batched.conftest import gate, interrupt, nothing_left, pytest_collection_modifyitems, run_script

__all__ = ["gate", "interrupt", "nothing_left", "pytest_collection_modifyitems", "run_script"]


@pytest.fixture(params=["threading", "multiprocessing"])
def pool(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes a pool with either backend, and closes it."""
    from steppe import AsyncEnvPool

    made: list[Any] = []

    def make(factories: Any, **kwargs: Any) -> Any:
        made.append(AsyncEnvPool(factories, backend=request.param, **kwargs))
        return made[-1]

    yield make
    for one in made:
        one.close(raise_if_closed=False)
