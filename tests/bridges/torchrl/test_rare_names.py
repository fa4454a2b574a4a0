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


#: Names that the page lists as not available, and that no import brings: what there is instead.
GONE = {
    "internals of TorchRL": {
        *("set_state", "shared_tensordicts", "shared_tensordict_parent", "has_lazy_inputs", "select_and_clone"),
        *("resolved_exchange", "repr_exclusive_keys"),
    },
    "operations of torch or methods of specs": {"implements_for_spec", "index_select", "squeeze", "unsqueeze"},
    "weights between remote collectors": {
        *("cascade_execute", "get_weights_fn", "increment_version", "init_updater", "map_fn", "receive_weights"),
        *("register_scheme_receiver", "set_post_collect_hook", "verbose"),
    },
    "torch.profiler": {"disable_profile", "enable_profile", "profile_config"},
    "a package with an entry point in steppe.loggers": {"TrackioLogger", "trackio_kwargs"},
    "a batch of the collector": {"fake_tensordict"},
    "iteration over boxes": {"unbind"},
    "what versions of libraries are for": {
        "module_set",
        "check_version",
        "import_module",
        "library_version",
        "VersionRange",
    },
}


def listed_as_gone() -> set[str]:
    """Return the names in sentences and first cells of rows that say that something is not available."""
    gone: set[str] = set()
    for line in re.split(r"\n(?=\||\n)", PAGE):
        if "ot available" in line or "do not exist" in line:
            said = line.split("|")[1 if "do not exist" not in line else 2] if "|" in line else line
            said = said.split("Every class takes")[0]
            gone |= set(re.findall(r"`([A-Za-z_]\w*)(?=`|\(\)`)", said))
    return gone


def test_names_listed_as_gone_are_imported_or_explained():
    from steppe import Collector, EnvCreator, InitTracker, ParallelEnv, Spec, StepCounter, Transform, TransformedEnv

    classes = (Collector, EnvCreator, InitTracker, ParallelEnv, Spec, StepCounter, Transform, TransformedEnv)
    explained = set().union(*GONE.values())
    listed = listed_as_gone()

    assert len(listed) > 40
    found = {name for name in listed if hasattr(names, name) or any(hasattr(each, name) for each in classes)}
    assert sorted(listed - found - explained) == []
    assert {"getattr_rb", "step_count_keys", "terminal_obs_reader", "VecGymEnvTransform"} <= found


def test_levels_that_end_are_listed_by_a_step_counter():
    env = steppe.TransformedEnv(MultiAgentCountingEnv(), steppe.StepCounter())
    counter = env.transform[0] if hasattr(env.transform, "__getitem__") else env.transform
    levels = [group.prefix for group in env.base_env.done_groups]
    assert counter.all_done_keys == [(*prefix, "done") if prefix else "done" for prefix in levels]
    assert len(counter.all_truncated_keys) == sum("truncated" in group.names for group in env.base_env.done_groups)
    assert steppe.StepCounter().all_done_keys == []


def test_texts_of_errors_are_attributes():
    steppe_reward = pytest.importorskip("steppe_reward")
    with pytest.raises(steppe.errors.NotSupported, match=re.escape(steppe_reward.Reward2GoTransform.ENV_ERR)):
        steppe.TransformedEnv(CountingEnv(), steppe_reward.Reward2GoTransform())


def test_readers_of_last_observations_change_nothing():
    env = names.GymEnv("CartPole-v1", num_envs=2)
    env.set_info_dict_reader(names.terminal_obs_reader(env.observation_spec, "gymnasium"))
    data = env.rollout(3, break_when_any_done=False)
    env.close()
    assert set(data.keys()) == {"observation", "action", "done", "terminated", "truncated", "next"}
