"""Crops, next observations, burn-in and frames of stored data, in buffers and beside environments."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import SerialEnv, SyncDataCollector, TransformedEnv
from steppe.errors import SpecError
from steppe.specs import Unbounded
from steppe.transforms import (
    BurnInTransform,
    CatFrames,
    Compose,
    ExcludeTransform,
    NextStateReconstructor,
    RandomCropTensorDict,
)
from steppe_replay import LazyTensorStorage, ReplayBuffer, SliceSampler, TensorDictReplayBuffer
from steppe_testing import DataEnv

LENGTHS = (3, 7)


def base() -> SerialEnv:
    return SerialEnv(2, [partial(DataEnv, {"observation": Unbounded((2,))}, max_steps=n) for n in LENGTHS])


def collected(env: Any, steps: int = 25) -> TensorDictBase:
    env.set_seed(3)
    torch.manual_seed(3)
    with SyncDataCollector(env, frames_per_batch=2 * steps, total_frames=2 * steps) as collector:
        return next(iter(collector)).clone()


# -- frames ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", ["same", "constant"])
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_stored_frames_equal_frames_of_the_environment(n, padding):
    keys = ["observation"], ["stack"]
    raw = collected(base())
    expected = collected(TransformedEnv(base(), CatFrames(n, -1, *keys, padding=padding, padding_value=-2.0)))
    below = [[*names, ("next", names[0])] for names in keys]
    result = CatFrames(n, -1, *below, padding=padding, padding_value=-2.0)(raw)

    assert torch.equal(result["observation"][..., 0, :], expected["observation"][..., 0, :])
    for key in ("stack", ("next", "stack")):
        assert torch.equal(result[key], expected[key])


def test_slices_have_frames_as_in_the_environment():
    """From the N-th step of a slice on, and everywhere near the beginning of an episode."""
    env = TransformedEnv(base(), CatFrames(3, -1, ["observation"], ["stack"]))
    data = collected(env)
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(100, ndim=2), sampler=SliceSampler(slice_len=5, strict_length=False), batch_size=200
    )
    buffer.append_transform(
        CatFrames(3, -1, ["observation", ("next", "observation")], ["again", ("next", "again")], done_key="done")
    )
    buffer.extend(data)
    sample = buffer.sample()
    starts = torch.ones(len(sample), dtype=torch.bool)
    starts[1:] = sample["next", "done"][:-1, 0]
    since = torch.zeros(len(sample), dtype=torch.int64)
    for i in range(1, len(sample)):
        since[i] = 0 if starts[i] else since[i - 1] + 1
    # The stack of the data shows whether a slice begins at the beginning of an episode.
    first = (sample["stack"].reshape(-1, 3, 2) == sample["observation"].unsqueeze(1)).all(-1).all(-1)
    whole = first[torch.arange(len(sample)) - since] | (since >= 2)

    assert int(whole.sum()) > 50
    assert torch.equal(sample["again"][whole], sample["stack"][whole])
    assert torch.equal(sample["next", "again"][whole], sample["next", "stack"][whole])


def test_a_buffer_of_frames_samples_stacks():
    """make_rb_transform_and_sampler takes the sampler of steppe-replay by itself."""
    data = collected(TransformedEnv(base(), CatFrames(3, -1, ["observation"], ["stack"])))
    row = data[1].exclude("stack", ("next", "stack"))
    transform, sampler = CatFrames(3, -1, ["observation"], ["stack"]).make_rb_transform_and_sampler(16)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(50), sampler=sampler, batch_size=16 * 3)
    buffer.append_transform(transform)
    buffer.extend(row)
    sample = buffer.sample()

    assert sample.batch_size == (16,)
    for step in sample:
        at = int((row["observation"] == step["observation"]).all(-1).nonzero()[0, 0])
        assert torch.equal(step["stack"], data[1, at]["stack"])
        assert torch.equal(step["next", "stack"], data[1, at]["next", "stack"])
        assert torch.equal(step["next", "done"], row[at]["next", "done"])


@pytest.mark.parametrize("n", [2, 5])
def test_a_buffer_of_frames_stacks_them_in_their_place(n):
    """Without out_keys, data of single frames is stored as it is; an environment's stacks are not stored."""
    data = collected(base(), 40)[1]
    transform, sampler = CatFrames(n, -1, ["observation"]).make_rb_transform_and_sampler(8)
    buffer = ReplayBuffer(storage=LazyTensorStorage(50), sampler=sampler, transform=transform, batch_size=8 * n)
    buffer.extend(data.clone())
    for step in buffer.sample():
        at = int((data["observation"] == step["observation"][-2:]).all(-1).nonzero()[0, 0])
        assert torch.equal(step["observation"], data["observation"][at - n + 1 : at + 1].flatten())
        assert torch.equal(step["next", "observation"][-2:], data["next", "observation"][at])
        assert torch.equal(step["next", "observation"][:-2], step["observation"][2:])

    frames = CatFrames(n, -1, ["observation"])
    stacks = collected(TransformedEnv(base(), frames), 5)
    assert "observation" not in frames.make_rb_transform_and_sampler(8)[0].inv(stacks).keys()


def test_frames_may_be_stacked_as_data_is_written():
    """With as_inverse, samples of any sampler have the stacks."""
    data = collected(base())[1]
    frames = CatFrames(3, -1, ["observation", ("next", "observation")], ["stack", ("next", "stack")], as_inverse=True)
    buffer = ReplayBuffer(storage=LazyTensorStorage(50), transform=frames, batch_size=10)
    buffer.extend(data)
    expected = CatFrames(3, -1, ["observation", ("next", "observation")], ["stack", ("next", "stack")])(data.clone())

    assert torch.equal(buffer[:]["next", "stack"], expected["next", "stack"])
    assert buffer.sample()["stack"].shape == (10, 6)


# -- next observations -----------------------------------------------------------------------------------------------


def test_next_observations_come_from_the_following_roots():
    data = collected(base())[1]
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(50),
        sampler=SliceSampler(slice_len=4, traj_key=("collector", "traj_ids")),
        transform=NextStateReconstructor(),
        batch_size=40,
    )
    buffer.append_transform(ExcludeTransform(("next", "observation")), invert=True)
    buffer.extend(data)
    sample = buffer.sample().reshape(-1, 4)

    assert bool(sample["next", "observation"][:, -1].isnan().all())
    assert torch.equal(sample["next", "observation"][:, :-1], sample["observation"][:, 1:])


def test_the_end_of_an_episode_keeps_what_the_data_has():
    data = collected(base())
    result = NextStateReconstructor()(data.clone())
    assert torch.equal(result["next", "observation"], data["next", "observation"])


def test_a_count_of_steps_tells_slices_apart():
    data = TensorDict({"observation": torch.arange(4.0), "count": torch.tensor([0, 1, 0, 1])}, [4])
    transform = NextStateReconstructor(traj_key=None, done_key=None, step_count_key="count", fill_value=-1.0)
    assert transform(data)["next", "observation"].tolist() == [1.0, -1.0, 3.0, -1.0]


def test_integers_need_a_fill_value():
    data = TensorDict({"observation": torch.arange(4)}, [4])
    with pytest.raises(SpecError, match=r"torch.int64, which has no NaN"):
        NextStateReconstructor(traj_key=None, done_key=None)(data)
    with pytest.raises(KeyError, match=r"no \('collector', 'traj_ids'\) in the data.*traj_key=None"):
        NextStateReconstructor()(data)
    assert NextStateReconstructor(fill_value=9, strict=False)(data)["next", "observation"].tolist() == [1, 2, 3, 9]


# -- crops -----------------------------------------------------------------------------------------------------------


def test_crops_have_successive_steps_at_all_places():
    data = TensorDict({"number": torch.arange(4000).reshape(1000, 4)}, [1000, 4])
    torch.manual_seed(0)
    crop = RandomCropTensorDict(2)(data)["number"]
    counts = torch.bincount(crop[:, 0] % 4, minlength=4)

    assert bool((crop[:, 1] == crop[:, 0] + 1).all())
    assert bool((crop // 4 == torch.arange(1000)[:, None]).all())
    assert counts[3] == 0
    assert float(((counts[:3] - 1000 / 3) ** 2 / (1000 / 3)).sum()) < 13.8  # chi square, 2 degrees, 0.001


def test_crops_stay_inside_the_mask():
    lengths = torch.arange(3, 103) % 5 + 3
    mask = torch.arange(8) < lengths[:, None]
    data = TensorDict({"mask": mask, "number": torch.arange(8).expand(100, 8)}, [100, 8])
    torch.manual_seed(0)
    crop = RandomCropTensorDict(3, mask_key="mask")(data)

    assert bool(crop["mask"].all())
    assert {int(last) for last in lengths - crop["number"][:, -1]} >= {1, 2}
    with pytest.raises(SpecError, match="a row of the data has 3 steps"):
        RandomCropTensorDict(4, mask_key="mask")(data)


def test_crops_along_another_dimension():
    data = TensorDict({"number": torch.arange(30).reshape(10, 3)}, [10, 3])
    crop = RandomCropTensorDict(4, sample_dim=-2)(data)["number"]

    assert crop.shape == (4, 3)
    assert bool((crop[1:] - crop[:-1] == 3).all())
    assert bool((crop % 3 == torch.arange(3)).all())


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: RandomCropTensorDict(0), "sub_seq_len must be a whole number >= 1"),
        (lambda: RandomCropTensorDict(2)(TensorDict({}, [])), "none of the 0 batch dimensions"),
        (lambda: RandomCropTensorDict(4)(TensorDict({"a": torch.zeros(2, 3)}, [2, 3])), "has 3 steps"),
    ],
)
def test_bad_crops_are_refused(call, says):
    with pytest.raises(SpecError, match=says):
        call()


# -- burn-in ---------------------------------------------------------------------------------------------------------


class Sums(nn.Module):
    """A recurrent module: its hidden state is the sum of the observations so far."""

    def forward(self, observation: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return hidden[..., :1, :] + observation.cumsum(-2)


def test_slices_of_a_buffer_are_burnt_in():
    data = collected(base())[1]
    data["hidden"] = torch.zeros_like(data["observation"])
    module = TensorDictModule(Sums(), in_keys=["observation", "hidden"], out_keys=[("next", "hidden")])
    buffer = ReplayBuffer(storage=LazyTensorStorage(50), sampler=SliceSampler(slice_len=5), batch_size=20)
    buffer.append_transform(lambda td: td.reshape(-1, 5))
    buffer.append_transform(BurnInTransform(module, burn_in=2))
    buffer.extend(data)
    torch.manual_seed(0)
    sample = buffer.sample()
    torch.manual_seed(0)
    plain = ReplayBuffer(storage=LazyTensorStorage(50), sampler=SliceSampler(slice_len=5), batch_size=20)
    plain.extend(data)
    slices = plain.sample().reshape(-1, 5)

    assert sample.batch_size == (4, 3)
    assert torch.equal(sample["observation"], slices["observation"][:, 2:])
    assert torch.equal(sample["hidden"][:, 0], slices["observation"][:, :2].sum(1))


def test_a_compose_may_hold_them_all():
    data = collected(base())
    data["hidden"] = torch.zeros_like(data["observation"])
    module = TensorDictModule(Sums(), in_keys=["observation", "hidden"], out_keys=[("next", "hidden")])
    chain = Compose(NextStateReconstructor(), RandomCropTensorDict(6), BurnInTransform(module, 2))

    assert chain(data).batch_size == (2, 4)
