"""Memory of large rollouts is reused only when no data refers to it."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe.envs import ArrayEnv
from steppe.specs import Binary, Bounded, Categorical, Composite, Unbounded
from steppe.storage import large_arrays
from steppe.storage.large_arrays import LARGE, large_array, large_clone

BYTE = np.dtype(np.uint8)
reused = pytest.mark.skipif(not large_arrays._PRIVATE, reason="memory is always new on this system")


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(large_arrays, "_idle", [])


def address(array):
    return array.__array_interface__["data"][0]


@reused
def test_memory_is_used_again_once_its_last_view_is_gone():
    array = large_array((LARGE,), BYTE)
    first = address(array)
    tensor = torch.from_numpy(array)[5:].view(torch.int8).detach()
    del array
    assert address(large_array((LARGE,), BYTE)) != first

    del tensor
    assert address(large_array((LARGE,), BYTE)) == first


@reused
def test_memory_is_reused_for_another_dtype_and_smaller_arrays():
    array = large_array((10 * LARGE,), BYTE)
    first = address(array)
    del array
    array = large_array((9, LARGE // 8), np.dtype(np.float64))

    assert address(array) == first
    assert array.shape == (9, LARGE // 8)


@reused
def test_no_more_is_kept_than_allowed(monkeypatch):
    monkeypatch.setattr(large_arrays, "_KEPT", 3 * LARGE)
    arrays = [large_array((LARGE,), BYTE) for _ in range(5)]
    arrays.append(large_array((4 * LARGE,), BYTE))
    arrays.clear()

    assert sum(map(len, large_arrays._idle)) == 3 * LARGE


def test_two_arrays_share_nothing():
    a, b = large_array((LARGE,), BYTE), large_array((LARGE,), BYTE)
    a[:], b[:] = 1, 2

    assert a.min() == a.max() == 1


class Frames(ArrayEnv):
    """Observes frames of the number of steps made in all; an episode begins with a frame of 200."""

    def __init__(self, episode=5):
        super().__init__()
        self.episode = episode
        self.observation_spec = Composite(frame=Bounded(0, 255, (210, 160, 3), dtype=torch.uint8))
        self.action_spec = Composite(action=Categorical(2))
        self.reward_spec = Composite(reward=Unbounded((1,)))
        flag = Binary(shape=(1,), dtype=torch.bool)
        self.done_spec = Composite(done=flag, terminated=flag.clone(), truncated=flag.clone())
        self.count = self.length = 0

    def reset_into(self, out, seed, env_info):
        self.length = 0
        out["frame"][...] = 200

    def step_into(self, action, out):
        self.count, self.length = self.count + 1, self.length + 1
        out["frame"][...] = self.count % 200
        out["reward"][...] = self.count
        return self.length == self.episode, False


def first_bytes(frames):
    assert (frames == frames[:, :1, :1, :1]).all()
    return frames[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("steps", [5, 12, 60])
def test_rollouts_that_use_memory_again_hold_their_own_data(steps):
    roots = [200 if t % 5 == 0 else t for t in range(steps)]
    kept, gone = [], []
    for _ in range(4):
        data = Frames().rollout(steps, break_when_any_done=False)
        assert first_bytes(data["next", "frame"]) == list(range(1, steps + 1))
        assert first_bytes(data["frame"]) == roots
        kept.append(data["frame"][-1])
        gone.append(data)
        if len(gone) == 2:
            gone.clear()
            gc.collect()

    assert [frame.unique().tolist() for frame in kept] == [[roots[-1]]] * 4


def test_images_that_a_policy_keeps_never_change():
    kept = []

    def policy(td):
        kept.append(td["frame"])
        return td.set("action", torch.zeros((), dtype=torch.int64))

    for _ in range(3):
        Frames().rollout(60, policy, break_when_any_done=False)
        gc.collect()

    assert first_bytes(torch.stack(kept)) == [200 if t % 5 == 0 else t for t in range(60)] * 3


def test_next_and_root_of_a_rollout_can_be_written_alone():
    data = Frames().rollout(12, break_when_any_done=False)
    data["next", "frame"].zero_()

    assert first_bytes(data["frame"])[:5] == [200, 1, 2, 3, 4]


def test_a_rollout_of_unknown_length_grows_into_more_memory():
    data = Frames(300).rollout(1000, actions=torch.zeros(1000, dtype=torch.int64))

    assert first_bytes(data["next", "frame"]) == [t % 200 for t in range(1, 301)]
    assert first_bytes(data["frame"]) == [200, *(t % 200 for t in range(1, 300))]


def test_a_large_clone_equals_its_source_and_shares_nothing() -> None:
    large = torch.arange(LARGE // 4, dtype=torch.int32).reshape(2, -1)
    data = TensorDict({"large": large, "small": torch.ones(2, 3), "next": {"text": "word"}}, batch_size=[2])
    data.names = ["rows"]
    copy = large_clone(data)
    assert (copy == data).all()
    assert (copy.names, copy["next", "text"]) == (["rows"], "word")
    large.zero_()
    assert copy["large"].max() == LARGE // 4 - 1


def test_a_large_clone_keeps_gradients() -> None:
    weights = torch.ones(LARGE // 4, requires_grad=True)
    large_clone(TensorDict({"weights": weights}, batch_size=[]))["weights"].sum().backward()
    assert weights.grad is not None
    assert weights.grad.eq(1).all()
