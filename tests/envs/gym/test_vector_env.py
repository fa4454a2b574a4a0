"""gymnasium's vector API over batches of steppe: the results are those of the library's SyncVectorEnv."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", minversion="0.29")

from packaging.version import Version  # noqa: E402

from steppe import ParallelEnv, SerialEnv, StepCounter, TransformedEnv  # noqa: E402
from steppe.errors import NotSupported, StateError, SteppeError  # noqa: E402
from steppe_gym import GymWrapper, as_vector_env, make_vec, register_vec  # noqa: E402
from steppe_testing import ArrayCountingEnv, MultiKeyCountingEnv  # noqa: E402

pytestmark = [pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]

VERSION = Version(gymnasium.__version__)
NEW = Version("1.1") <= VERSION
MODES = ("next_step", "same_step", "disabled") if NEW else (None,)
FINAL = "final_obs" if NEW else "final_observation"


class Told(gymnasium.Env):
    """Returns infos of every kind, of which some change their types, and text and nested observations."""

    observation_space = gymnasium.spaces.Dict(
        {
            "place": gymnasium.spaces.Box(-9, 9, (2,), np.float64),
            "pair": gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(3), gymnasium.spaces.MultiBinary(2))),
            "wide": gymnasium.spaces.Box(0, 2**16 - 1, (3,), np.uint16),
            "said": gymnasium.spaces.Text(20),
        }
    )
    action_space = gymnasium.spaces.Dict(
        {"go": gymnasium.spaces.Box(-1, 1, (2,), np.float32), "say": gymnasium.spaces.Discrete(3, start=-1)}
    )
    metadata = {"render_modes": ["rgb_array"]}
    render_mode = "rgb_array"
    g = 1.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.ends = 0, int(self.np_random.integers(3, 9))
        return self._seen(), {"options": str(options), "ends": self.ends}

    def step(self, action):
        self.t += 1
        infos = {"t": self.t, "half": self.t / 2, "go": np.array(action["go"]), "even": self.t % 2 == 0}
        if self.t % 3 == 0:
            infos |= {"flag": np.bool_(True), "small": np.float32(0.1), "inner": {"t": self.t, "name": "x"}}
        if self.t % 5 == 0:
            infos["much"] = list(range(400))
        if self.t == 7:
            infos = {}
        return self._seen(), float(action["go"].sum()) * self.g, self.t >= self.ends, int(action["say"]) == 9, infos

    def _seen(self):
        numbers = self.np_random
        return {
            "place": numbers.normal(size=2),
            "pair": (int(numbers.integers(3)), numbers.integers(2, size=2).astype(np.int8)),
            "wide": numbers.integers(2**16, size=3).astype(np.uint16),
            "said": f"t{self.t // 3}",
        }

    def render(self):
        return np.full((2, 2, 3), self.t, np.uint8)

    def double(self, value):
        return value * 2


class Bounds(gymnasium.Env):
    """Observations of two numbers up to a limit of its own."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, limit):
        self.observation_space = gymnasium.spaces.Box(0, limit, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action):
        return self._seen(), 1.0, False, False, {}

    def _seen(self):
        return self.np_random.uniform(0, self.observation_space.high).astype(np.float32)


class Word(gymnasium.Space):
    """A space that no library knows."""

    def __init__(self):
        super().__init__(None, None)

    def sample(self, mask=None, probability=None):
        return "left"

    def contains(self, x):
        return isinstance(x, str)

    def __eq__(self, other):
        return isinstance(other, Word)


class Words(gymnasium.Env):
    """Repeats the word of the action."""

    observation_space, action_space = Word(), Word()

    def reset(self, *, seed=None, options=None):
        return "start", {}

    def step(self, action):
        return action, 0.0, False, False, {"said": action}


class Counted(gymnasium.Env):
    """Counts its steps in the infos; an episode has four."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {"t": np.int64(0)}

    def step(self, action):
        self.t += 1
        return self._seen(), float(action), self.t == 4, False, {"t": np.int64(self.t)}

    def _seen(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


def with_infos():
    return GymWrapper(Counted()).auto_register_info_dict()


def assert_equal(ours, theirs, where=""):
    """Compare values with their types, recursively."""
    if isinstance(theirs, Mapping):
        assert isinstance(ours, Mapping), where
        assert set(ours) == set(theirs), where
        for key in theirs:
            assert_equal(ours[key], theirs[key], f"{where}/{key}")
    elif isinstance(theirs, tuple):
        assert isinstance(ours, tuple), where
        assert len(ours) == len(theirs), where
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_equal(a, b, f"{where}/{i}")
    elif isinstance(theirs, np.ndarray):
        assert isinstance(ours, np.ndarray), where
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), where
        if theirs.dtype == object:
            for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                assert_equal(a, b, f"{where}/{i}")
        else:
            assert ours.tobytes() == theirs.tobytes(), where
    else:
        assert ours == theirs, where


def sync_of(makes, mode, **kwargs):
    if NEW:
        kwargs["autoreset_mode"] = {"next_step": "NextStep", "same_step": "SameStep", "disabled": "Disabled"}[mode]
    return gymnasium.vector.SyncVectorEnv(makes, **kwargs)


def compare(make, mode, *, seed, n=3, steps=150, **settings):
    """Step a vector environment of steppe and one of the library with the same actions, and compare everything."""
    theirs = sync_of([make] * n, mode)
    ours = make_vec(make, n, autoreset_mode=mode, **settings)
    try:
        assert ours.observation_space == theirs.observation_space
        assert ours.single_action_space == theirs.single_action_space
        assert ours.metadata == theirs.metadata
        assert_equal(ours.reset(seed=seed), theirs.reset(seed=seed), "reset")
        theirs.action_space.seed(seed)
        for t in range(steps):
            actions = theirs.action_space.sample()
            a, b = ours.step(actions), theirs.step(actions)
            assert_equal(a, b, f"step {t}")
            ended = b[2] | b[3]
            if mode == "disabled" and ended.any():
                options = [{"reset_mask": ended.copy()} for _ in range(2)]
                assert_equal(ours.reset(options=options[0]), theirs.reset(options=options[1]), f"reset {t}")
            if t % 61 == 60:
                assert_equal(ours.reset(), theirs.reset(), f"reset {t}")
    finally:
        ours.close()
        theirs.close()


def library(name, wrap=None, **kwargs):
    def make():
        if name.startswith("ALE/"):
            import ale_py  # noqa: F401 - registers the games

        env = gymnasium.make(name, disable_env_checker=True, **kwargs)
        return env if wrap is None else wrap(env)

    return make


def timed(env):
    """Add the time to the observation, as an entry of a Dict."""
    return gymnasium.wrappers.TimeAwareObservation(env, flatten=False)


#: 12 environments: classic, Box2D, MuJoCo, Atari, Dict and Tuple observations.
IDS = {
    "CartPole-v1": ("gymnasium", library("CartPole-v1")),
    "Pendulum-v1": ("gymnasium", library("Pendulum-v1", max_episode_steps=40)),
    "Acrobot-v1": ("gymnasium", library("Acrobot-v1", max_episode_steps=60)),
    "FrozenLake-v1": ("gymnasium", library("FrozenLake-v1")),
    "Blackjack-v1": ("gymnasium", library("Blackjack-v1")),
    "LunarLander": ("Box2D", library("LunarLander-v3" if Version("1.0") <= VERSION else "LunarLander-v2")),
    "BipedalWalker-v3": ("Box2D", library("BipedalWalker-v3", max_episode_steps=50)),
    "HalfCheetah": (
        "mujoco",
        library("HalfCheetah-v5" if Version("1.0") <= VERSION else "HalfCheetah-v4", max_episode_steps=50),
    ),
    "Humanoid": ("mujoco", library("Humanoid-v5" if Version("1.0") <= VERSION else "Humanoid-v4")),
    "ALE/Pong-v5": ("ale_py", library("ALE/Pong-v5", obs_type="ram", max_episode_steps=50)),
    "ALE/Breakout-v5": ("ale_py", library("ALE/Breakout-v5")),
    "CartPole-v1, Dict": ("gymnasium", library("CartPole-v1", timed)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["CartPole-v1", "Blackjack-v1", "HalfCheetah"])
def test_results_equal_those_of_sync_vector_env(name, mode):
    module, make = IDS[name]
    pytest.importorskip(module)
    compare(make, mode, seed=3, num_processes=0)


@pytest.mark.parametrize("mode", MODES)
def test_workers_return_every_kind_of_info(mode):
    pytest.importorskip("gymnasium", minversion="1.0")
    compare(Told, mode, seed=1, steps=70, num_processes=2)


#: The ways to step the environments: in this process, in workers, and in both.
WAYS = {"serial": {"num_processes": 0}, "parallel": {"num_processes": 2}, "share": {"caller_share": True}}


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", list(IDS))
def test_long_runs_equal_those_of_sync_vector_env(name, mode, way):
    module, make = IDS[name]
    pytest.importorskip(module)
    for seed in range(3):
        compare(make, mode, seed=seed, steps=2000, **WAYS[way])


# -- the interface --------------------------------------------------------------------------------------------------


@pytest.fixture
def told():
    """A vector environment of three environments that return infos of every kind."""
    envs = make_vec(Told, 3, num_processes=0)
    yield envs
    envs.close()


def test_attributes_are_read_and_set_in_each_environment(told):
    told.set_attr("g", [1.0, 2.0, 3.0])
    assert told.get_attr("g") == (1.0, 2.0, 3.0)
    told.set_attr("g", 4.0)
    assert told.get_attr("g") == (4.0, 4.0, 4.0)
    assert told.call("double", 4) == (8, 8, 8)
    with pytest.raises(AttributeError, match="nothing"):
        told.get_attr("nothing")
    with pytest.raises(ValueError, match="3 environments, found 2"):
        told.set_attr("g", [1.0, 2.0])


def test_render_returns_the_frame_of_each_environment(told):
    told.reset(seed=0)
    told.step(told.action_space.sample())
    assert [int(frame[0, 0, 0]) for frame in told.render()] == [1, 1, 1]


def test_options_reach_each_environment(told):
    assert list(told.reset(seed=[1, None, 3], options={"a": 1})[1]["options"]) == ["{'a': 1}"] * 3
    assert list(told.reset()[1]["options"]) == ["None"] * 3


def test_each_environment_gets_its_seed(told):
    numbers = told.reset(seed=7)[0]["place"]
    assert (told.reset(seed=[7, 8, 9])[0]["place"] == numbers).all()
    with pytest.raises(ValueError, match="found 2"):
        told.reset(seed=[1, 2])


@pytest.mark.parametrize("num_processes", [0, 2])
def test_observation_spaces_may_differ_in_their_bounds(num_processes):
    """gymnasium compares the spaces of ``observation_mode="same"``, and batches the bounds of ``"different"``."""
    pytest.importorskip("gymnasium", minversion="1.1")
    makes = [functools.partial(Bounds, 1.0 + i) for i in range(3)]
    with pytest.raises(RuntimeError, match=r"environment 1 is .*observation_mode='different'"):
        make_vec(makes, num_processes=num_processes)
    wide = gymnasium.spaces.Box(0, 9, (2,), np.float32)
    for mode in ("different", (gymnasium.vector.utils.batch_space(wide, 3), wide)):
        theirs = gymnasium.vector.SyncVectorEnv(makes, observation_mode=mode)
        ours = make_vec(makes, num_processes=num_processes, observation_mode=mode)
        assert ours.observation_space == theirs.observation_space
        assert ours.single_observation_space == theirs.single_observation_space
        assert_equal(ours.reset(seed=0), theirs.reset(seed=0))
        actions = theirs.action_space.sample()
        assert_equal(ours.step(actions), theirs.step(actions))
        ours.close()
    with pytest.raises(ValueError, match="found 'wrong'"):
        make_vec(makes, num_processes=0, observation_mode="wrong")


@pytest.mark.parametrize("num_processes", [0, 2])
def test_spaces_of_other_packages_are_batched_as_tuples(num_processes):
    theirs, ours = sync_of([Words] * 2, MODES[0]), make_vec(Words, 2, num_processes=num_processes)
    assert_equal(ours.reset(seed=0), theirs.reset(seed=0))
    actions = ("left", "right")
    assert_equal(ours.step(actions), theirs.step(actions))
    ours.close()


def test_calls_in_two_parts_come_in_order():
    """As with AsyncVectorEnv, of which programs call ``step_async`` and ``step_wait``."""
    ours, other = (make_vec("CartPole-v1", 2, num_processes=0) for _ in range(2))
    ours.reset_async(seed=4)
    with pytest.raises(gymnasium.error.AlreadyPendingCallError, match="reset_async is pending"):
        ours.step_async([0, 1])
    with pytest.raises(gymnasium.error.NoAsyncCallError, match="step_async before step_wait"):
        ours.step_wait()
    assert_equal(ours.reset_wait(), other.reset(seed=4))
    ours.step_async([0, 1])
    assert_equal(ours.step_wait(), other.step([0, 1]))
    with pytest.raises(gymnasium.error.NoAsyncCallError):
        ours.reset_wait()
    ours.close()
    other.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        ours.step_async([0, 1])


def test_environments_of_this_process_are_listed(told):
    told.set_attr("g", [1.0, 2.0, 3.0])
    assert [env.unwrapped.g for env in told.envs] == [1.0, 2.0, 3.0]
    envs = make_vec("CartPole-v1", 2, num_processes=1)
    with pytest.raises(AttributeError, match="call, get_attr and set_attr"):
        _ = envs.envs
    envs.close()


def test_wrong_actions_are_refused():
    envs = make_vec("CartPole-v1", 3, num_processes=0)
    envs.reset(seed=0)
    with pytest.raises(TypeError, match="each of the 3 environments"):
        envs.step(0)
    with pytest.raises(ValueError, match=r"\(3,\)"):
        envs.step(np.zeros(2, np.int64))
    envs.close()


def test_wrong_reset_masks_are_refused():
    envs = make_vec("CartPole-v1", 3, num_processes=0, autoreset_mode="disabled")
    envs.reset(seed=0)
    for mask in (np.array([1, 0, 0]), [True, False, False]):
        with pytest.raises(TypeError, match="numpy array of bool"):
            envs.reset(options={"reset_mask": mask})
    for mask in (np.zeros(3, bool), np.ones(2, bool)):
        with pytest.raises(ValueError, match="reset_mask"):
            envs.reset(options={"reset_mask": mask})
    envs.close()


def test_a_row_that_has_ended_must_be_reset_if_disabled():
    envs = make_vec("Pendulum-v1", 2, num_processes=0, autoreset_mode="disabled", max_episode_steps=2)
    envs.reset(seed=0)
    for _ in range(2):
        envs.step(envs.action_space.sample())
    with pytest.raises(StateError, match=r"environments \[0, 1\] have ended"):
        envs.step(envs.action_space.sample())
    envs.close()


def test_copy_false_returns_the_same_array():
    for copy in (True, False):
        envs = make_vec("CartPole-v1", 2, num_processes=0, copy=copy)
        envs.reset(seed=0)
        first, second = envs.step([0, 1])[0], envs.step([0, 1])[0]
        assert np.shares_memory(first, second) is not copy
        envs.close()


def test_environments_with_different_spaces_are_refused():
    makes = [library("CartPole-v1"), library("MountainCar-v0")]
    with pytest.raises(RuntimeError, match="equal spaces"):
        make_vec(makes, num_processes=0)


def test_a_closed_vector_environment_raises_its_error():
    envs = make_vec("CartPole-v1", 2, num_processes=0)
    envs.close()
    envs.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="closed"):
        envs.reset()


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="'later'"):
        make_vec("CartPole-v1", 2, autoreset_mode="later")


def test_an_error_names_its_environment():
    class Failing(Told):
        def step(self, action):
            raise KeyError("broken")

    envs = make_vec([Told, Failing], num_processes=2)
    envs.reset(seed=0)
    with pytest.raises(SteppeError, match=r"environment 1.*KeyError: 'broken'"):
        envs.step(envs.action_space.sample())
    envs.close()


def test_the_library_s_wrappers_work():
    pytest.importorskip("gymnasium", minversion="1.1")
    from gymnasium.wrappers import vector

    results = []
    for envs in (
        make_vec("CartPole-v1", 3, num_processes=0),
        gymnasium.vector.SyncVectorEnv([library("CartPole-v1")] * 3),
    ):
        wrapped = vector.NormalizeReward(vector.NormalizeObservation(vector.RecordEpisodeStatistics(envs)))
        wrapped.action_space.seed(0)
        wrapped.reset(seed=0)
        steps = [wrapped.step(wrapped.action_space.sample()) for _ in range(80)]
        for step in steps:
            step[4].get("episode", {}).pop("t", None)  # seconds
        results.append(steps)
        wrapped.close()
    for ours, theirs in zip(*results, strict=True):
        assert_equal(ours, theirs)


def test_the_library_s_make_vec_makes_it():
    pytest.importorskip("gymnasium", minversion="1.1")
    register_vec("Swing-v0", "Pendulum-v1", num_processes=0)
    envs = gymnasium.make_vec("Swing-v0", num_envs=2, vectorization_mode="vector_entry_point")
    assert (envs.reset(seed=0)[0].shape, envs.spec.id) == ((2, 3), "Swing-v0")
    envs.close()
    with pytest.raises(ValueError, match="Unknown-v0"):
        register_vec("Unknown-v0")


# -- batches of steppe ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("make", [SerialEnv, ParallelEnv])
def test_a_batch_of_steppe_has_the_same_data(make, mode):
    """CartPole's rewards are exact in float32, so all results are those of make_vec."""
    ours = as_vector_env(make(2, "gym:CartPole-v1"), autoreset_mode=mode)
    theirs = make_vec("CartPole-v1", 2, num_processes=0, autoreset_mode=mode)
    assert ours.single_observation_space == theirs.single_observation_space
    assert_equal(ours.reset(seed=5), theirs.reset(seed=5))
    theirs.action_space.seed(0)
    for _ in range(80):
        actions = theirs.action_space.sample()
        a, b = ours.step(actions), theirs.step(actions)
        assert_equal(a[:4], b[:4])
        assert_equal(a[4].get(FINAL, ()), b[4].get(FINAL, ()))
        if mode == "disabled" and (b[2] | b[3]).any():
            assert_equal(*[envs.reset(options={"reset_mask": b[2] | b[3]})[0] for envs in (ours, theirs)])
    ours.close()
    theirs.close()


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_transforms_count_the_steps_of_each_episode(mode):
    batch = TransformedEnv(SerialEnv(2, "gym:CartPole-v1"), StepCounter(max_steps=5))
    envs = as_vector_env(batch, autoreset_mode=mode, info_keys=["step_count"])
    envs.reset(seed=0)
    counts = [int(envs.step(np.array([0, 1]))[4]["step_count"][0][0]) for _ in range(12)]
    envs.close()
    period = {"next_step": [1, 2, 3, 4, 5, 0], "same_step": [1, 2, 3, 4, 0]}[mode]
    assert counts == (period * 3)[:12]


def test_an_environment_on_arrays_counts():
    envs = as_vector_env(SerialEnv(3, ArrayCountingEnv))
    first = envs.reset()[0]
    assert (envs.step(envs.action_space.sample())[0] == first + 1).all()
    envs.close()


@pytest.mark.parametrize("make", [SerialEnv, ParallelEnv])
def test_attributes_of_a_batch_are_set_read_and_called(make):
    envs = as_vector_env(TransformedEnv(make(2, "gym:CartPole-v1"), StepCounter()), info_keys=["step_count"])
    assert envs.get_attr("gravity") == (9.8, 9.8)
    envs.set_attr("gravity", [1.5, 2.5])
    assert envs.get_attr("gravity") == (1.5, 2.5)
    envs.rows.set("gravity", [7.0, 3.5], rows=[1])
    assert envs.call("get_wrapper_attr", "gravity") == (1.5, 3.5)
    with pytest.raises(AttributeError, match="levity"):
        envs.set_attr("levity", 1.0)
    with pytest.raises(AttributeError, match="itself"):
        envs.set_attr("num_workers", 3)
    envs.close()


@pytest.mark.parametrize("make", [SerialEnv, ParallelEnv])
@pytest.mark.parametrize("mode", MODES)
def test_entries_of_info_readers_are_infos(make, mode):
    ours = as_vector_env(make(2, with_infos), autoreset_mode=mode)
    theirs = sync_of([Counted] * 2, mode)
    assert ours.single_observation_space == theirs.single_observation_space
    assert_equal(ours.reset(seed=1), theirs.reset(seed=1))
    for _ in range(9):
        a, b = ours.step([0, 1]), theirs.step(np.array([0, 1]))
        assert_equal(a[:4], b[:4])
        if mode == "disabled" and (b[2] | b[3]).any():
            masks = [{"reset_mask": b[2] | b[3]} for _ in range(2)]
            assert_equal(ours.reset(options=masks[0]), theirs.reset(options=masks[1]))
        else:
            assert a[4]["t"].tolist() == b[4]["t"].tolist()
    ours.close()


def test_several_observations_are_a_dict():
    envs = as_vector_env(SerialEnv(2, "gym:CartPole-v1"), dict_observations=True)
    assert envs.reset(seed=0)[0]["observation"].shape == (2, 4)
    envs.close()


def test_environments_without_rows_are_refused():
    with pytest.raises(NotSupported, match="batch dimension"):
        as_vector_env(ArrayCountingEnv())
    with pytest.raises(NotSupported, match=r"one reward|cannot be a vector"):
        as_vector_env(SerialEnv(2, MultiKeyCountingEnv))
