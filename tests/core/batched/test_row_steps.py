"""The fast step of a batch returns the same data as other steps."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from tensordict import NonTensorData, TensorDict

from steppe import EnvBase, ParallelEnv, SerialEnv
from steppe_testing import ArrayCountingEnv, assert_equal_data

BOTH = pytest.mark.parametrize("batch", [SerialEnv, partial(ParallelEnv, num_processes=2)], ids=["serial", "parallel"])


def _counting() -> ArrayCountingEnv:
    return ArrayCountingEnv(max_steps=3)


def _noted(td: TensorDict, step: int) -> None:
    td["log_prob"] = torch.full((2,), float(step))


def _grouped(td: TensorDict, step: int) -> None:
    td["policy"] = TensorDict({"hidden": torch.full((2, 3), step)}, batch_size=[2])


def _named(td: TensorDict, step: int) -> None:
    td.names = ["env"]


def _with_text(td: TensorDict, step: int) -> None:
    td["text"] = NonTensorData(f"step {step}", batch_size=[2])


def _now_and_then(td: TensorDict, step: int) -> None:
    td.pop("extra", None)
    if step % 2:
        td["extra"] = torch.full((2,), step)


@BOTH
@pytest.mark.parametrize("edit", [None, _noted, _grouped, _named, _with_text, _now_and_then])
def test_step_and_maybe_reset_equals_step_root_and_reset(batch: Any, edit: Any) -> None:
    with batch(2, _counting) as env, batch(2, _counting) as other:
        roots = env.reset(), other.reset()
        actions = env.full_action_spec.rand((8,))["action"].unbind(0)
        for step, action in enumerate(actions):
            for td in roots:
                td["action"] = action
                if edit is not None:
                    edit(td, step)
            found, root = env.step_and_maybe_reset(roots[0])
            # What a class without a way of its own does.
            expected, other_root = EnvBase.step_and_maybe_reset(other, roots[1])
            assert found is roots[0]
            assert_equal_data(found, expected)
            assert_equal_data(root, other_root.exclude("_reset"))
            assert root.names == other_root.names
            roots = root, other_root.exclude("_reset")


def test_later_steps_use_changed_specs() -> None:
    class Keeping(SerialEnv):
        """Forgets what a policy wrote."""

        def step_mdp(self, next_tensordict: Any) -> Any:
            return super().step_mdp(next_tensordict).select(*self.observation_keys, *self.done_keys)

    with Keeping(2, _counting) as env:
        root = env.reset()
        for _ in range(4):
            td = env.rand_action(root)
            td["log_prob"] = torch.zeros(2)
            root = env.step_and_maybe_reset(td)[1]
        assert "log_prob" not in root
