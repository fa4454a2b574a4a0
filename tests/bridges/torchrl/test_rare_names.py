"""steppe_torchrl.names: names of TorchRL that steppe does not have, or has elsewhere."""

from __future__ import annotations

import re

import pytest
import torch

import steppe
from steppe_testing import CountingEnv, MultiAgentCountingEnv
from tools.workspace import ROOT

pytest.importorskip("torchrl")
names = pytest.importorskip("steppe_torchrl.names")
PAGE = (ROOT / "docs" / "migrating-from-torchrl.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("title", ["Names of older versions", "Names of newer versions"])
def test_names_of_other_versions_exist(title):
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    first = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = [name for cell in first for name in re.findall(r"`(\w+)`", cell)]
    planned = {"DistributedCollector", "RPCCollector", "DistributedSyncCollector"}  # their packages may be missing

    assert len(listed) >= 5
    assert [name for name in listed if name not in planned and not hasattr(names, name)] == []


def test_exploration_modes_are_types_of_exploration():
    with names.set_exploration_mode("mean"):
        assert names.exploration_mode() == "mean"
        assert steppe.exploration_type() is steppe.ExplorationType.MEAN
    with pytest.raises(ValueError, match="expected one of"):
        names.set_exploration_mode("greedy")


def test_keys_are_listed_for_each_level_that_ends():
    env = steppe.TransformedEnv(MultiAgentCountingEnv(), steppe.Compose(steppe.StepCounter(), steppe.InitTracker()))
    counter, tracker = env.transform

    assert set(counter.step_count_keys) <= set(env.observation_keys)
    assert set(tracker.init_keys) <= set(env.observation_keys)
    assert set(counter.reset_keys) == set(env.reset_keys)
    assert steppe.StepCounter().step_count_keys == ["step_count"]
    env.empty_transform()
    assert len(env.transform) == 0


def test_specs_of_an_environment_are_inferred():
    env = CountingEnv()
    expected = env.full_observation_spec.keys()
    assert names.auto_specs_(env, lambda td: env.rand_action(td)) is env
    assert env.full_observation_spec.keys() == expected


def test_collectors_have_the_getters_of_torchrl():
    policy = torch.nn.Linear(1, 3)
    collector = names.SyncDataCollector(CountingEnv(), frames_per_batch=6, total_frames=12)
    assert collector.rollout().shape == (6,)
    assert collector.getattr_env("batch_size") == collector.get_distant_attr("env.batch_size") == torch.Size([])
    assert collector.get_policy_version() == 0
    assert collector.policy_weights.is_empty()
    collector.shutdown()
    collector = names.SyncDataCollector(CountingEnv(), lambda observation: policy(observation) > 9, frames_per_batch=6)
    assert callable(collector.get_model("policy"))
    with pytest.raises(ValueError, match="one model"):
        collector.get_model("critic")
    collector.shutdown()


def test_names_of_packages_are_found():
    import steppe_gym

    assert names.GymEnv is names.__getattr__("GymEnv") is steppe_gym.GymEnv
    assert names._EnvWrapper is steppe.GymLikeEnv
    assert names._gym_to_torchrl_spec_transform is steppe_gym.space_to_spec
    with pytest.raises(AttributeError, match=r"no attribute 'LLMEnv'. The page docs/migrating-from-torchrl\.md"):
        names.LLMEnv  # noqa: B018
