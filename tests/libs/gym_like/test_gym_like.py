"""Wrappers with TorchRL's methods: _build_env, _make_specs, read_obs and others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe import (
    Categorical,
    Composite,
    OneHot,
    SerialEnv,
    StepCounter,
    TransformedEnv,
    Unbounded,
    check_env_specs,
)
from steppe.errors import ClassNotFound, IgnoredArgumentWarning, SpecError
from steppe.registry import Registry, use
from steppe_gym_like import BaseInfoDictReader, GymLikeEnv, default_info_dict_reader


class Library:
    """A counter in the manner of old gym, without ``close``, which reuses the memory of its observation."""

    def __init__(self, limit):
        self.limit, self.count, self.seeds, self.action = limit, 0, [], None
        self.memory = {"state": np.zeros(2, np.float32), "more": np.zeros(1, np.int64)}

    def seed(self, seed):
        self.seeds.append(seed)

    def reset(self):
        self.count = 0
        return self._observation(), {"n": np.float64(0), "_secret": 1, "name": "library"}

    def _observation(self):
        for value in self.memory.values():
            value[:] = self.count
        return self.memory

    def step(self, action):
        self.action = action
        self.count += 1
        info = {"n": np.float64(self.count), "v": np.ones(2), "_secret": 1, "name": "library"}
        return self._observation(), 1.5, self.count >= self.limit, info


class Modern(Library):
    """The same in the manner of gymnasium."""

    def reset(self, seed=None):
        return super().reset()

    def step(self, action):
        observation, reward, done, info = super().step(action)
        return observation, reward, done, False, info


class ModernEnv(GymLikeEnv):
    """A wrapper that leaves all to the base class: it is on the array path."""

    def __init__(self, limit, **kwargs):
        super().__init__(Modern(int(limit)), **kwargs)
        self.observation_spec = Composite(observation=Unbounded((2,)), more=Unbounded((1,), dtype=torch.int64))
        self.action_spec = OneHot(3)
        self.reward_spec = Unbounded((1,))

    def _sample_infos(self):
        return [self._env.step(0)[-1]]


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


BOTH = pytest.mark.parametrize("kind", [CounterEnv, ModernEnv])


def counts(data, *key):
    return data[key if len(key) > 1 else key[0]].reshape(-1).tolist()


@pytest.mark.parametrize("make", [lambda: CounterWrapper(Library(3)), lambda: CounterEnv("3"), lambda: ModernEnv(3)])
def test_such_a_wrapper_is_an_environment(make):
    data = make().rollout(5, break_when_any_done=False)

    assert data["observation"].tolist() == [[n, n] for n in (0, 1, 2, 0, 1)]
    assert counts(data, "next", "more") == [1, 2, 3, 1, 2]
    assert counts(data, "next", "reward") == [1.5] * 5
    assert counts(data, "next", "done") == [False, False, True, False, False]
    check_env_specs(make())


def test_construction_steps_run_in_order():
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
    with pytest.raises(TypeError, match="pass it as env, or define _build_env"):
        GymLikeEnv()


@BOTH
def test_an_action_is_repeated_until_the_episode_ends(kind):
    env = kind("3", frame_skip=2)
    data = env.rollout(5)

    assert env.wrapper_frame_skip == env.frame_skip == 2
    assert counts(data, "next", "more") == [2, 3]
    assert counts(data, "next", "reward") == [3.0, 1.5]
    env.wrapper_frame_skip = 1
    assert counts(env.rollout(5), "next", "more") == [1, 2, 3]


@BOTH
@pytest.mark.parametrize("frame_skip", [0, -1, 1.5, True])
def test_frame_skip_is_a_whole_number_from_one_on(kind, frame_skip):
    with pytest.raises(ValueError, match="frame_skip"):
        kind("3", frame_skip=frame_skip)


@pytest.mark.parametrize(("convert", "kind"), [(True, int), (False, torch.Tensor)])
def test_actions_may_stay_tensors(convert, kind):
    env = CounterEnv("3", convert_actions_to_numpy=convert)
    env.rand_step(env.reset())

    assert isinstance(env.action, kind)


def test_a_gym_like_env_works_in_batches_and_transforms():
    with SerialEnv(2, lambda: TransformedEnv(CounterEnv("3"), StepCounter())) as env:
        assert env.rollout(9)["next", "step_count"].flatten().tolist() == [1, 2, 3] * 2


@BOTH
def test_infos_are_learned_from_a_few_steps(kind):
    env = kind("3").set_info_dict_reader(default_info_dict_reader(["n"]))

    assert env.observation_spec["n"].shape == ()
    assert env.rollout(3)["next", "n"].tolist() == [1, 2, 3]
    for missing in ("missing", "name"):
        with pytest.raises(SpecError, match=rf"no numbers at \['{missing}'\]"):
            kind("3").set_info_dict_reader([missing])


@BOTH
def test_all_numeric_infos_are_found(kind):
    everything = kind("3").auto_register_info_dict()

    assert everything.observation_keys == ["more", "n", "observation", "v"]
    assert everything.rollout(3)["next", "v"].shape == (3, 2)
    check_env_specs(everything)
    assert "_secret" in kind("3").auto_register_info_dict(ignore_private=False).observation_keys


class Doubled(BaseInfoDictReader):
    """Writes in place, and returns nothing."""

    def __call__(self, info_dict, tensordict):
        tensordict.set("doubled", torch.as_tensor(info_dict["n"]) * 2)

    @property
    def info_spec(self):
        return {"doubled": Unbounded((), dtype=torch.float64)}


@BOTH
def test_infos_may_have_custom_readers(kind):
    env = kind("3").set_info_dict_reader(Doubled())

    assert env.rollout(3)["next", "doubled"].tolist() == [2, 4, 6]
    check_env_specs(env)
    with pytest.raises(TypeError, match="abstract"):
        BaseInfoDictReader()


def test_a_reader_may_return_other_data():
    def reader(info, tensordict):
        return tensordict.set("twice", torch.tensor([info["n"] * 2]))

    reader.info_spec = {"twice": Unbounded((1,), dtype=torch.float64)}
    data = ModernEnv(3).set_info_dict_reader(reader).rollout(3)

    assert counts(data, "next", "twice") == [2, 4, 6]


@BOTH
@pytest.mark.parametrize("method", ["read_reward", "read_obs"])
def test_overridden_readers_are_called(kind, method):
    def override(self, *args, **kwargs):
        value = getattr(super(mine, self), method)(*args, **kwargs)
        return value + 10 if method == "read_reward" else {**value, "more": value["more"] + 1}

    mine = type("Mine", (kind,), {method: override})
    key, change = ("reward", 10) if method == "read_reward" else ("more", 1)
    found, expected = (counts(one("3").rollout(3), "next", key) for one in (mine, kind))

    assert found == [value + change for value in expected]


def test_a_reader_forgets_what_it_has_learned():
    reader = default_info_dict_reader(["n"])
    reader.learn({"n": 1.0, "other": 2.0})
    assert list(reader.info_spec.keys()) == ["n"]

    reader.reset()
    reader.learn({"other": 2.0})
    assert list(reader.info_spec.keys()) == ["other"]


def test_fast_encoding_has_no_effect():
    with pytest.warns(IgnoredArgumentWarning, match=r"the method fast_encoding\(\) has no effect"):
        CounterEnv("3").fast_encoding()


def test_an_environment_without_close_can_be_closed():
    env = CounterEnv("3")
    env.close()

    assert env.is_closed


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
            with pytest.raises(ClassNotFound, match=r"It is in steppe-gym-like: pip install 'steppe\[gym-like\]'"):
                module.GymLikeEnv  # noqa: B018 - the access raises
        with pytest.raises(AttributeError, match=r"module 'steppe\.envs' has no attribute 'GymLike'\. Did you mean"):
            steppe.envs.GymLike  # noqa: B018 - the access raises
