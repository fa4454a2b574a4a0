"""A transform sees the root as it was at its own level, in each arrangement of a chain and on each code path."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch

from steppe import SyncDataCollector
from steppe.batched import ParallelEnv, SerialEnv
from steppe.errors import SpecError, StateError
from steppe.specs import Unbounded
from steppe.transforms import (
    CallableTransform,
    CatFrames,
    Compose,
    DoubleToFloat,
    ExcludeTransform,
    InitTracker,
    ObservationNorm,
    ObservationTransform,
    RenameTransform,
    RewardScaling,
    RewardSum,
    StepCounter,
    TargetReturn,
    TensorDictPrimer,
    Transform,
    TransformedEnv,
    apply_to_composite,
)
from steppe_testing import ArrayCountingEnv, CountingEnv, StatelessCountingEnv, assert_equal_data

N, STEPS, LENGTH = 2, 9, 4
BASES = {
    "arrays": partial(ArrayCountingEnv, LENGTH, dtype=torch.float64),
    "tensordicts": partial(CountingEnv, LENGTH, dtype=torch.float64),
}


class Tripled(ObservationTransform):
    """Three times the value plus one, in the same place."""

    def _apply_transform(self, value):
        return 3 * value + 1


class Halved(Tripled):
    """A different value, for all rows in one call."""

    keeps_nothing = True

    def _apply_transform(self, value):
        return value / 2 - 5

    def shared_key(self):
        return (type(self), self.given_keys())


class Wide(ObservationTransform):
    """A second dimension."""

    def _apply_transform(self, value):
        return value.unsqueeze(-1)

    @apply_to_composite
    def transform_observation_spec(self, spec):
        return spec.unsqueeze(-1)


class Whole(Transform):
    """The same as Tripled, for all data."""

    def __init__(self, key):
        super().__init__(out_keys=[key])
        self.key = key

    def _call(self, next_tensordict):
        next_tensordict[self.key] = 3 * next_tensordict[self.key] + 1
        return next_tensordict

    def _reset(self, tensordict, tensordict_reset):
        return self._call(tensordict_reset)


class Difference(Transform):
    """How much the observation grows in a step, read from the root."""

    def _step(self, tensordict, next_tensordict):
        grows = next_tensordict["observation"] - tensordict["observation"]
        return next_tensordict.set("grows", grows)

    def _reset(self, tensordict, tensordict_reset):
        return tensordict_reset.set("grows", torch.zeros_like(tensordict_reset["observation"]))

    def transform_observation_spec(self, observation_spec):
        observation_spec["grows"] = observation_spec["observation"].clone()
        return observation_spec


class Replaced(Difference):
    """The same in place of the observation, which the next step reads."""

    def __init__(self):
        super().__init__(out_keys=["observation"])

    def _step(self, tensordict, next_tensordict):
        return next_tensordict.set("observation", 10 * next_tensordict["observation"] - tensordict["observation"])

    def _reset(self, tensordict, tensordict_reset):
        return tensordict_reset

    def transform_observation_spec(self, observation_spec):
        return observation_spec


class Steered(Transform):
    """An action that the root decides, on its way to the environment."""

    writes_step = False

    def _inv_call(self, tensordict):
        odd = (tensordict["observation"] % 2).to(torch.int64)
        return tensordict.set("action", torch.nn.functional.one_hot(odd.squeeze(-1), 3).to(tensordict["action"].dtype))


def norm(key):
    return ObservationNorm(loc=7.0, scale=0.5, in_keys=[key], standard_normal=True)


CHAINS = {
    "a scaled sum": lambda: [RewardSum(), norm("episode_reward")],
    "a scaled target": lambda: [TargetReturn(200.0), norm("target_return")],
    "a scaled count": lambda: [StepCounter(), Tripled(["step_count"])],
    "a count that ends": lambda: [StepCounter(3), Whole("step_count")],
    "a renamed sum": lambda: [RewardSum(), RenameTransform(["episode_reward"], ["total"])],
    "a difference": lambda: [Difference(), norm("observation")],
    "a difference, cast": lambda: [Difference(), DoubleToFloat()],
    "a difference, dropped": lambda: [Difference(), ExcludeTransform("observation")],
    "a difference, renamed": lambda: [Difference(), RenameTransform(["observation"], ["seen"])],
    "a difference, by a function": lambda: [Difference(), CallableTransform(tripled)],
    "a replaced observation": lambda: [Replaced(), Tripled(["observation"])],
    "two levels": lambda: [Difference(), Tripled(["observation"]), Replaced(), StepCounter(), Halved(["observation"])],
    "many": lambda: [
        RewardSum(),
        StepCounter(3),
        Difference(),
        Tripled(["observation"]),
        InitTracker(),
        Halved(["episode_reward"]),
        Whole("step_count"),
    ],
    "frames": lambda: [CatFrames(3, -1, in_keys=["observation"]), Difference(), norm("observation")],
    "a steered action": lambda: [Steered(), Tripled(["observation"])],
}


def tripled(td):
    return td.set("observation", 3 * td["observation"] + 1)


def nested(env, parts):
    for part in parts:
        env = TransformedEnv(env, part, auto_unwrap=False)
    return env


class Own(TransformedEnv):
    """A subclass, which is never joined with others."""


def split(base, parts, cut):
    return TransformedEnv(Own(base, Compose(*parts[:cut])), Compose(*parts[cut:]))


def around(kind, make, chain, cut):
    """A batch whose environments have the transforms before ``cut``, with the others around it."""

    def inside():
        parts = chain()[:cut]
        return TransformedEnv(make(), Compose(*parts)) if parts else make()

    batch = kind(N, inside)
    parts = chain()[cut:]
    return TransformedEnv(batch, Compose(*parts)) if parts else batch


#: Each makes the chain around a base, alone or in a batch.
ALONE = {
    "one Compose": lambda make, chain: TransformedEnv(make(), Compose(*chain())),
    "nested": lambda make, chain: nested(make(), chain()),
    "split": lambda make, chain: split(make(), chain(), 1),
}
BATCHES = {
    f"{kind.__name__}, {where}": (lambda make, chain, kind=kind, cut=cut: around(kind, make, chain, cut))
    for kind in (SerialEnv, ParallelEnv)
    for where, cut in (("inside", 9), ("around", 0), ("split", 1))
}
BATCHES["SerialEnv, nested inside"] = lambda make, chain: SerialEnv(N, lambda: nested(make(), chain()))
BATCHES["SerialEnv, nested around"] = lambda make, chain: nested(SerialEnv(N, make), chain())


def by_steps(env, actions):
    """A loop of single steps."""
    td, steps = env.reset(), []
    for action in actions.unbind(0):
        td = env.step(td.set("action", action))
        steps.append(td["next"])
        td = env.maybe_reset(env.step_mdp(td))
    return torch.stack(steps, -1)


def by_steps_with_resets(env, actions):
    td, steps = env.reset(), []
    for action in actions.unbind(0):
        frame, td = env.step_and_maybe_reset(td.set("action", action))
        steps.append(frame["next"])
    return torch.stack(steps, -1)


def by_rollout(env, actions):
    return env.rollout(STEPS, actions=actions, break_when_any_done=False)["next"]


def following(actions):
    """A policy that takes given actions."""
    steps = itertools.cycle(actions.unbind(0))
    return lambda td: td.set("action", next(steps))


def by_policy(env, actions):
    return env.rollout(STEPS, following(actions), break_when_any_done=False)["next"]


def by_collector(env, actions):
    frames = STEPS * (env.batch_size.numel() or 1)
    with SyncDataCollector(
        env, following(actions), frames_per_batch=frames, total_frames=frames, auto_register_policy_transforms=False
    ) as collector:
        (batch,) = collector
    return batch["next"]


WAYS = (by_steps, by_steps_with_resets, by_rollout, by_policy, by_collector)
KEYS = ("observation", "reward", "done", "episode_reward", "target_return", "step_count", "total", "grows", "seen")
PLACES = {**ALONE, **BATCHES}


@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
def test_no_arrangement_of_transforms_changes_values(chain, base):
    torch.manual_seed(0)
    choices = torch.randint(0, 3, (STEPS,))
    expected = None
    for place, arrange in PLACES.items():
        if "Parallel" in place and chain is not CHAINS["many"]:
            continue  # starting workers takes long
        env = arrange(base, chain)
        actions = torch.nn.functional.one_hot(choices, 3).to(env.action_spec.dtype)
        actions = actions.reshape(STEPS, *(1 for _ in env.batch_size), 3).expand(STEPS, *env.batch_size, 3)
        for way in WAYS:  # the last one closes the environment
            data = way(env, actions).select(*KEYS, strict=False)
            expected = data if expected is None else expected
            for row in data.unbind(0) if env.batch_size else [data]:
                assert_equal_data(row, expected, f"{place}, {way.__name__}")


def values(env, key, steps=3):
    """The values of an entry in a rollout, with its first data."""
    data = env.rollout(steps)
    return [data[key][0].item(), *data["next", key].flatten().tolist()]


def test_a_sum_is_scaled_only_once():
    env = TransformedEnv(ArrayCountingEnv(action="categorical"), Compose(RewardSum(), Halved(["episode_reward"])))
    actions = torch.ones(3, dtype=torch.int64)

    data = env.rollout(3, actions=actions)

    assert data["next", "episode_reward"].flatten().tolist() == [-4.5, -4.0, -3.5]


@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_a_count_is_tripled_only_once(base):
    env = TransformedEnv(base(), Compose(StepCounter(), Tripled(["step_count"])))

    assert values(env, "step_count") == [1, 4, 7, 10]


@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_a_difference_ignores_a_later_norm(base):
    env = TransformedEnv(base(), Compose(Difference(), norm("observation")))

    assert values(env, "grows") == [0, 1, 1, 1]
    assert values(env, "observation") == [-14, -12, -10, -8]


def test_a_state_is_read_as_the_environment_returned_it():
    for env in (
        TransformedEnv(StatelessCountingEnv(), Tripled(["count"])),
        TransformedEnv(SerialEnv(1, StatelessCountingEnv), Tripled(["count"])),
        SerialEnv(1, lambda: TransformedEnv(StatelessCountingEnv(), Whole("count"))),
    ):
        assert env.rollout(4)["next", "count"].flatten().tolist() == [4, 7, 10, 13]


def test_memory_is_no_part_of_the_data_of_a_rollout():
    env = TransformedEnv(ArrayCountingEnv(), Compose(StepCounter(), Tripled(["step_count"])))

    assert "__root_step_count" in env.reset().keys()
    assert "__root_step_count" in env.state_keys
    assert "step_count" not in env.state_keys
    names = {name for key in env.rollout(3).keys(True, True) for name in (key if isinstance(key, tuple) else (key,))}
    assert not any(name.startswith("_") for name in names)


def test_data_without_the_memory_is_refused():
    env = TransformedEnv(CountingEnv(), Compose(StepCounter(), Tripled(["step_count"])))
    td = env.rand_action(env.reset()).exclude("__root_step_count")

    with pytest.raises(KeyError, match=r"'__root_step_count' .* holds 'step_count' as StepCounter reads it"):
        env.step(td)


def test_a_change_that_cannot_be_kept_apart_is_refused():
    """The error names both transforms."""
    added = Compose(RewardSum(reward_spec=True), RewardScaling(0.0, 2.0, in_keys=["episode_reward"]))
    with pytest.raises(SpecError, match=r"RewardSum reads 'episode_reward' .* RewardScaling behind it changes"):
        TransformedEnv(ArrayCountingEnv(), added).reset()

    primed = Compose(TensorDictPrimer(hidden=Unbounded((2,)), default_value=1.0), Wide(["hidden"]))
    with pytest.raises(SpecError, match=r"TensorDictPrimer reads 'hidden' .* Wide .* because a policy writes it"):
        TransformedEnv(ArrayCountingEnv(), primed).reset()


class Silent(Whole):
    """Changes an entry without saying so."""

    def __init__(self, key):
        super().__init__(key)
        self.out_keys = None


class SilentInPlace(Silent):
    def _call(self, next_tensordict):
        next_tensordict[self.key] += 2
        return next_tensordict


@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
@pytest.mark.parametrize("silent", [Silent, SilentInPlace])
def test_a_change_that_is_not_declared_is_refused(silent, base):
    told = rf"{silent.__name__} changed 'step_count', which StepCounter before it reads .*out_keys = \['step_count'\]"
    for act in (lambda env: env.rollout(2), lambda env: env.step(env.rand_action(env.reset()))):
        env = TransformedEnv(base(), Compose(StepCounter(), silent("step_count")))
        with pytest.raises(StateError, match=told):
            act(env)


def test_a_step_counts_on_from_an_edited_count():
    """A transform that says nothing about its keys is trusted to change none that is read."""
    env = TransformedEnv(ArrayCountingEnv(9), Compose(StepCounter(), Difference()))
    td = env.step_mdp(env.rand_step(env.reset()))

    td["step_count"] += 4

    assert env.rand_step(td)["next", "step_count"].item() == 6


def test_transforms_that_change_nothing_read_need_no_memory():
    """Nor does a chain whose order is the usual one."""
    chain = Compose(StepCounter(5), RewardSum(), InitTracker(), DoubleToFloat(), norm("observation"))

    for env in (TransformedEnv(base(), chain.clone()) for base in BASES.values()):
        assert not [key for key in env.observation_keys if key.startswith("__")]
        assert env.rollout(3)["next", "step_count"].flatten().tolist() == [1, 2, 3]


def test_a_transform_may_declare_which_entries_it_reads():
    class Sparing(Difference):
        reads_root = ("observation",)

    env = TransformedEnv(ArrayCountingEnv(noise=True), Compose(Sparing(), Tripled(["observation", "noise"])))

    assert [key for key in env.observation_keys if key.startswith("__")] == ["__root_observation"]
    assert values(env, "grows") == [0, 1, 1, 1]
    assert env.row_writer.layout.root_inputs == ("__root_observation",)
