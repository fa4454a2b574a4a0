"""Environments in other hands: batches, collectors, libraries."""

from __future__ import annotations

import gc
import pickle

import pytest

from steppe.batched import ParallelEnv, SerialEnv
from steppe.collectors import SyncDataCollector
from steppe.envs import EnvBase
from steppe.errors import ArgumentError
from steppe.transforms import RewardSum, StepCounter, Transform, TransformedEnv
from steppe_testing import ArrayCountingEnv, CountingEnv


def test_an_environment_class_makes_a_parallel_batch():
    with EnvBase.make_parallel(ArrayCountingEnv, num_envs=3, num_processes=2) as env:
        assert type(env) is ParallelEnv
        assert env.batch_size == (3,)
        assert env.num_processes == 2


def test_a_wrong_configuration_changes_nothing():
    env = ParallelEnv(4, ArrayCountingEnv, num_processes=2)

    with pytest.raises(ArgumentError, match="num_processes is a whole number >= 2 with caller_share, found 1"):
        env.configure_parallel(num_processes=1, caller_share=True)
    with pytest.raises(TypeError, match="no argument 'num_process': did you mean 'num_processes'"):
        env.configure_parallel(num_process=1)
    assert (env.num_processes, env.caller_share) == (2, False)
    env.close()


def test_configure_parallel_needs_a_batch_with_workers():
    with pytest.raises(AttributeError, match="configure_parallel"):
        CountingEnv().configure_parallel(num_processes=2)
    with pytest.raises(TypeError, match="'num_processes': it is an argument of ParallelEnv"):
        SerialEnv(2, CountingEnv).configure_parallel(num_processes=2)


def test_a_transformed_batch_is_configured_through_its_base():
    batch = ParallelEnv(4, ArrayCountingEnv)
    TransformedEnv(batch).configure_parallel(num_processes=2)

    assert batch.num_processes == 2
    batch.close()


class Asking(Transform):
    """Knows how much its collector will collect."""

    def _call(self, tensordict):
        collector = self.parent.collector if self.parent is not None else None
        self.seen = None if collector is None else collector.total_frames
        return tensordict


def test_a_transform_can_ask_the_collector_of_its_environment():
    asking = Asking()
    env = TransformedEnv(ArrayCountingEnv(), asking)
    env.append_transform(StepCounter(4))
    assert env.collector is None

    collector = SyncDataCollector(env, frames_per_batch=10, total_frames=20)
    for _ in collector:
        assert asking.seen == 20
    assert env.collector is collector


def test_a_collector_is_remembered_weakly_and_does_not_travel():
    env = TransformedEnv(CountingEnv(), RewardSum())
    collector = SyncDataCollector(env, frames_per_batch=10, total_frames=10)

    assert env.collector is env.base_env.collector is not None
    assert pickle.loads(pickle.dumps(env)).collector is None
    collector.shutdown()
    del collector
    gc.collect()
    assert env.collector is None
