"""A default device of torch does not change data of environments without a device.

The device ``"meta"`` works on any machine. Tensors on it have no values, so tests notice data that follows the default
device.
"""

from __future__ import annotations

import pytest
import torch
from tensordict.nn import TensorDictModule

import steppe_testing
from steppe import (
    AsyncEnvPool,
    Binary,
    Bounded,
    Categorical,
    Compose,
    Composite,
    DTypeCastTransform,
    InitTracker,
    MultiCategorical,
    MultiOneHot,
    OneHot,
    ParallelEnv,
    RewardSum,
    SerialEnv,
    StepCounter,
    SyncDataCollector,
    TensorDictPrimer,
    TransformedEnv,
    Unbounded,
    check_env_specs,
    make_env,
    split_trajectories,
)

MOCKS = (
    "CountingEnv",
    "ArrayCountingEnv",
    "MultiKeyCountingEnv",
    "NestedCountingEnv",
    "HeterogeneousCountingEnv",
    "StatelessCountingEnv",
    "TextCountingEnv",
    "DynamicSpecEnv",
    "AutoResettingCountingEnv",
    "ModelCountingEnv",
)


@pytest.fixture(autouse=True)
def _meta():
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def devices(data):
    """Types of the devices of all tensors in data, lazy stacks row by row."""
    found = set()
    data.apply(lambda value: found.add(value.device.type), filter_empty=True)
    return found


def cartpole():
    return make_env("gym:CartPole-v1")


def counting():
    return steppe_testing.ArrayCountingEnv(3)


def tracked(env):
    return TransformedEnv(
        env,
        Compose(
            StepCounter(4),
            RewardSum(),
            InitTracker(),
            DTypeCastTransform(torch.float32, torch.float64, in_keys=["observation"]),
        ),
    )


@pytest.mark.parametrize("name", MOCKS)
@pytest.mark.parametrize("ends", [{}, {"break_when_any_done": False}, {"break_when_all_done": True}], ids=str)
def test_rollouts_ignore_the_default_device(name, ends):
    make = getattr(steppe_testing, name)
    for env in (make(), SerialEnv(2, make)):
        env.set_seed(0)
        data = env.rollout(7, **ends)

        assert devices(data) == {"cpu"}
    check_env_specs(make())


def test_the_default_device_leaves_seeded_data_unchanged():
    def collected():
        torch.manual_seed(0)
        env = tracked(cartpole())
        env.set_seed(0)
        return env.rollout(100, break_when_any_done=False)

    data = collected()
    torch.set_default_device(None)

    assert (data == collected()).all()


@pytest.mark.parametrize("wrap", [lambda env: env, tracked], ids=["bare", "transformed"])
@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_workers_ignore_the_default_device(wrap, method):
    other = lambda: TransformedEnv(counting(), StepCounter(step_count_key="steps"))  # noqa: E731
    with wrap(ParallelEnv(3, [counting, counting, other], mp_start_method=method)) as env:
        env.set_seed(0)
        assert devices(env.rollout(30, break_when_any_done=False)) == {"cpu"}
        assert devices(env.rollout(30, break_when_all_done=True)) == {"cpu"}


def test_rows_of_a_batch_ignore_the_default_device():
    with ParallelEnv(3, lambda: steppe_testing.CountingEnv(env_info=True)) as env:
        root = env.reset(env_info={"start": [[1], [2], [3]]})
        assert root["observation"].flatten().tolist() == [1, 2, 3]
        assert env.reset_at(None, [2], env_info={"start": [[5]]})["observation"].item() == 5
        assert env.step_at(env.rand_action(root)[[0, 2]], [0, 2])["next", "observation"].flatten().tolist() == [2, 6]
        assert devices(env[1:].rollout(2)) == {"cpu"}


@pytest.mark.parametrize("backend", ["threading", "multiprocessing"])
def test_pools_ignore_the_default_device(backend):
    with AsyncEnvPool([counting] * 2, backend=backend) as pool:
        root = pool.reset()
        pool.async_step_send(pool.rand_action(root))

        assert devices(pool.async_step_recv(min_get=2)) == {"cpu"}


@pytest.mark.parametrize("policy", [False, True])
def test_collectors_ignore_the_default_device(policy):
    net = torch.nn.Linear(1, 2, device="cpu")
    module = TensorDictModule(net, in_keys=["observation"], out_keys=["action"])
    env = SerialEnv(2, lambda: TransformedEnv(steppe_testing.CountingEnv(action="continuous"), StepCounter(3)))
    collector = SyncDataCollector(
        env, module if policy else None, frames_per_batch=20, total_frames=40, init_random_frames=20
    )
    batches = [batch.clone() for batch in collector]
    collector.shutdown()

    assert devices(batches[0]) | devices(batches[1]) == {"cpu"}
    assert devices(split_trajectories(batches[0])) == {"cpu"}


def test_states_of_transforms_ignore_the_default_device():
    env = TransformedEnv(
        steppe_testing.ArrayCountingEnv(), TensorDictPrimer(hidden=Unbounded((2,)), noise=Unbounded((1,)), random=True)
    )
    assert devices(env.rollout(3)) == {"cpu"}


SPECS = {
    "bounded": lambda: Bounded(-1, [1.0, 2.0]),
    "half bounded": lambda: Bounded(0, float("inf"), (2,)),
    "integers": lambda: Bounded([0, 3], 9, dtype=torch.int64),
    "unbounded": lambda: Unbounded((2, 3)),
    "unbounded integers": lambda: Unbounded((2,), dtype=torch.uint8),
    "binary": lambda: Binary(3),
    "categorical": lambda: Categorical(4, shape=(2,)),
    "masked": lambda: Categorical(3, mask=[True, False, True]),
    "one-hot": lambda: OneHot(4),
    "masked one-hot": lambda: OneHot(3, mask=torch.tensor([True, False, True], device="cpu")),
    "multi": lambda: MultiCategorical([2, 3]),
    "multi one-hot": lambda: MultiOneHot([2, 3]),
    "stacked": lambda: torch.stack([Bounded(0, 1, (2,)), Bounded(0, 2, (2,))]),
    "composite": lambda: Composite(a=Composite(b=OneHot(3)), c=Bounded(-1, 1, (2,))),
}


@pytest.mark.parametrize("make", SPECS.values(), ids=SPECS.keys())
def test_a_spec_without_a_device_makes_data_on_the_cpu(make):
    spec = make()
    for data in (
        spec.rand(),
        spec.rand((5,)),
        spec.zero(),
        spec.one(),
        spec.zero((5,)),
        spec.expand(4, *spec.shape).rand(),
    ):
        assert devices(data) == {"cpu"} if hasattr(data, "keys") else data.device.type == "cpu"
    assert spec.is_in(spec.rand())
    assert spec.is_in(spec.project(spec.rand()))
    assert spec == make()


@pytest.mark.parametrize(
    "name", ["categorical", "masked", "one-hot", "masked one-hot", "multi", "multi one-hot", "binary"]
)
def test_all_data_of_a_spec_is_listed_on_the_cpu(name):
    spec = SPECS[name]()
    for datum in spec.enumerate(use_mask=True):
        assert spec.is_in(datum)


def test_numbers_and_arrays_are_encoded_on_the_cpu():
    assert Bounded(-1, 1, ()).encode(0.5).item() == 0.5
    assert Unbounded((2,)).encode([1.0, 2.0]).tolist() == [1, 2]
    assert Categorical(3)[...].encode(1).item() == 1
    assert Composite(a=Unbounded((3, 2)), shape=(3,))[[0, 2]].rand()["a"].shape == (2, 2)
