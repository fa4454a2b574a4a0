"""The entries of a row of an environment: keys, shapes, dtypes, and why there are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from steppe import SerialEnv, StepCounter, TransformedEnv
from steppe.envs import RowLayout, no_layout_reason
from steppe.specs import Composite, OneHot, Unbounded
from steppe_testing import ArrayCountingEnv, CountingEnv, NestedCountingEnv, TextCountingEnv


def test_a_layout_has_key_shape_and_dtype_of_each_entry() -> None:
    layout = RowLayout.of(ArrayCountingEnv(dtype=torch.float64, nested=True, info=True))

    fields = {key: (shape, dtype) for key, shape, dtype in layout.observations}
    assert fields[("data", "observation")] == ((1,), np.dtype("float64"))
    assert fields["is_even"] == ((1,), np.dtype("bool"))
    assert [key for key, _, _ in layout.rewards] == ["reward"]
    assert layout.action_keys == ("action",)
    assert {*layout.done_keys} <= {"done", "terminated", "truncated"}
    assert layout.done_shapes["done"] == (1,)


def test_rows_of_data_on_another_device_are_on_the_cpu() -> None:
    """Their TensorDicts name no device, so that moving them moves the tensors."""
    env = ArrayCountingEnv().to("meta")

    assert RowLayout.of(env).device is None
    assert env._reset()["observation"].is_meta


def test_a_step_writes_observations_and_rewards() -> None:
    layout = RowLayout.of(ArrayCountingEnv())

    assert layout.written == [*layout.observations, *layout.rewards]
    assert "reward" not in layout.root_keys
    assert "done" in layout.root_keys


def test_a_batch_has_the_layout_of_its_rows() -> None:
    one = RowLayout.of(ArrayCountingEnv())
    with SerialEnv(3, ArrayCountingEnv) as batch:
        batch.reset()
        layout = RowLayout.of(batch)

    assert layout.observations == one.observations
    assert layout.done_shapes == one.done_shapes


def test_done_entries_of_agents_are_among_the_observations() -> None:
    layout = RowLayout.of(NestedCountingEnv(3))

    keys = [key for key, _, _ in layout.observations]
    assert all(name in keys for name in NestedCountingEnv(3).done_keys if isinstance(name, tuple))


def test_the_root_includes_actions_if_a_step_reads_all_of_it() -> None:
    layout = RowLayout.of(ArrayCountingEnv(), reads_root=True)

    assert layout.root_keys[-1] == "action"
    assert layout.root_inputs == tuple(key for key, _, _ in layout.observations)


def test_entries_without_a_fixed_layout_are_loose() -> None:
    env = TextCountingEnv()
    layout = RowLayout.of(env)

    assert layout.loose
    assert not {*layout.loose} & {key for key, _, _ in layout.observations}
    assert no_layout_reason(env) is not None
    assert no_layout_reason(env, loose=True) is None


def test_environments_on_arrays_fit_into_rows() -> None:
    for env in (ArrayCountingEnv(), CountingEnv(), TransformedEnv(ArrayCountingEnv(), StepCounter())):
        assert no_layout_reason(env) is None


class Described:
    """The specs of an environment, without one."""

    device: Any = None

    def __init__(self, **changes: Any) -> None:
        self.full_observation_spec = Composite(observation=Unbounded((2,)))
        self.full_reward_spec = Composite(reward=Unbounded((1,)))
        self.full_done_spec = Composite(done=Unbounded((1,), dtype=torch.bool))
        self.full_action_spec = Composite(action=OneHot(3))
        self.action_keys = ["action"]
        self.__dict__.update(changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"device": torch.device("meta")}, "its data is on meta."),
        (
            {"full_observation_spec": Composite(half=Unbounded((2,), dtype=torch.bfloat16))},
            "the entry 'half' has the dtype torch.bfloat16, which numpy lacks.",
        ),
        ({"full_done_spec": Composite()}, "it has no done entry for the whole episode, at the root."),
        ({"full_action_spec": Composite(), "action_keys": []}, "it has no action."),
    ],
)
def test_the_reason_against_rows_is_given(changes: dict[str, Any], reason: str | None) -> None:
    assert no_layout_reason(Described(**changes)) == reason
