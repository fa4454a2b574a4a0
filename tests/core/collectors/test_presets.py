"""The collectors of TorchRL by name."""

from __future__ import annotations

import pytest

import steppe
import steppe.collectors

NAMES = {
    "AsyncCollector": "aSyncDataCollector",
    "BaseCollector": "DataCollectorBase",
    "MultiAsyncCollector": "MultiaSyncDataCollector",
    "MultiSyncCollector": "MultiSyncDataCollector",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_newer_name_of_torchrl_is_the_same_class(name):
    assert getattr(steppe, name) is getattr(steppe.collectors, name) is getattr(steppe, NAMES[name])


def test_collectors_of_torchrl_are_collectors():
    for name in ("SyncDataCollector", *NAMES.values()):
        assert issubclass(getattr(steppe, name), steppe.BaseCollector)
