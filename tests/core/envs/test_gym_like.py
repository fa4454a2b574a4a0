"""Wrappers written as TorchRL's are: _build_env, _make_specs and the methods that read what a library returns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe import Categorical, Composite, OneHot, SerialEnv, StepCounter, TransformedEnv, Unbounded, check_env_specs
from steppe.envs import BaseInfoDictReader, GymLikeEnv, default_info_dict_reader
from steppe.errors import IgnoredArgumentWarning, SpecError


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
