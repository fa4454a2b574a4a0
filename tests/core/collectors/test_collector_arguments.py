"""Arguments that collectors accept and refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict.nn import TensorDictModule

from steppe import Collector, SerialEnv, SyncDataCollector
from steppe.errors import (
    ArgumentError,
    EnvNotFound,
    IgnoredArgumentWarning,
    NotSupported,
    PluginNotFound,
    PolicyError,
)
from steppe_testing import CountingEnv


def test_an_environment_a_function_and_an_id_are_taken() -> None:
    for source in (CountingEnv(), CountingEnv, lambda: CountingEnv(), [CountingEnv], "gym:CartPole-v1"):
        with SyncDataCollector(source, frames_per_batch=4) as collector:
            assert next(collector).batch_size == (4,)


def test_keyword_arguments_reach_the_function() -> None:
    with Collector(CountingEnv, frames_per_batch=4, create_env_kwargs={"start": 9}) as collector:
        assert next(collector)["observation"][0].item() == 9


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        (3, TypeError, "takes an environment, an id or a function that makes one, found int"),
        ([CountingEnv, CountingEnv], TypeError, r"SerialEnv\(n, functions\)"),
        (dict, ArgumentError, "returned dict where an environment is needed"),
        ("nobody:a", PluginNotFound, "nobody"),
        ("gym:Nothing-v0", EnvNotFound, "Nothing-v0"),
    ],
)
def test_a_source_without_environment_is_refused(source: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Collector(source, frames_per_batch=4)


def test_keyword_arguments_have_no_use_with_an_environment() -> None:
    with pytest.raises(TypeError, match="create_env_kwargs"):
        Collector(CountingEnv(), frames_per_batch=4, create_env_kwargs={"start": 1})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"frames_per_batch": 0}, "frames_per_batch is a whole number >= 1, found 0"),
        ({"frames_per_batch": 2.5}, "frames_per_batch is a whole number >= 1, found 2.5"),
        ({"frames_per_batch": True}, "found True"),
        ({"total_frames": "all"}, "found 'all'"),
        ({"total_frames": 8.5}, "total_frames is a whole number, or None, found 8.5"),
        ({"init_random_frames": 1.5}, "init_random_frames is a whole number, or None, found 1.5"),
        ({"max_frames_per_traj": 1.5}, "max_frames_per_traj is a whole number, or None, found 1.5"),
    ],
)
def test_an_invalid_number_of_frames_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        Collector(CountingEnv, **{"frames_per_batch": 4, **arguments})


@pytest.mark.parametrize(
    ("arguments", "batches"),
    [
        ({"total_frames": 8.0}, 2),
        ({"total_frames": np.int64(8)}, 2),
        ({"total_frames": 0}, 0),
        ({"frames_per_batch": 4.0, "total_frames": 8}, 2),
        ({"total_frames": 8, "max_frames_per_traj": -1}, 2),
        ({"total_frames": 8, "init_random_frames": -1}, 2),
        ({"total_frames": 8, "init_random_frames": 4.0}, 2),
        ({"total_frames": 8, "split_trajs": None, "trust_policy": None, "exploration_type": None}, 2),
    ],
)
def test_numbers_of_any_kind_and_none_for_the_default_are_taken(arguments: dict[str, Any], batches: int) -> None:
    with Collector(CountingEnv, **{"frames_per_batch": 4, **arguments}) as collector:
        assert [batch.batch_size for batch in collector] == [(4,)] * batches


def test_total_frames_none_has_no_end() -> None:
    with Collector(CountingEnv, frames_per_batch=4, total_frames=None) as collector:
        assert collector.total_frames < 0
        assert [next(collector).numel() for _ in range(3)] == [4, 4, 4]


@pytest.mark.parametrize(
    "arguments",
    [
        {"weight_updater": object()},
        {"weight_sync_schemes": {"policy": object()}},
        {"backend": "ray"},
        {"num_collectors": 2},
        {"extend_buffer": False},
        {"sync": True},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_arguments_of_unsupported_collectors_are_refused(
    arguments: dict[str, Any],
) -> None:
    """The error for an unsupported argument names an alternative."""
    with pytest.raises(NotSupported, match=rf"does not take {min(arguments)}=.* yet\. Instead: "):
        Collector(CountingEnv, frames_per_batch=4, **arguments)


def test_arguments_that_ask_for_nothing_are_taken() -> None:
    nothing = {"interruptor": None, "weight_updater": None, "backend": "direct", "num_collectors": 1, "sync": None}
    with Collector(CountingEnv, frames_per_batch=4, **nothing) as collector:
        assert next(collector).numel() == 4


@pytest.mark.parametrize(
    ("name", "value"), [("use_buffers", False), ("cudagraph_policy", True), ("worker_idx", 3), ("num_threads", 2)]
)
def test_an_argument_without_effect_warns(name: str, value: Any) -> None:
    with pytest.warns(IgnoredArgumentWarning, match=f"Collector: the argument {name} has no effect"):
        collector = Collector(CountingEnv, frames_per_batch=4, **{name: value})
    with collector:
        assert next(collector).numel() == 4


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"split_trajs": True, "track_traj_ids": False}, TypeError, "needs the ids"),
        ({"trajs_per_batch": 2, "track_traj_ids": False}, TypeError, "needs the ids"),
        ({"trajs_per_batch": 2, "split_trajs": True}, TypeError, "whole trajectories"),
        ({"traj_format": "cat"}, TypeError, "is for trajs_per_batch="),
        ({"trajs_per_batch": 2, "traj_format": "flat"}, ArgumentError, "'padded' or 'cat', found 'flat'"),
        ({"trajs_per_batch": 0}, ArgumentError, "trajs_per_batch is a whole number >= 1, found 0"),
        ({"replay_buffer": [], "return_same_td": True}, TypeError, "writes over"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        Collector(CountingEnv, frames_per_batch=4, **arguments)


def test_keyword_arguments_reach_the_functions_of_a_batch() -> None:
    batch = SerialEnv(2, CountingEnv)
    with Collector(batch, frames_per_batch=4, create_env_kwargs={"start": 9}) as collector:
        assert next(collector)["observation"][:, 0].tolist() == [[9], [9]]


def test_rows_that_have_ended_cannot_be_left_alone() -> None:
    with pytest.raises(NotSupported, match="reset_when_done=False"):
        Collector(CountingEnv, frames_per_batch=4, reset_when_done=False)


def test_a_misspelt_argument_is_a_mistake_with_a_suggestion() -> None:
    with pytest.raises(TypeError, match=r"no argument 'total_frame': did you mean 'total_frames'"):
        Collector(CountingEnv, frames_per_batch=4, total_frame=8)


def test_a_policy_and_a_factory_are_one_too_many() -> None:
    with pytest.raises(TypeError, match="not both"):
        Collector(CountingEnv, lambda td: td, policy_factory=lambda: None, frames_per_batch=4)


def test_a_factory_makes_the_policy() -> None:
    spec = CountingEnv().action_spec
    made = []

    def factory() -> Any:
        made.append(1)
        return lambda td: td.set("action", spec.encode(1))

    with Collector(CountingEnv, policy_factory=factory, frames_per_batch=4) as collector:
        assert next(collector)["action"][:, 1].all()
    assert made == [1]
    with pytest.raises(PolicyError, match="returned None"):
        Collector(CountingEnv, policy_factory=lambda: None, frames_per_batch=4)


def test_an_environment_made_for_a_wrong_policy_is_closed() -> None:
    """If the policy does not fit, the error closes the environment made for it."""
    made = []

    def make() -> SerialEnv:
        made.append(SerialEnv(2, CountingEnv))
        return made[0]

    with pytest.raises(PolicyError, match="takes"):
        Collector(make, lambda image, speed: image, frames_per_batch=4)
    assert made[0].is_closed


def test_the_callers_environment_stays_open_after_an_error() -> None:
    """A collector that cannot be made leaves the environment of its caller open."""
    env = CountingEnv()
    with pytest.raises(PolicyError):
        Collector(env, 3, frames_per_batch=4)
    assert not env.is_closed


@pytest.mark.parametrize("trusted", [True, False])
def test_a_policy_that_returns_nothing_is_named(trusted: bool) -> None:
    with (
        Collector(CountingEnv, lambda tensordict: None, frames_per_batch=4, trust_policy=trusted) as collector,
        pytest.raises(PolicyError, match="must return a TensorDict, found NoneType"),
    ):
        next(collector)


def test_a_policy_that_does_not_fit_names_what_it_was_given() -> None:
    env = CountingEnv(3)
    net = TensorDictModule(torch.nn.Linear(7, 3), ["observation"], ["action"])
    collector = Collector(env, net, frames_per_batch=4)
    with pytest.raises(PolicyError, match=r"TensorDictModule does not act .* be multiplied.*'observation' \[1\]"):
        next(collector)
    misspelt = TensorDictModule(torch.nn.Linear(1, 3), ["observatoin"], ["action"])
    with pytest.raises(PolicyError, match=r"'observatoin'.* are missing: did you mean 'observation'"):
        next(Collector(env, misspelt, frames_per_batch=4))
    assert not env.is_closed


def test_making_a_collector_changes_no_random_numbers() -> None:
    def drawn() -> Any:
        torch.manual_seed(0)
        net = TensorDictModule(
            lambda x: torch.eye(3).bool()[torch.randint(3, x.shape[:-1])], ["observation"], ["action"]
        )
        with Collector(CountingEnv(3), net, frames_per_batch=4):
            return torch.rand(())

    found = drawn()
    torch.manual_seed(0)
    assert torch.equal(found, torch.rand(()))
