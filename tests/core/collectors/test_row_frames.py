"""Batches on rows have the entries that the policy writes, as on TensorDicts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tensordict import TensorDictBase

from steppe import Collector, SerialEnv
from steppe_testing import ArrayCountingEnv


def _unchanged(td: TensorDictBase) -> None:
    td["value"] = td["observation"] * 2


def _replaced(td: TensorDictBase) -> None:
    td["observation"] = td["observation"] + 100


def _in_place(td: TensorDictBase) -> None:
    td["observation"] += 100


def _marked_as_done(td: TensorDictBase) -> None:
    td["done"].logical_or_(td["observation"] == 1)


def _remembered(td: TensorDictBase) -> None:
    td["hidden"] = td.get("hidden", torch.zeros(*td.shape, 1)) + 1


@pytest.mark.parametrize("change", [_unchanged, _replaced, _in_place, _marked_as_done, _remembered])
@pytest.mark.parametrize("rows", [None, 3])
@pytest.mark.parametrize("same", [False, True], ids=["given_away", "used_again"])
def test_batches_hold_what_a_policy_changes_in_place(
    change: Callable[[TensorDictBase], None], rows: int | None, same: bool
) -> None:
    def batches(*, on_tensordicts: bool) -> list[TensorDictBase]:
        env = ArrayCountingEnv(4) if rows is None else SerialEnv(rows, lambda: ArrayCountingEnv(4))
        env.run_type_checks = on_tensordicts

        def policy(td: TensorDictBase) -> TensorDictBase:
            td["action"] = torch.tensor([True, False, False]).expand(*td.shape, 3).clone()
            change(td)
            return td

        with Collector(env, policy, frames_per_batch=30, return_same_td=same) as collector:
            return [next(collector).clone() for _ in range(3)]

    for batch, expected in zip(batches(on_tensordicts=False), batches(on_tensordicts=True), strict=True):
        assert (batch == expected).all()
        assert set(batch.keys(True, True)) == set(expected.keys(True, True))


def test_a_policy_may_keep_its_input_while_memory_is_used_again() -> None:
    kept: list[torch.Tensor] = []

    def policy(td: TensorDictBase) -> TensorDictBase:
        kept.append(td["observation"])
        return td.set("action", torch.tensor([True, False, False]))

    with Collector(ArrayCountingEnv(100), policy, frames_per_batch=5, return_same_td=True) as collector:
        for _ in range(4):
            next(collector)

    assert torch.cat(kept).tolist() == list(range(20))
