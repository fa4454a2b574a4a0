"""VecNorm and VecNormV2: updates, results and memory of statistics."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from contextlib import closing

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe import make_env
from steppe.batched import ParallelEnv, SerialEnv
from steppe.errors import NotSupported, SpecError, StateError, WorkerError
from steppe.specs import Bounded, Unbounded
from steppe.transforms import Compose, ObservationNorm, TransformedEnv, VecNorm, VecNormV2
from steppe_testing import ArrayDataEnv, DataEnv, NestedCountingEnv

SPEC = {"observation": Unbounded((3,))}
KEYS = {"in_keys": ["observation", "reward"], "out_keys": ["normed", "normed_reward"]}


def seen(data, key="observation"):
    """All that was observed in a rollout, in the order in which it was: ``[frames, ...]``."""
    values = [data[key][0]]
    ended = data["next", "done"][:, 0].tolist()
    for t, end in enumerate(ended):
        values.append(data["next", key][t])
        if end and t + 1 < len(ended):
            values.append(data[key][t + 1])
    return torch.stack(values).double()


@pytest.mark.parametrize("make", [DataEnv, ArrayDataEnv])
def test_vec_norm_uses_the_statistics_so_far(make):
    env = TransformedEnv(make(SPEC), VecNorm(**KEYS, decay=0.9))
    env.set_seed(1)

    data = env.rollout(6)

    total, squares, count = 0.0, 0.0, 0.0
    roots = [data["normed"][0], *data["next", "normed"]]
    for value, out in zip(seen(data), roots, strict=False):
        total, squares, count = total * 0.9 + value, squares * 0.9 + value**2, count * 0.9 + 1
        mean = total / count
        deviation = (squares / count - mean**2).clamp_min(1e-4).sqrt()
        torch.testing.assert_close(out.double(), (value - mean) / deviation, atol=1e-5, rtol=1e-5)


def test_both_ways_count_the_same():
    found = []
    for make in (DataEnv, ArrayDataEnv):
        env = TransformedEnv(make(SPEC), VecNorm(**KEYS))
        env.set_seed(3)
        env.rollout(23, break_when_any_done=False)
        assert (env.no_row_writer_reason is None) is (make is ArrayDataEnv)
        found.append(env.transform.state_dict()["_extra_state"])

    assert set(found[0]) == {f"{key}_{part}" for key in ("observation", "reward") for part in ("sum", "ssq", "count")}
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name])


def test_statistics_cover_all_seen_data():
    env = TransformedEnv(ArrayDataEnv(SPEC), VecNorm(**KEYS, decay=1.0))

    data = env.rollout(19, break_when_any_done=False)
    values, norm = seen(data).numpy(), env.transform

    assert norm.get_extra_state()["reward_count"].item() == 19  # a reset has none
    assert norm.get_extra_state()["observation_count"].item() == len(values)
    np.testing.assert_allclose(norm.loc["observation"].numpy(), values.mean(0), atol=1e-6)
    np.testing.assert_allclose(norm.scale["observation"].numpy(), values.std(0), atol=1e-6)


def test_around_a_batch_only_stepped_or_reset_rows_count():
    env = TransformedEnv(SerialEnv(3, lambda: DataEnv(SPEC, max_steps=100)), VecNorm(**KEYS, decay=1.0))

    def count():
        return env.transform.get_extra_state()["observation_count"].item()

    root = env.reset()
    first = count()
    root = env.step_and_maybe_reset(env.rand_action(root))[1]
    assert count() - first == 3
    env.step(env.rand_action(root.clone()).set("_step", torch.tensor([True, False, False])))
    assert count() - first == 4
    env.reset(root.clone().set("_reset", torch.tensor([[True], [True], [False]])))
    assert count() - first == 6


def test_integers_become_floats_and_bounds_are_lifted():
    env = TransformedEnv(ArrayDataEnv({"observation": Bounded(0, 9, (3,), dtype=torch.int64)}), VecNorm())

    assert env.transform.in_keys == ["observation", "reward"]
    assert env.observation_spec["observation"] == Unbounded((3,))
    assert env.no_row_writer_reason is None
    assert env.rollout(4)["observation"].dtype is torch.float32


def test_groups_of_agents_are_found():
    env = TransformedEnv(NestedCountingEnv(3), VecNorm())

    env.rollout(3)

    assert env.transform.in_keys == [("agents", "observation"), ("agents", "reward")]
    assert env.transform.loc["agents", "observation"].shape == env.observation_spec["agents", "observation"].shape
    assert "agents-<.>-reward_sum" in env.transform.get_extra_state()


def test_agents_share_statistics_of_the_given_shape():
    norm = VecNorm(["agents"], decay=1.0, shapes=[(4,)])
    env = TransformedEnv(DataEnv({"agents": Unbounded((5, 4))}), norm)

    env.reset()

    assert norm.loc["agents"].shape == (4,)
    assert norm.get_extra_state()["agents_count"].item() % 5 == 0
    with pytest.raises(SpecError, match=r"the shape \(3,\) for 'agents' must be .* the shape \(5, 4\)"):
        TransformedEnv(DataEnv({"agents": Unbounded((5, 4))}), VecNorm(["agents"], shapes=[(3,)])).reset()


@pytest.mark.parametrize("frames", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_workers_lose_no_update(frames):
    numbers, plain = [], []
    for cls, options in ((ParallelEnv, {"num_processes": 2}), (SerialEnv, {})):
        norm = VecNorm(**KEYS, decay=1.0, shapes=[(4,), (1,)])

        def make(norm=norm):
            return TransformedEnv(make_env("gym:CartPole-v1"), norm.clone())

        with cls(8, make, **options) as env:
            env.set_seed(0)
            env.reset()
            before = norm.get_extra_state()["reward_count"].item()
            data = env.rollout(frames // 8, break_when_any_done=False)
        state = norm.get_extra_state()
        assert state["reward_count"].item() - before == frames
        numbers.append((state["observation_count"], norm.loc, norm.scale))
        plain.append(data["next", "observation"])

    torch.testing.assert_close(plain[0], plain[1])
    assert numbers[0][0].item() == numbers[1][0].item() > frames
    for one, other in zip(numbers[0][1:], numbers[1][1:], strict=True):
        for key in ("observation", "reward"):
            torch.testing.assert_close(one[key], other[key], atol=1e-5, rtol=1e-5)


class DiesCounting(VecNorm):
    """Its worker is killed while it has the lock."""

    def update(self, arrays, rows):
        if os.getpid() != self.main:
            os.kill(os.getpid(), signal.SIGKILL)
        super().update(arrays, rows)


def test_a_worker_that_dies_while_counting_releases_the_lock():
    norm = DiesCounting(["observation"], shapes=[(3,)])
    norm.main = os.getpid()
    env = ParallelEnv(2, lambda: TransformedEnv(ArrayDataEnv(SPEC), norm.clone()), num_processes=2)

    with pytest.raises(WorkerError, match="ended unexpectedly"):
        env.rollout(3)
    env.close(raise_if_closed=False)
    norm(TensorDict({"observation": torch.zeros(3)}))

    assert norm.get_extra_state()["observation_count"].item() == 1


def test_frozen_numbers_stay_and_a_copy_has_its_own():
    env = TransformedEnv(ArrayDataEnv(SPEC), VecNorm(["observation"]))
    env.rollout(5)
    norm = env.transform
    copy = norm.frozen_copy()
    kept = copy.get_extra_state()

    env.rollout(5)
    assert not torch.equal(norm.get_extra_state()["observation_sum"], kept["observation_sum"])
    copy(TensorDict({"observation": torch.ones(3)}))
    assert all(torch.equal(value, kept[name]) for name, value in copy.get_extra_state().items())
    assert norm.freeze().frozen
    before = norm.get_extra_state()
    env.rollout(5)
    assert all(torch.equal(value, before[name]) for name, value in norm.get_extra_state().items())
    norm.unfreeze()
    env.rollout(5)
    assert norm.get_extra_state()["observation_count"] != before["observation_count"]


def test_a_frozen_norm_without_statistics_is_an_error():
    with pytest.raises(StateError, match=r"is frozen and has no statistics yet.*unfreeze\(\)"):
        VecNorm(["observation"]).freeze()(TensorDict({"observation": torch.ones(3)}))
    with pytest.raises(StateError, match="no statistics of 'observation' yet"):
        VecNorm(["observation"]).frozen_copy()


def test_an_observation_norm_and_denorm_are_made_of_the_numbers():
    env = TransformedEnv(ArrayDataEnv(SPEC), VecNorm(**KEYS))
    env.rollout(9)
    norm = env.transform.freeze()
    data = env.rollout(4)

    fixed = norm.to_observation_norm()
    again = TransformedEnv(DataEnv(SPEC), fixed)

    assert isinstance(fixed, Compose)
    assert all(isinstance(part, ObservationNorm) for part in fixed)
    torch.testing.assert_close(fixed[0](data.clone())["normed"], data["normed"])
    assert again.rollout(2)["next"].keys() >= {"normed", "normed_reward"}
    torch.testing.assert_close(norm.denorm(data.exclude("observation"))["observation"], data["observation"])


def test_a_loaded_state_dict_is_written_to_shared_memory():
    """Clones see the statistics that one of them has loaded."""
    env = TransformedEnv(ArrayDataEnv(SPEC), VecNorm(["observation"]))
    env.rollout(9)
    other = VecNorm(["observation"], shapes=[(3,)])
    twin = other.clone()

    other.load_state_dict(env.transform.state_dict())

    torch.testing.assert_close(twin.loc["observation"], env.transform.loc["observation"])
    with pytest.raises(SpecError, match=r"lacks \['observation_ssq'\]"):
        other.set_extra_state({"observation_sum": torch.zeros(3), "observation_count": torch.ones(1)})
    with pytest.raises(SpecError, match=r"of shape \(2,\), expected \(3,\)"):
        other.set_extra_state({f"observation_{part}": torch.zeros(2) for part in ("sum", "ssq", "count")})


@pytest.mark.parametrize("memmap", [False, True])
def test_statistics_in_given_memory_are_shared(memmap):
    shared = VecNorm.build_td_for_shared_vecnorm(DataEnv(SPEC), memmap=memmap)
    one, two = (TransformedEnv(ArrayDataEnv(SPEC), VecNorm(shared_td=shared, decay=1.0)) for _ in range(2))

    one.rollout(3)
    two.rollout(3)

    assert shared["observation_count"].item() == one.transform.get_extra_state()["observation_count"].item() >= 8
    with pytest.raises(SpecError, match=r"shared_td has no 'pixels_sum'.*build_td_for_shared_vecnorm"):
        VecNorm(["pixels"], shared_td=shared)
    with pytest.raises(SpecError, match="is not in shared memory"):
        VecNorm(
            ["observation"], shared_td=TensorDict({f"observation_{p}": torch.zeros(3) for p in ("sum", "ssq", "count")})
        )


def test_a_given_lock_is_held_and_not_pickled():
    lock = multiprocessing.Lock()
    norm = VecNorm(["observation"], lock=lock)

    norm(TensorDict({"observation": torch.ones(3)}))

    assert norm.lock is lock
    assert lock.acquire(block=False)
    with pytest.raises(NotSupported, match=r"cannot be sent to a worker.*SharedLock\(\)"):
        pickle.dumps(norm)
    with pytest.raises(SpecError, match="A lock must be a context manager"):
        VecNorm(["observation"], lock=3)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"decay": 0.0}, "decay must be above 0 and at most 1"),
        ({"decay": 1.5}, "decay must be above 0 and at most 1"),
        ({"eps": 0.0}, "eps must be above 0"),
        ({"shapes": [(3,)]}, "one shape for each of in_keys"),
        ({"new_api": True}, "Use VecNormV2"),
    ],
)
def test_invalid_arguments_are_named(arguments, match):
    with pytest.raises(SpecError, match=match):
        VecNorm(**arguments)


def test_a_missing_entry_is_named():
    with pytest.raises(
        SpecError, match=r"the environment has no 'pixels' to normalize. It has \['observation', 'reward'\]"
    ):
        TransformedEnv(DataEnv(SPEC), VecNorm(["pixels"])).reset()


@pytest.mark.parametrize("decay", [0.9, 1.0])
def test_vec_norm_v2_uses_moving_averages(decay):
    env = TransformedEnv(ArrayDataEnv(SPEC), VecNormV2(["observation"], ["normed"], decay=decay))
    env.reset()
    start = {name: value.clone() for name, value in env.transform.get_extra_state().items()}

    data = env.rollout(4)

    loc, var, n = (start[f"{part}.-|-.observation"] for part in ("loc", "var", "count"))
    outs = [data["normed"][0], *data["next", "normed"]]
    for value, out in zip(seen(data), outs, strict=False):
        n = n + 1
        weight = 1 - decay if decay < 1 else 1 / n
        loc, var = torch.lerp(loc, value, weight), torch.lerp(var, value**2, weight)
        whole = 1 - decay**n if decay < 1 else 1.0
        deviation = ((var - loc**2).clamp_min(0) / whole).sqrt().clamp_min(1e-4)
        torch.testing.assert_close(out.double(), (value - loc / whole) / deviation, atol=1e-4, rtol=1e-4)


def test_vec_norm_v2_averages_the_rows_of_a_batch():
    def make():
        return SerialEnv(3, lambda: DataEnv(SPEC))

    env = TransformedEnv(make(), VecNormV2(["observation"], reduce_batch_dims=True))
    env.rollout(3)

    assert env.transform.loc["observation"].shape == (3,)
    with pytest.raises(NotSupported, match="reduce_batch_dims=True"):
        TransformedEnv(make(), VecNormV2(["observation"])).reset()
    with pytest.raises(NotSupported, match="stateful=False"):
        VecNormV2(["observation"], stateful=False)


def test_vec_norm_v2_uses_shared_data():
    shared = TensorDict({name: {"observation": torch.zeros(3)} for name in ("loc", "var")})
    shared["count", "observation"] = torch.zeros(())
    shared.share_memory_()
    env = TransformedEnv(ArrayDataEnv(SPEC), VecNormV2(["observation"], shared_data=shared))

    env.rollout(3)

    assert shared["count", "observation"].item() >= 4
    assert shared["loc", "observation"].abs().sum() > 0


@pytest.mark.parametrize(
    ("norm", "told"),
    [
        (lambda: VecNorm(["observation"]), r"VecNorm\(\['observation'\], shapes=\[\(4,\)\]\)"),
        (lambda: VecNorm(), r"shapes=\[\(4,\), ...\]"),
        (lambda: VecNormV2(["observation"]), "shared_data="),
    ],
)
@pytest.mark.parametrize("processes", [1, 2])
def test_clones_without_statistics_are_refused_in_workers(norm, told, processes):
    """Their statistics would depend on the number of processes, and the caller would see none."""
    norm = norm()
    env = ParallelEnv(2, lambda: TransformedEnv(make_env("gym:CartPole-v1"), norm.clone()), num_processes=processes)

    with closing(env), pytest.raises(WorkerError, match=f"(?s)came to this worker process without.*{told}"):
        env.reset()


def test_each_worker_may_make_a_transform_of_its_own():
    with closing(ParallelEnv(2, lambda: TransformedEnv(make_env("gym:CartPole-v1"), VecNorm()))) as env:
        assert env.rollout(5)["observation"].isfinite().all()
