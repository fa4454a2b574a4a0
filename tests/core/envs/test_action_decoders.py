"""Actions are decoded for libraries, one by one and many at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe.envs import ArrayEnv
from steppe.specs import Composite, Unbounded
from steppe_testing import (
    ACTION_KINDS,
    ArrayCountingEnv,
    assert_equal_data,
)


class Listening(ArrayEnv):
    """An environment that records its action."""

    def __init__(self, shape, dtype):
        super().__init__()
        self.observation_spec = Composite(observation=Unbounded(shape=(1,)))
        self.action_spec = Unbounded(shape=shape, dtype=dtype)

    def reset_into(self, out, seed, env_info):
        out["observation"][0] = 0

    def step_into(self, action, out):
        self.heard = action.copy()
        out["observation"][0], out["reward"][0] = 1, 1
        return False, False


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 2), (2, 0), (40,)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8, torch.int64, torch.bool], ids=str)
def test_an_action_array_has_the_bits_of_the_tensor(shape, dtype):
    env = Listening(shape, dtype)
    values = [0.1, float("nan"), float("-inf"), -0.0] if dtype.is_floating_point else [1, 0, 127]
    action = torch.tensor(values, dtype=dtype).repeat(20)[: torch.Size(shape).numel()].reshape(shape)
    td = env.reset()
    td["action"] = action.requires_grad_(dtype.is_floating_point)
    env.step(td)

    expected = action.detach().numpy()
    assert (env.heard.dtype, env.heard.shape) == (expected.dtype, expected.shape)
    assert env.heard.tobytes() == expected.tobytes()


def pair(**kwargs):
    return ArrayCountingEnv(3, **kwargs), ArrayCountingEnv(3, array_path=False, **kwargs)


def rollouts(*envs, **kwargs):
    found = []
    for env in envs:
        env.set_seed(1)
        found.append(env.rollout(8, **kwargs))
    return found


@pytest.mark.parametrize("kind", ACTION_KINDS)
@pytest.mark.parametrize("two", [False, True])
def test_both_paths_decode_every_kind_of_action(kind, two):
    assert_equal_data(*rollouts(*pair(action=kind, actions=two), break_when_any_done=False))


def test_a_row_writer_names_keys_and_decodes_actions():
    writer = ArrayCountingEnv(nested=True, actions=True).row_writer
    layout, rows = writer.layout, np.eye(3, dtype=bool)

    assert layout.observations == [(("data", "observation"), (1,), np.float32)]
    assert [key for key, _, _ in layout.rewards] == ["reward"]
    assert layout.done_keys == ("done", "terminated", "truncated")
    assert layout.action_keys == ("action", ("arm", "action"))
    assert writer.decode({"action": rows, ("arm", "action"): rows[::-1]}) == [
        {"action": 0, ("arm", "action"): 2},
        {"action": 1, ("arm", "action"): 1},
        {"action": 2, ("arm", "action"): 0},
    ]


@pytest.mark.parametrize("kind", ACTION_KINDS)
def test_rows_are_decoded_like_single_actions(kind):
    env = ArrayCountingEnv(action=kind)
    block = env.action_spec.rand((6,), generator=torch.Generator().manual_seed(0))
    many = env.row_writer.decode({"action": block.numpy()})
    one = [env.row_writer.layout.actions.from_tensordict(TensorDict({"action": row})) for row in block]

    assert all(np.array_equal(a, b) for a, b in zip(one, many, strict=True))
