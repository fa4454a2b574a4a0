"""The kit's pytest plugin and its comparison of data."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from tensordict import NonTensorData, TensorDict

from steppe_testing import CountingEnv, DynamicSpecEnv, WorkerPools, differences
from tests.limits import CHILD


def test_the_plugin_of_pytest_loads_neither_torch_nor_steppe():
    code = "import sys, steppe_testing.pytest_plugin; print({'torch', 'tensordict', 'steppe'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=CHILD)

    assert said.stdout.strip() == "set()", said.stderr


def test_blocked_modules_cannot_be_imported_and_come_back(blocked_import):
    import json.decoder

    blocked_import("json")
    with pytest.raises(ImportError):
        import json
    with pytest.raises(ImportError):
        import json.decoder  # noqa: F401


def test_the_kit_registers_workers_and_a_marker(pytestconfig):
    assert pytestconfig.getoption("--steppe-workers") >= 1
    assert any(line.startswith("slow:") for line in pytestconfig.getini("markers"))


def test_a_pool_is_shared_until_it_is_closed():
    pools = WorkerPools(1, alive=1)
    try:
        first = pools(CountingEnv)
        assert pools(CountingEnv) is first
        assert first.rollout(2).batch_size == (2, 2)

        first.close()
        assert pools(CountingEnv) is not first

        second = pools(CountingEnv, 3)
        assert second.batch_size == (3,)
        assert len(pools._pools) == 1, "the one used longest ago is closed"
    finally:
        pools.close()
    assert second.is_closed


def td(**entries):
    return TensorDict({"a": torch.zeros(2), "b": {"c": torch.ones(1)}, **entries})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (td(), []),
        (td(a=torch.tensor([0.0, 2.0])), ["'a': 1 of 2 values, first at (1,): 2.0, expected 0.0"]),
        (td(a=torch.zeros(3)), ["'a': shape (3,), expected (2,)"]),
        (td(a=torch.zeros(2, dtype=torch.int64)), ["'a': dtype torch.int64, expected torch.float32"]),
        (td(d=torch.zeros(1)), ["'d' was not expected"]),
        (td().exclude(("b", "c")), ["('b', 'c') is missing"]),
        (td(a=NonTensorData("x")), None),
    ],
)
def test_each_difference_is_a_sentence(found, expected):
    lines = differences(found, td())

    assert lines == expected if expected is not None else len(lines) == 1


def test_nan_equals_nan_and_chosen_entries_are_left_out():
    nan = TensorDict({"a": torch.tensor([float("nan")])})

    assert differences(nan, nan.clone()) == []
    assert differences(td(a=torch.ones(2)), td(), exclude=("a",)) == []


def test_lazy_stacks_are_compared_row_by_row():
    data = DynamicSpecEnv().rollout(3)
    other = data.clone()
    other[1]["observation"] += 1

    assert differences(data, data.clone()) == []
    assert [line.split(":")[0] for line in differences(other, data)] == ["('[1]', 'observation')"]


def test_text_is_compared():
    assert differences(td(t=NonTensorData("x")), td(t=NonTensorData("y"))) == ["'t': 'x', expected 'y'"]
