"""Specs of an environment: setting, reading, locking, keys."""

from __future__ import annotations

import pytest
import torch

from steppe.envs import EnvBase
from steppe.errors import SpecError, StateError
from steppe.specs import Binary, Composite, OneHot, Unbounded
from steppe_testing import CountingEnv, MultiKeyCountingEnv, NestedCountingEnv

KINDS = ("observation", "reward", "done", "action", "state")


class Bare(EnvBase):
    """Specs and nothing else."""


def test_several_leaves_or_another_key_read_as_the_composite():
    env = MultiKeyCountingEnv()

    assert env.action_spec is env.full_action_spec
    assert isinstance(NestedCountingEnv().reward_spec, Composite)


def test_the_done_spec_is_completed_with_done_and_terminated():
    """The done spec has truncated only if it was assigned."""
    env = Bare()
    env.done_spec = Composite(terminated=Binary(1, dtype=torch.bool))
    assert env.done_keys == ["done", "terminated"]

    env.done_spec = Composite(truncated=Binary(1, dtype=torch.bool))
    assert env.done_keys == ["done", "terminated", "truncated"]


def test_without_a_done_spec_all_three_entries_are_at_the_root():
    assert Bare().done_keys == ["done", "terminated", "truncated"]
    assert Bare(batch_size=(2,)).full_done_spec["done"].shape == (2, 1)


@pytest.mark.parametrize("kind", ["action", "reward"])
def test_a_shape_must_start_with_the_batch_size(kind):
    env = Bare(batch_size=(4,))

    with pytest.raises(SpecError, match=r"\(4,\)"):
        setattr(env, f"{kind}_spec", Unbounded((3, 1)))


def test_a_reward_needs_a_last_dimension():
    with pytest.raises(SpecError, match=r"last dimension beside the batch: shape \(4, 1\), found \(4,\)"):
        Bare(batch_size=(4,)).reward_spec = Unbounded((4,))


def test_a_done_entry_of_another_name_is_refused():
    with pytest.raises(SpecError, match="'finished'"):
        Bare().full_done_spec = Composite(finished=Binary(1, dtype=torch.bool))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefix", ["full_", ""])
def test_unbatched_specs_lack_the_batch_dimensions(kind, prefix):
    one, many = CountingEnv(action="continuous"), CountingEnv(action="continuous", batch_size=(2, 3))

    assert getattr(many, f"{prefix}{kind}_spec_unbatched") == getattr(one, f"{prefix}{kind}_spec")


@pytest.mark.parametrize("kind", ["input", "output"])
def test_unbatched_containers_lack_the_batch_dimensions(kind):
    many = CountingEnv(batch_size=(2, 3))

    assert getattr(many, f"{kind}_spec_unbatched") == getattr(CountingEnv(), f"{kind}_spec")


@pytest.mark.parametrize("name", ["action_spec_unbatched", "full_action_spec_unbatched"])
def test_setting_an_unbatched_spec_expands_it(name):
    env = CountingEnv(batch_size=(2,))
    leaf = OneHot(7)
    setattr(env, name, leaf if not name.startswith("full") else Composite(action=leaf))

    assert env.action_spec.shape == (2, 7)
    assert env.action_spec_unbatched == leaf


def test_setting_an_unbatched_composite_expands_every_leaf():
    env = CountingEnv(batch_size=(2,))
    env.observation_spec_unbatched = Composite(a=Unbounded((3,)), b=Composite(c=Unbounded((1,))))

    assert env.full_observation_spec["a"].shape == (2, 3)
    assert env.full_observation_spec["b", "c"].shape == (2, 1)
    assert env.observation_keys == ["a", ("b", "c")]


def test_observation_and_state_specs_are_always_composites():
    env = CountingEnv()

    assert isinstance(env.observation_spec, Composite)
    assert isinstance(env.state_spec, Composite)


def test_keys_are_sorted_by_depth_and_name():
    env = MultiKeyCountingEnv()

    assert env.observation_keys == ["observation", ("left", "observation"), ("right", "observation")]
    assert env.reset_keys == [("left", "_reset"), ("right", "_reset")]
    assert env.done_keys_groups == [
        [("left", "done"), ("left", "terminated"), ("left", "truncated")],
        [("right", "done"), ("right", "terminated"), ("right", "truncated")],
    ]


@pytest.mark.parametrize("name", ["action_key", "reward_key", "done_key"])
def test_action_key_is_an_error_for_several_actions(name):
    assert getattr(CountingEnv(), name) == name.removesuffix("_key")
    with pytest.raises(KeyError, match=f"Use {name}s"):
        getattr(MultiKeyCountingEnv(), name)


def test_unlocked_specs_can_be_edited_and_keys_follow():
    env = CountingEnv(spec_locked=False)
    env.observation_spec["more"] = Unbounded((1,))
    env.set_spec_lock_(True)

    assert "more" in env.observation_keys
    with pytest.raises(StateError):
        env.observation_spec["again"] = Unbounded((1,))


def test_unlocking_for_a_while():
    env = CountingEnv()
    assert env.observation_keys == ["observation"]
    env.set_spec_lock_(False)
    env.observation_spec["more"] = Unbounded((1,))
    env.set_spec_lock_(True)

    assert env.observation_keys == ["more", "observation"]


def test_assigning_does_not_lock_the_callers_spec():
    spec = Composite(observation=Unbounded((1,)))
    Bare().observation_spec = spec

    spec["more"] = Unbounded((1,))


def test_a_key_in_two_specs_is_refused_at_first_use():
    env = CountingEnv()
    env.observation_spec = Composite(observation=Unbounded((1,)), reward=Unbounded((1,)))

    with pytest.raises(SpecError, match="'reward' is in both full_observation_spec and full_reward_spec"):
        env.rollout(2)


def test_the_batch_size_can_be_set_on_a_bare_environment():
    env = CountingEnv()
    env.batch_size = (3,)

    assert env.action_spec.shape == (3, 3)
    assert env.full_done_spec["done"].shape == (3, 1)
    assert (env.shape, env.ndim, env.batch_dims, env.numel()) == ((3,), 1, 1, 3)


def test_input_and_output_specs_hold_the_full_specs():
    env = CountingEnv()

    assert set(env.output_spec.keys()) == {"full_observation_spec", "full_reward_spec", "full_done_spec"}
    assert set(env.input_spec.keys()) == {"full_action_spec", "full_state_spec"}
    assert env.specs["output_spec", "full_reward_spec", "reward"] == env.reward_spec


def test_specs_may_be_assigned_before_the_base_is_initialised():
    class Early(CountingEnv):
        def __init__(self):
            self.action_spec = OneHot(5)
            super().__init__()
            assert self.action_spec == OneHot(3)  # CountingEnv assigns its own afterwards

    class Late(EnvBase):
        def __init__(self):
            self.action_spec = OneHot(5)
            super().__init__(device="cpu")

    Early()
    assert Late().action_spec == OneHot(5, device="cpu")
    assert Late().action_spec.device == torch.device("cpu")


@pytest.mark.parametrize("kind", ["observation", "action", "reward", "done", "state"])
def test_a_name_with_an_underscore_is_refused_instead_of_ignored(kind):
    with pytest.raises(AttributeError, match=f"assign self.{kind}_spec"):
        setattr(CountingEnv(), f"_{kind}_spec", Unbounded((1,)))
