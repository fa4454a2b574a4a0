"""GymEnv and GymWrapper take TorchRL's arguments, and have its methods and attributes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

gymnasium = pytest.importorskip("gymnasium", minversion="1.2")

from gymnasium import spaces  # noqa: E402

from steppe import ParallelEnv, SerialEnv, StepCounter, TransformedEnv  # noqa: E402
from steppe.errors import ArgumentError, BackendError, IgnoredArgumentWarning, LibraryMissing, NotSupported, SpecError  # noqa: E402
from steppe_gym import GymEnv, GymWrapper  # noqa: E402
from steppe_testing import assert_equal_data  # noqa: E402


class Player(gymnasium.Env):
    """An environment that records its actions, with random observations."""

    def __init__(self, observation=None, action=None):
        self.observation_space = observation or spaces.Box(-1, 1, (2,))
        self.action_space = action or spaces.Discrete(3)
        self.actions = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.actions.append(action)
        return self.observation_space.sample(), 1.0, False, False, {"score": 2.0}


def test_an_environment_is_made_by_its_name_as_env_name():
    env = GymEnv(env_name="CartPole-v1")

    assert env.env_name == "CartPole-v1"
    assert env.rollout(3)["observation"].shape[-1] == 4
    with pytest.raises(TypeError, match="env_name"):
        GymEnv()


@pytest.mark.parametrize("backend", ["gymnasium", gymnasium, lambda: gymnasium], ids=["name", "module", "function"])
def test_backend_chooses_the_library_of_one_environment(backend):
    assert GymEnv("CartPole-v1", backend=backend).lib is gymnasium
    with pytest.raises(BackendError, match=r"'gymnasion' is not a gym backend. Choose one of: gymnasium, gym"):
        GymEnv("CartPole-v1", backend="gymnasion")


def test_num_workers_makes_a_batch_of_worker_processes():
    env = GymEnv("CartPole-v1", num_workers=2, max_episode_steps=7)
    try:
        assert isinstance(env, ParallelEnv)
        env.set_seed(1)
        found = env.rollout(10, break_when_any_done=False)
    finally:
        env.close()
    same = SerialEnv(2, lambda: GymEnv("CartPole-v1", max_episode_steps=7))
    same.set_seed(1)

    assert_equal_data(found, same.rollout(10, break_when_any_done=False))


def test_auto_reset_of_workers_is_passed_to_each_environment():
    batch = GymEnv("CartPole-v1", num_workers=2, auto_reset=True, auto_reset_replace=False)

    assert isinstance(batch, ParallelEnv)
    assert batch.create_env_kwargs == [{"auto_reset": True, "auto_reset_replace": False}] * 2
    assert batch.rollout(3).shape == (2, 3)
    batch.close()


def test_num_workers_and_num_envs_multiply():
    env = GymEnv("CartPole-v1", num_workers=2, num_envs=3)
    try:
        assert env.rollout(2).shape == (2, 3, 2)
    finally:
        env.close()


def test_a_single_worker_is_no_batch():
    assert all(isinstance(GymEnv("CartPole-v1", num_workers=n), GymEnv) for n in (0, 1))
    for wrong in (-1, 1.5, True, "2"):
        with pytest.raises(ArgumentError, match="num_workers is a whole number"):
            GymEnv("CartPole-v1", num_workers=wrong)
    with pytest.raises(TypeError, match="GymWrapper has no argument 'num_workers'"):
        GymWrapper(Player(), num_workers=2)


def test_a_misspelt_argument_suggests_the_right_one():
    with pytest.raises(TypeError, match="has no argument 'from_pixel': did you mean 'from_pixels'"):
        GymWrapper(Player(), from_pixel=True)


def test_the_encoding_is_given_without_its_name():
    assert GymWrapper(Player(), True).action_spec.shape == ()
    assert GymWrapper(env=Player()).action_spec.shape == (3,)


def test_frames_come_alone_by_name_and_added_from_an_object():
    """pixels_only is the default for a name, but not for an environment object."""
    for env, keys in (
        (GymEnv("CartPole-v1", from_pixels=True), {"pixels"}),
        (GymEnv("CartPole-v1", from_pixels=True, pixels_only=False), {"pixels", "observation"}),
        (
            GymWrapper(gymnasium.make("CartPole-v1", render_mode="rgb_array"), from_pixels=True),
            {"pixels", "observation"},
        ),
        (
            GymWrapper(gymnasium.make("CartPole-v1", render_mode="rgb_array"), from_pixels=True, pixels_only=True),
            {"pixels"},
        ),
    ):
        assert env.from_pixels
        assert env.pixels_only == (keys == {"pixels"})
        assert set(env.observation_spec.keys()) == keys
        assert env.rollout(2)["pixels"].shape == (2, 400, 600, 3)
    assert not GymEnv("CartPole-v1").from_pixels


def test_an_observation_that_is_a_frame_is_called_pixels():
    frames = GymWrapper(Player(spaces.Box(0, 255, (4, 5, 3), np.uint8)))
    colour = GymWrapper(Player(spaces.Box(0, 255, (3,), np.uint8)))
    grey = GymWrapper(Player(spaces.Box(0, 255, (4, 5, 1), np.uint8)))

    assert frames.from_pixels
    assert frames.rollout(2)["next", "pixels"].shape == (2, 4, 5, 3)
    assert not colour.from_pixels
    assert colour.observation_keys == grey.observation_keys == ["observation"]


def test_an_environment_of_frames_is_not_rendered_again():
    env = GymWrapper(Player(spaces.Box(0, 255, (4, 5, 3), np.uint8)), from_pixels=True)

    assert env.rollout(2)["pixels"].shape == (2, 4, 5, 3)


def test_actions_of_a_dict_have_their_own_names_at_the_root():
    raw = Player(action=spaces.Dict(gas=spaces.Box(0, 1, (2,)), gear=spaces.Discrete(4)))
    env = GymWrapper(raw)
    td = env.reset()
    td["gas"], td["gear"] = torch.tensor([0.25, 0.5]), torch.tensor([0, 0, 1, 0])
    env.step(td)

    assert sorted(env.action_keys) == ["gas", "gear"]
    assert raw.actions[0]["gas"].tolist() == [0.25, 0.5]
    assert raw.actions[0]["gear"] == 2
    assert sorted(SerialEnv(2, lambda: GymWrapper(Player(action=raw.action_space))).rollout(3)["gear"].shape) == [
        2,
        3,
        4,
    ]
    with pytest.raises(SpecError, match=r"has actions named \['reward'\]"):
        GymWrapper(Player(action=spaces.Dict(reward=spaces.Discrete(2))))


def test_a_missing_observation_is_what_the_user_says():
    class Forgetful(gymnasium.vector.VectorEnv):
        """A vector environment that resets rows in a step and loses last observations."""

        num_envs = 2
        metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
        single_observation_space = spaces.Dict(x=spaces.Box(0, 9, (1,)), n=spaces.Box(0, 9, (1,), np.int64))
        single_action_space = spaces.Discrete(2)
        observation_space = gymnasium.vector.utils.batch_space(single_observation_space, 2)
        action_space = gymnasium.vector.utils.batch_space(single_action_space, 2)

        def _observation(self):
            return {"x": np.ones((2, 1), np.float32), "n": np.ones((2, 1), np.int64)}

        def reset(self, *, seed=None, options=None):
            return self._observation(), {}

        def step(self, actions):
            return self._observation(), np.zeros(2), np.array([True, False]), np.zeros(2, bool), {}

    def last(**kwargs):
        env = GymWrapper(Forgetful(), **kwargs)
        step = env.step(env.rand_action(env.reset()))["next"]
        return step["x"].flatten().tolist(), step["n"].flatten().tolist()

    assert last(missing_obs_value=7) == ([7.0, 1.0], [7, 1])
    (x, kept), whole = last()
    assert np.isnan(x)
    assert (kept, whole) == (1.0, [0, 1])


def test_unconverted_actions_reach_the_environment_as_tensors():
    """With convert_actions_to_numpy=False, the environment can compute with torch."""

    class Torch(Player):
        def reset(self, *, seed=None, options=None):
            return torch.zeros(2), {}

        def step(self, action):
            self.actions.append(action)
            return torch.ones(2) * action.sum(), torch.tensor(0.5), False, False, {}

    raw = Torch(action=spaces.Box(-1, 1, (2,)))
    env = GymWrapper(raw, convert_actions_to_numpy=False)
    data = env.rollout(3)

    assert all(isinstance(action, torch.Tensor) for action in raw.actions)
    assert torch.equal(torch.stack(raw.actions), data["action"])
    assert torch.allclose(data["next", "observation"][:, 0], data["action"].sum(-1))
    assert (data["next", "reward"] == 0.5).all()
    assert "convert_actions_to_numpy=False" in env.no_row_writer_reason


def test_unconverted_actions_have_the_form_of_the_data():
    """Actions that are not converted are one-hot vectors and dicts, as in the data."""
    one_hot = Player()
    GymWrapper(one_hot, convert_actions_to_numpy=False).rollout(1)
    several = Player(action=spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (2,))))
    GymWrapper(several, convert_actions_to_numpy=False).set_info_dict_reader(["score"]).rollout(1)

    assert one_hot.actions[0].shape == (3,)
    assert isinstance(several.actions[-1], dict)
    assert several.actions[-1]["a"].shape == (2,)


def test_native_autoreset_warns_and_has_no_effect():
    with pytest.warns(IgnoredArgumentWarning, match="native_autoreset has no effect.*as their version does it"):
        env = GymWrapper(Player(), native_autoreset=True)

    assert env.rollout(2).shape == (2,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GymWrapper(Player(), native_autoreset=False, convert_actions_to_numpy=True)


def test_get_library_name_names_the_library_of_an_env():
    assert GymEnv.get_library_name(gymnasium.make("CartPole-v1")) == "gymnasium"
    assert GymWrapper.git_url.startswith("https://github.com/")
    with pytest.raises(LibraryMissing, match="neither to gymnasium nor to gym"):
        GymWrapper.get_library_name(type("Odd", (), {"action_space": 3, "observation_space": 4})())
    with pytest.raises(ImportError):
        GymWrapper.get_library_name(type("Odd", (), {"action_space": 3, "observation_space": 4})())


class TestMaskedGrid:
    """A MultiDiscrete with an ``action_mask`` of its combinations."""

    @staticmethod
    def raw(dtype=np.int8, start=(0, 0)):
        mask = spaces.Box(0, 1, (3, 2), dtype)
        return Player(
            spaces.Dict(action_mask=mask, view=spaces.Box(-1, 1, (2,))), spaces.MultiDiscrete([3, 2], start=start)
        )

    def test_an_action_is_one_choice_among_all_combinations(self):
        one_hot, index = GymWrapper(self.raw()), GymWrapper(self.raw(), categorical_action_encoding=True)

        assert one_hot.action_spec.shape == (6,)
        assert one_hot.action_spec.dtype is torch.bool
        assert index.action_spec.shape == ()
        assert index.action_spec.n == 6

    @pytest.mark.parametrize("encoded", [False, True])
    def test_the_environment_gets_the_combination_that_the_choice_is(self, encoded):
        raw = self.raw(start=(0, 10))
        env = GymWrapper(raw, categorical_action_encoding=encoded)
        td = env.reset()
        for choice in range(6):
            td["action"] = (
                torch.tensor(choice) if encoded else torch.nn.functional.one_hot(torch.tensor(choice), 6).bool()
            )
            td = env.step_mdp(env.step(td))

        assert [action.tolist() for action in raw.actions] == [[i, j] for i in range(3) for j in (10, 11)]
        assert all(raw.action_space.contains(action) for action in raw.actions)

    def test_the_observed_mask_masks_it(self):
        env = GymWrapper(self.raw(bool))
        mask = torch.zeros(3, 2, dtype=torch.bool)
        mask[2, 1] = True
        env.action_spec.update_mask(mask)

        assert all(env.action_spec.rand()[5] for _ in range(20))

    def test_rollouts_and_batches_decode_equally(self):
        for make in (lambda raw: GymWrapper(raw), lambda raw: SerialEnv(1, lambda: GymWrapper(raw))):
            raw = self.raw()
            data = make(raw).rollout(5)
            flat = data["action"].reshape(5, 6).int().argmax(-1)
            assert [list(np.unravel_index(int(i), (3, 2))) for i in flat] == [action.tolist() for action in raw.actions]

    def test_a_mask_of_each_choice_is_a_usual_observation(self):
        mask = spaces.MultiBinary(5)
        env = GymWrapper(Player(spaces.Dict(action_mask=mask), spaces.MultiDiscrete([3, 2])))

        assert env.action_spec.shape == (5,)


class TestRebuilding:
    def test_frames_are_added_to_an_existing_environment(self):
        env = GymEnv("CartPole-v1", max_episode_steps=9)
        env.rollout(2)
        env.rebuild_with_kwargs(from_pixels=True, pixels_only=False)
        env.set_seed(0)
        found = env.rollout(20)

        fresh = GymEnv("CartPole-v1", max_episode_steps=9, from_pixels=True, pixels_only=False)
        fresh.set_seed(0)
        assert_equal_data(found, fresh.rollout(20))
        assert env.from_pixels

    def test_rebuilding_keeps_transforms_and_info_readers(self):
        env = TransformedEnv(GymEnv("HalfCheetah-v5").set_info_dict_reader(["x_velocity"]), StepCounter())
        env.rollout(2)
        env.rebuild_with_kwargs(exclude_current_positions_from_observation=False)

        data = env.rollout(3)
        assert data["observation"].shape == (3, 18)
        assert data["next", "step_count"].flatten().tolist() == [1, 2, 3]
        assert data["next", "x_velocity"].abs().sum() > 0

    def test_another_environment_is_wrapped(self):
        env = GymWrapper(gymnasium.make("CartPole-v1"))
        env.rebuild_with_kwargs(env=gymnasium.make("Pendulum-v1"))

        assert env.rollout(3)["action"].shape == (3, 1)
        assert env.observation_spec["observation"].shape == (3,)

    def test_unsupported_calls_are_errors(self):
        with pytest.raises(NotSupported, match="make another environment"):
            GymEnv("CartPole-v1").rebuild_with_kwargs(num_envs=2)
        with pytest.raises(TypeError, match="did you mean 'from_pixels'"):
            GymWrapper(Player()).rebuild_with_kwargs(from_pixel=True)

    def test_the_environment_made_before_is_closed(self):
        env = GymEnv("CartPole-v1", from_pixels=True)
        before = env._env.unwrapped
        env.rebuild_with_kwargs(from_pixels=False)

        assert not before.isopen
        assert env.observation_keys == ["observation"]


class TestFrameSkip:
    def frames(self, env, game):
        """How many frames of the game one step is."""
        td = env.reset()
        before = game.ale.getFrameNumber()
        env.step(env.rand_action(td))
        return game.ale.getFrameNumber() - before

    def test_an_environment_may_repeat_actions_itself(self):
        """If the library has frame_skip, it is passed on and the wrapper does not repeat."""
        one, batch = GymEnv("ALE/Pong-v5", frame_skip=3), GymEnv("ALE/Pong-v5", 2, frame_skip=3)

        assert self.frames(one, one.unwrapped) == 3
        assert (one.frame_skip, one.wrapper_frame_skip) == (batch.frame_skip, batch.wrapper_frame_skip) == (3, 1)
        assert self.frames(batch, batch.unwrapped.envs[0].unwrapped) == 3

    def test_the_default_frame_skip_is_the_librarys(self):
        env = GymEnv("ALE/Pong-v5")

        assert self.frames(env, env.unwrapped) == 4

    def test_frame_skip_can_be_changed_later(self):
        env = GymEnv("CartPole-v1", frame_skip=2)
        rewards = [env.rollout(1)["next", "reward"].item()]
        env.rebuild_with_kwargs(frame_skip=3)
        rewards.append(env.rollout(1)["next", "reward"].item())
        env.frame_skip = 4
        rewards.append(env.rollout(1)["next", "reward"].item())
        env.wrapper_frame_skip = 1
        rewards.append(env.rollout(1)["next", "reward"].item())
        env.rebuild_with_kwargs(frame_skip=None)
        rewards.append(env.rollout(1)["next", "reward"].item())

        assert rewards == [2, 3, 4, 1, 1]
        assert env.frame_skip == 1

    def test_the_two_ways_to_say_it_do_not_go_together(self):
        with pytest.raises(TypeError, match="Pass only one of them"):
            GymEnv("ALE/Pong-v5", frame_skip=2, frameskip=3)
        with pytest.raises(ArgumentError, match="frame_skip must be an integer >= 1"):
            GymEnv("ALE/Pong-v5", frame_skip=0)


def test_one_hot_vectors_are_int64_for_every_dtype():
    for space in (spaces.Discrete(3, dtype=np.int32), spaces.MultiDiscrete([3, 2], dtype=np.int32)):
        raw = Player(action=space)
        env = GymWrapper(raw)
        env.rollout(2)
        assert env.action_spec.dtype is torch.int64
        assert space.contains(np.asarray(raw.actions[0], space.dtype)[()])
        assert GymWrapper(Player(action=space), True).action_spec.dtype is torch.int32


@pytest.mark.parametrize("second", [StepCounter(), 3, "rgb_array"])
def test_a_wrapper_refuses_a_second_argument_other_than_bool(second):
    with pytest.raises(TypeError, match="categorical_action_encoding must be True or False, found"):
        GymWrapper(GymEnv("CartPole-v1")._env, second)
