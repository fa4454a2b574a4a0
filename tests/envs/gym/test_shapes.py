"""Values of a wrong shape raise an error, and are never broadcast."""

from __future__ import annotations

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", minversion="1.0")

from gymnasium import spaces  # noqa: E402

from steppe import SerialEnv, SyncDataCollector  # noqa: E402
from steppe.errors import SpecError  # noqa: E402
from steppe_gym import GymWrapper, register_gym_spec_conversion  # noqa: E402


class Later(gymnasium.Env):
    """Returns sound values at its reset and first step, and others from its second step on."""

    def __init__(self, space, later, *, reward=1.0, info=None):
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self.later, self.reward, self.info = later, reward, info
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.observation_space.sample(), {"lives": np.zeros(2)}

    def step(self, action):
        self.steps += 1
        sound = self.steps < 2
        observation = self.observation_space.sample() if sound or self.later is None else self.later
        info = {"lives": np.zeros(2) if sound or self.info is None else self.info}
        return observation, 1.0 if sound else self.reward, False, False, info


class Rewarded(Later):
    reward_space = spaces.Box(-1, 1, (3,))

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, np.full(3, 1.0) if self.steps < 2 else reward, *rest


class Slow(GymWrapper):
    """Reads its observations as TensorDicts."""

    def read_obs(self, observations):
        return super().read_obs(observations)


BOX = spaces.Box(0, 1, (3,))
LATER = {
    "Box, one number": (BOX, np.zeros(1, np.float32), "'observation'", (3,), (1,)),
    "Box, a scalar": (BOX, 0.5, "'observation'", (3,), ()),
    "Box, a list": (BOX, [0.5], "'observation'", (3,), (1,)),
    "Box, a row for a column": (spaces.Box(0, 1, (2, 3)), np.zeros((2, 1)), "'observation'", (2, 3), (2, 1)),
    "Box, too many": (BOX, np.zeros(4), "'observation'", (3,), (4,)),
    "Box, one dimension more": (BOX, np.zeros((1, 3)), "'observation'", (3,), (1, 3)),
    "MultiBinary": (spaces.MultiBinary(4), np.ones(1, np.int8), "'observation'", (4,), (1,)),
    "MultiDiscrete": (spaces.MultiDiscrete([2, 3]), np.array([1]), "'observation'", (2,), (1,)),
    "MultiDiscrete of equal counts": (spaces.MultiDiscrete([3, 3]), np.array([1]), "'observation'", (2,), (1,)),
    "MultiDiscrete that begins at 5": (
        spaces.MultiDiscrete([3, 3], start=[5, 5]),
        np.array([6]),
        "'observation'",
        (2,),
        (1,),
    ),
    "Dict": (
        spaces.Dict({"a": BOX, "b": spaces.Discrete(3)}),
        {"a": np.zeros(1), "b": 1},
        "'a'",
        (3,),
        (1,),
    ),
    "Dict in a Dict": (
        spaces.Dict({"a": spaces.Dict({"b": BOX})}),
        {"a": {"b": np.zeros(1)}},
        r"\('a', 'b'\)",
        (3,),
        (1,),
    ),
    "Tuple of equal parts": (spaces.Tuple([BOX, BOX]), (np.zeros(1), np.zeros(1)), "'observation'", (2, 3), (2, 1)),
}


@pytest.mark.parametrize("wrapper", [GymWrapper, Slow])
@pytest.mark.parametrize(("space", "later", "key", "expected", "found"), LATER.values(), ids=LATER)
def test_an_observation_that_changes_its_shape_is_an_error(wrapper, space, later, key, expected, found):
    text = f"{key} must have shape {expected}, as its space says; the library returned {found}"
    text = text.replace("(", r"\(").replace(")", r"\)").replace(r"\\(", r"\(").replace(r"\\)", r"\)")
    for env in (wrapper(Later(space, later)), wrapper(Later(space, later), categorical_action_encoding=True)):
        assert env.rollout(1).shape == (1,)
        with pytest.raises(SpecError, match=text):
            env.rollout(5)


def test_an_error_in_a_batch_names_the_environment():
    env = SerialEnv(2, [lambda: GymWrapper(Later(BOX, None)), lambda: GymWrapper(Later(BOX, np.zeros(1)))])

    with pytest.raises(SpecError, match=r"'observation' must have shape \(3,\).*returned \(1,\)") as caught:
        env.rollout(5)
    note = "in step of environment 1 of a SerialEnv"
    assert getattr(caught.value, "__notes__", [note]) == [note]  # Python 3.10 has none


@pytest.mark.parametrize("reward", [np.zeros(3), [1.0, 2.0], "much"])
def test_a_later_reward_of_several_numbers_is_an_error(reward):
    with pytest.raises(SpecError, match="'reward' must"):
        GymWrapper(Later(BOX, None, reward=reward)).rollout(5)


def test_a_reward_of_several_numbers_is_not_repeated():
    assert GymWrapper(Rewarded(BOX, None, reward=np.ones(3))).rollout(5)["next", "reward"].shape == (5, 3)
    for reward in (1.0, np.ones(1)):
        with pytest.raises(SpecError, match=r"'reward' must have shape \(3,\)"):
            GymWrapper(Rewarded(BOX, None, reward=reward)).rollout(5)


def test_an_info_that_changes_its_shape_is_an_error():
    env = GymWrapper(Later(BOX, None, info=np.zeros(1))).set_info_dict_reader(["lives"])

    with pytest.raises(SpecError, match=r"'lives' must have shape \(2,\).*found \(1,\)"):
        env.rollout(5)


def test_values_of_a_custom_conversion_are_validated():
    class Angle(spaces.Box):
        """A space whose values are encoded as two numbers."""

    @register_gym_spec_conversion(Angle, encode=lambda space, value: np.zeros(2)[: 2 - int(value > 1)])
    def convert(space):
        from steppe.specs import Unbounded

        return Unbounded((2,))

    class Turning(Later):
        def reset(self, **kwargs):
            super().reset()
            return 0.0, {}

        def step(self, action):
            return (0.0 if self.steps < 1 else 2.0), *super().step(action)[1:]

    with pytest.raises(SpecError, match=r"'observation' must have shape \(2,\).*returned \(1,\)"):
        GymWrapper(Turning(Angle(0, 9, ()), None)).rollout(5)


class OldReturns(gymnasium.Env):
    """An environment with the return values of gym before 0.26."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def __init__(self, *, also_resets=False):
        self.also_resets = also_resets

    def reset(self, *, seed=None, options=None):
        observation = np.zeros(2, np.float32)
        return observation if self.also_resets else (observation, {})

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, {}


@pytest.mark.parametrize("batch", [lambda make: make(), lambda make: SerialEnv(2, make)], ids=["alone", "batch"])
def test_returns_of_old_gym_are_an_error_with_the_new_form(batch):
    """The error says what step and reset must return."""
    env = batch(lambda: GymWrapper(OldReturns()))
    with pytest.raises(SpecError, match=r"4 values, as gym did before 0\.26.*return observation, reward, terminated"):
        env.rollout(3)
    env = batch(lambda: GymWrapper(OldReturns(also_resets=True)))
    with pytest.raises(
        SpecError, match=r"two values in gymnasium, returned one value \(ndarray\): return observation, info"
    ):
        env.reset()


# -- values that are none --------------------------------------------------------------------------------------------

NONE = {
    "reward None": {"reward": None},
    "reward of an object": {"reward": np.array([None], dtype=object)},
    "reward text": {"reward": "0.5"},
    "observation with None": {"observation": [0.5, None, 0.5]},
    "observation of objects": {"observation": np.array([0.5, None, 0.5], dtype=object)},
    "observation of text": {"observation": np.array(["1", "2", "3"])},
    "terminated None": {"terminated": None},
    "truncated None": {"truncated": None},
    "terminated text": {"terminated": "False"},
    "truncated several": {"truncated": [False, True]},
}


class Breaks(Later):
    """Returns sound values at its reset and in its first three steps."""

    def __init__(self, **later):
        super().__init__(BOX, None)
        self.wrong = later

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        wrong = self.wrong if self.steps > 3 else {}
        return (
            wrong.get("observation", observation),
            wrong.get("reward", reward),
            wrong.get("terminated", terminated),
            wrong.get("truncated", truncated),
            info,
        )


class Both(GymWrapper):
    """Steps in whichever row."""

    def bind_step(self, out):
        return self.step_into


@pytest.mark.parametrize("case", NONE)
@pytest.mark.parametrize("frame_skip", [None, 3])
@pytest.mark.parametrize("wrapper", [GymWrapper, Both, Slow])
def test_none_is_an_error_instead_of_nan(wrapper, frame_skip, case):
    (name,) = NONE[case]
    env = wrapper(Breaks(**NONE[case]), frame_skip=frame_skip)

    with pytest.raises(SpecError, match=rf"'{name}' must be .* found .*") as caught:
        env.rollout(6)
    assert f"{env!r}.step: " in str(caught.value)


@pytest.mark.parametrize("case", ["reward None", "terminated None", "observation of objects"])
def test_steps_and_batches_do_not_take_none_either(case):
    (name,) = NONE[case]

    def stepped(env):
        td = env.reset()
        for _ in range(5):
            _, td = env.step_and_maybe_reset(env.rand_action(td))

    with pytest.raises(SpecError, match=f"'{name}' must be"):
        stepped(GymWrapper(Breaks(**NONE[case])))
    with pytest.raises(SpecError, match=rf"GymWrapper\(Breaks\).step: '{name}' must be"):
        stepped(SerialEnv(2, [lambda: GymWrapper(Breaks()), lambda: GymWrapper(Breaks(**NONE[case]))]))
    with pytest.raises(SpecError, match=f"'{name}' must be"):
        list(SyncDataCollector(GymWrapper(Breaks(**NONE[case])), None, frames_per_batch=8, total_frames=16))


def test_an_error_names_the_step_within_a_time_limit():
    env = GymWrapper(gymnasium.wrappers.TimeLimit(Breaks(reward=None), 20))

    with pytest.raises(SpecError, match=r"TimeLimit\).step, step 4 of the episode: 'reward' .* found None"):
        env.rollout(9)


def test_flags_may_be_numpy_bools_or_numbers():
    for flag in (np.True_, 1, np.ones(1, bool)):
        data = GymWrapper(Breaks(terminated=flag)).rollout(9)
        assert data["next", "terminated"].flatten().tolist() == [False, False, False, True]
        assert GymWrapper(Breaks(truncated=flag)).rollout(9).shape == (4,)


def test_an_info_of_objects_is_an_error():
    env = GymWrapper(Later(BOX, None, info=np.array([None, 2.0], dtype=object))).set_info_dict_reader(["lives"])

    with pytest.raises(SpecError, match="'lives' must be a number"):
        env.rollout(5)
