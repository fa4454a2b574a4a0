"""Wrappers written as TorchRL's are: _build_env, _make_specs and the methods that read what a library returns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe import (
    Bounded,
    Categorical,
    Composite,
    OneHot,
    SerialEnv,
    StepCounter,
    TransformedEnv,
    Unbounded,
    check_env_specs,
)
from steppe.errors import EnvClassNotFound, IgnoredArgumentWarning, SpecError
from steppe.registry import Registry, use
from steppe_gym_like import BaseInfoDictReader, GymLikeEnv, default_info_dict_reader


class Library:
    """A counter in the manner of old gym, without ``close``."""

    def __init__(self, limit):
        self.limit, self.count, self.seeds, self.action = limit, 0, [], None

    def seed(self, seed):
        self.seeds.append(seed)

    def reset(self):
        self.count = 0
        return self._observation(), {"n": np.float64(0)}

    def _observation(self):
        return {"state": np.full(2, self.count, np.float32), "more": np.array([self.count])}

    def step(self, action):
        self.action = action
        self.count += 1
        return self._observation(), 1.5, self.count >= self.limit, {"n": np.float64(self.count), "v": np.ones(2)}


class CounterWrapper(GymLikeEnv):
    git_url = "https://example.org/counter"
    libname = "counter"

    def __init__(self, env=None, **kwargs):
        if env is not None:
            kwargs["env"] = env
        self.tag = "set before super().__init__()"
        super().__init__(**kwargs)

    def _check_kwargs(self, kwargs):
        if not isinstance(kwargs.get("env"), Library):
            raise TypeError("env must be a counter")

    def _build_env(self, env, scale=1):
        self.scale = scale
        return env

    def _make_specs(self, env):
        self.observation_spec = Composite(observation=Unbounded((2,)), more=Unbounded((1,), dtype=torch.int64))
        self.action_spec = OneHot(3)
        self.reward_spec = Unbounded((1,))
        self.done_spec = Categorical(2, (1,), dtype=torch.bool)

    def _init_env(self):
        self.ready = self.observation_keys == ["more", "observation"]

    def _set_seed(self, seed):
        self._env.seed(seed)

    def _output_transform(self, outputs):
        observation, reward, done, info = outputs
        return observation, reward, bool(done), False, bool(done), info

    def _reset_output_transform(self, outputs):
        return outputs


class CounterEnv(CounterWrapper):
    def __init__(self, env_name, **kwargs):
        kwargs["env_name"] = env_name
        super().__init__(**kwargs)

    def _check_kwargs(self, kwargs):
        assert "env_name" in kwargs

    def _build_env(self, env_name, **kwargs):
        return super()._build_env(Library(int(env_name)), **kwargs)


def counts(data, *key):
    return data[key if len(key) > 1 else key[0]].reshape(-1).tolist()


@pytest.mark.parametrize("make", [lambda: CounterWrapper(Library(3)), lambda: CounterEnv("3")])
def test_such_a_wrapper_is_an_environment(make):
    data = make().rollout(5, break_when_any_done=False)

    assert data["observation"].tolist() == [[n, n] for n in (0, 1, 2, 0, 1)]
    assert counts(data, "next", "more") == [1, 2, 3, 1, 2]
    assert counts(data, "next", "reward") == [1.5] * 5
    assert counts(data, "next", "done") == [False, False, True, False, False]
    check_env_specs(make())


def test_what_is_made_in_the_order_of_the_steps_is_there():
    env = CounterEnv("4", scale=3, device="cpu", run_type_checks=True)

    assert (env.scale, env.ready, env.limit, env.libname) == (3, True, 4, "counter")
    assert env.tag.startswith("set before")
    assert env.device == torch.device("cpu")
    assert env.run_type_checks
    assert env.set_seed(5) != 5
    assert env.seeds == [5]


def test_wrong_arguments_are_refused_by_the_wrapper_itself():
    with pytest.raises(TypeError, match="env must be a counter"):
        CounterWrapper()
    with pytest.raises(TypeError, match="unexpected keyword argument 'sclae'"):
        CounterEnv("4", sclae=3)
    with pytest.raises(TypeError, match="give it as env, or define _build_env"):
        GymLikeEnv()


def test_an_action_is_repeated_until_the_episode_ends():
    env = CounterEnv("3", frame_skip=2)
    data = env.rollout(5)

    assert env.wrapper_frame_skip == env.frame_skip == 2
    assert counts(data, "next", "more") == [2, 3]
    assert counts(data, "next", "reward") == [3.0, 1.5]
    env.wrapper_frame_skip = 1
    assert counts(env.rollout(5), "next", "more") == [1, 2, 3]


@pytest.mark.parametrize(("convert", "kind"), [(True, int), (False, torch.Tensor)])
def test_actions_may_stay_tensors(convert, kind):
    env = CounterEnv("3", convert_actions_to_numpy=convert)
    env.rand_step(env.reset())

    assert isinstance(env.action, kind)


def test_it_goes_into_batches_and_below_transforms():
    with SerialEnv(2, lambda: TransformedEnv(CounterEnv("3"), StepCounter())) as env:
        assert env.rollout(9)["next", "step_count"].flatten().tolist() == [1, 2, 3] * 2


def test_infos_are_learned_from_a_few_steps():
    env = CounterEnv("3").set_info_dict_reader(default_info_dict_reader(["n"]))

    assert env.observation_spec["n"].shape == ()
    assert env.rollout(3)["next", "n"].tolist() == [1, 2, 3]
    everything = CounterEnv("3").auto_register_info_dict()
    assert everything.rollout(3)["next", "v"].shape == (3, 2)
    check_env_specs(everything)
    with pytest.raises(SpecError, match="no numbers at"):
        CounterEnv("3").set_info_dict_reader(["missing"])


class Doubled(BaseInfoDictReader):
    """Writes in place, and returns nothing."""

    def __call__(self, info_dict, tensordict):
        tensordict.set("doubled", torch.as_tensor(info_dict["n"]) * 2)

    @property
    def info_spec(self):
        return {"doubled": Unbounded((), dtype=torch.float64)}


def test_infos_may_have_readers_of_their_own():
    env = CounterEnv("3").set_info_dict_reader(Doubled())

    assert env.rollout(3)["next", "doubled"].tolist() == [2, 4, 6]
    check_env_specs(env)
    with pytest.raises(TypeError, match="abstract"):
        BaseInfoDictReader()


def test_a_reader_forgets_what_it_has_learned():
    reader = default_info_dict_reader(["n"])
    reader.learn({"n": 1.0, "other": 2.0})
    assert list(reader.info_spec.keys()) == ["n"]

    reader.reset()
    reader.learn({"other": 2.0})
    assert list(reader.info_spec.keys()) == ["other"]


def test_encoding_is_as_fast_as_it_gets():
    with pytest.warns(IgnoredArgumentWarning, match=r"the method fast_encoding\(\) has no effect"):
        CounterEnv("3").fast_encoding()


def test_what_cannot_be_closed_is_closed_all_the_same():
    env = CounterEnv("3")
    env.close()

    assert env.is_closed


class Box:
    """A library's environment, which reuses the memory of its observation."""

    def __init__(self):
        self.memory = np.zeros(2)
        self.closed = 0

    def reset(self, seed=None):
        self.memory[:] = 0
        return self.memory, {"lives": 3, "_secret": 1, "name": "box"}

    def step(self, action):
        self.memory += action
        return self.memory, float(action), bool(self.memory[0] >= 3), False, {"lives": 2, "_secret": 1, "name": "box"}

    def close(self):
        self.closed += 1

    def shout(self):
        return "HO"


class BoxEnv(GymLikeEnv):
    def __init__(self, **kwargs):
        super().__init__(Box(), **kwargs)
        self.observation_spec = Composite(observation=Bounded(0.0, 9.0, shape=(2,), dtype=torch.float64))
        self.action_spec = OneHot(2)
        self.reward_spec = Unbounded((1,))

    def _sample_infos(self):
        return [{"lives": 3, "_secret": 1, "name": "box"}]


def one(td):
    return td.set("action", torch.tensor([False, True]))


def test_a_gym_like_environment_copies_what_the_library_reuses():
    data = BoxEnv().rollout(10, one)

    assert data["observation"][:, 0].tolist() == [0, 1, 2]
    assert data["next", "observation"].dtype is torch.float64
    assert data["next", "reward"].tolist() == [[1.0]] * 3


def test_frame_skip_sums_rewards_and_stops_at_the_end():
    data = BoxEnv(frame_skip=2).rollout(10, one)

    assert data["next", "reward"].squeeze(-1).tolist() == [2.0, 1.0]
    assert data["next", "observation"][:, 0].tolist() == [2, 3]


@pytest.mark.parametrize("frame_skip", [0, -1, 1.5, True])
def test_frame_skip_is_a_whole_number_from_one_on(frame_skip):
    with pytest.raises(ValueError, match="frame_skip"):
        BoxEnv(frame_skip=frame_skip)


def test_chosen_infos_become_observations():
    env = BoxEnv().set_info_dict_reader(["lives"])
    data = env.rollout(10, one)

    assert data["lives"].squeeze(-1).tolist() == [3, 2, 2]
    env.check_env_specs()


def test_all_numeric_infos_are_found():
    assert BoxEnv().auto_register_info_dict().observation_keys == ["lives", "observation"]
    assert "_secret" in BoxEnv().auto_register_info_dict(ignore_private=False).observation_keys


def test_an_info_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"no numbers at \['name'\]"):
        BoxEnv().set_info_dict_reader(["name"])


def test_a_reader_of_ones_own_may_write_anything():
    def reader(info, tensordict):
        return tensordict.set("twice", torch.tensor([info.get("lives", 0) * 2.0]))

    reader.info_spec = {"twice": Unbounded((1,))}
    data = BoxEnv().set_info_dict_reader(reader).rollout(3, one)

    assert data["next", "twice"].squeeze(-1).tolist() == [4, 4, 4]


def test_attributes_are_those_of_the_wrapped_environment():
    env = BoxEnv()

    assert env.shout() == "HO"
    with pytest.raises(AttributeError, match="whisper"):
        env.whisper()


def test_closing_closes_the_wrapped_environment_once():
    env = BoxEnv()
    env.close()
    env.close(raise_if_closed=False)

    assert env._env.closed == 1


@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("read_reward", lambda value: value + 10),
        ("read_obs", lambda value: {"observation": value["observation"] + 1}),
    ],
)
def test_overridden_readers_are_called(method, change):
    def override(self, *args, **kwargs):
        return change(getattr(super(env_class, self), method)(*args, **kwargs))

    env_class = type("Mine", (BoxEnv,), {method: override})
    mine, plain = env_class().rollout(3, one)["next"], BoxEnv().rollout(3, one)["next"]
    key = {"read_reward": "reward", "read_obs": "observation"}[method]

    assert (mine[key] - plain[key]).unique().tolist() == [10 if key == "reward" else 1]


def test_the_names_are_found_in_steppe():
    import steppe

    assert steppe.GymLikeEnv is steppe.envs.GymLikeEnv is GymLikeEnv
    assert steppe.default_info_dict_reader is default_info_dict_reader
    assert steppe.envs.BaseInfoDictReader is BaseInfoDictReader
    assert "GymLikeEnv" in dir(steppe.envs)


def test_without_the_package_the_error_says_what_to_install():
    import steppe

    with use(Registry(path=[])):
        for module in (steppe, steppe.envs):
            with pytest.raises(EnvClassNotFound, match=r"It is in steppe-gym-like: pip install 'steppe\[gym-like\]'"):
                module.GymLikeEnv  # noqa: B018 - the access raises
        with pytest.raises(AttributeError, match=r"module 'steppe\.envs' has no attribute 'GymLike'\. Did you mean"):
            steppe.envs.GymLike  # noqa: B018 - the access raises
