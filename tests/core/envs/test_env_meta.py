"""Checks at the end of the outermost ``__init__`` of an environment."""

from __future__ import annotations

import abc
import copy
import inspect
import pickle

import pytest
import torch
from tensordict import TensorDict

from steppe import (
    ArrayEnv,
    Bounded,
    Categorical,
    Composite,
    EnvBase,
    OneHot,
    SerialEnv,
    TransformedEnv,
    Unbounded,
    check_env_specs,
)
from steppe.errors import NotSupported, SpecError, StateError
from steppe_gym import GymEnv
from steppe_testing import ArrayCountingEnv, CountingEnv, StatelessCountingEnv


class Walker(EnvBase):
    """An environment that edits its specs in place, as its subclasses do."""

    def __init__(self, size=2):
        super().__init__()
        self.observation_spec = Unbounded((size,))
        self.action_spec = Bounded(-1, 1, (size,))
        self.reward_spec = Unbounded((1,))
        self.full_done_spec["truncated"] = Categorical(2, (1,), dtype=torch.bool)
        self.position = torch.zeros(size)

    def _reset(self, tensordict=None, **kwargs):
        self.position = torch.zeros_like(self.position)
        return self._data()

    def _step(self, tensordict):
        self.position = self.position + tensordict["action"]
        return self._data().set("reward", self.position.sum(-1, keepdim=True))

    def _data(self):
        return TensorDict({key: self.position.clone() for key in self.observation_keys})

    def _set_seed(self, seed):
        pass


class Seer(Walker):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.keys_on_the_way = list(self.observation_keys)
        self.observation_spec["seen"] = Unbounded((2,))
        self.output_spec["full_observation_spec"]["also"] = Unbounded((2,))


def test_a_leaf_is_put_under_the_name_of_its_kind():
    env = Walker()

    assert env.observation_keys == ["observation"]
    assert env.action_keys == ["action"]
    assert env.reward_keys == ["reward"]
    env.done_spec = Categorical(2, (1,), dtype=torch.bool)
    assert env.done_keys == ["done", "terminated"]
    env.state_spec = Unbounded((3,))
    assert env.state_keys == ["state"]
    env.state_spec = None
    assert env.state_keys == []


def test_a_batched_leaf_has_the_batch_size():
    env = CountingEnv(batch_size=(3,))
    env.observation_spec = Unbounded((3, 4))

    assert env.observation_spec.shape == (3,)
    with pytest.raises(SpecError, match="starts with the batch size"):
        env.observation_spec = Unbounded((4,))


def test_specs_can_be_edited_until_the_outermost_init_ends():
    env = Seer(size=2)

    assert env.keys_on_the_way == ["observation"]
    assert env.observation_keys == ["also", "observation", "seen"]
    assert env.done_keys == ["done", "terminated", "truncated"]
    check_env_specs(env)
    assert env.rollout(3)["seen"].shape == (3, 2)
    assert SerialEnv(2, Seer).rollout(3)["next", "also"].shape == (2, 3, 2)


@pytest.mark.parametrize("make", [Walker, Seer, lambda: Seer(spec_locked=True), ArrayCountingEnv])
def test_then_they_are_locked(make):
    env = make()

    assert env.is_spec_locked
    for spec in (env.observation_spec, env.output_spec, env.full_done_spec, env.full_action_spec):
        with pytest.raises(StateError, match="locked"):
            spec["more"] = Unbounded((1,))


def test_edits_in_init_are_checked_at_its_end():
    class Short(Walker):
        def __init__(self):
            super().__init__()
            self.full_reward_spec["scalar"] = Unbounded(())

    with pytest.raises(SpecError, match="'scalar' needs a last dimension"):
        Short()


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_are_locked_and_follow_assignments(again):
    env = again(Seer())

    with pytest.raises(StateError, match="locked"):
        env.observation_spec["more"] = Unbounded((1,))
    env.observation_spec = Composite(observation=Unbounded((2,)))
    assert env.observation_keys == ["observation"]
    assert env.rollout(2)["observation"].shape == (2, 2)


def test_an_init_that_raises_leaves_nothing_behind():
    class Broken(Walker):
        def __init__(self, fails):
            super().__init__()
            self.observation_spec["x"] = Unbounded((2,))
            if fails:
                raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Broken(True)
    assert Broken(False).is_spec_locked


def test_an_inner_environment_is_locked_before_the_outer_one():
    """An environment made in another's __init__ is locked before the other one."""

    class Outer(Walker):
        def __init__(self):
            super().__init__()
            self.__dict__["inner"] = Walker()
            assert self.inner.is_spec_locked
            assert not self.is_spec_locked
            self.observation_spec["x"] = Unbounded((2,))

    assert Outer().observation_keys == ["observation", "x"]


def test_steps_taken_inside_init_do_not_fix_the_specs():
    class Eager(Walker):
        def __init__(self):
            super().__init__()
            self.rollout(2)
            self.observation_spec["x"] = Unbounded((2,))

    assert set(Eager().rollout(2)["next"].keys()) >= {"observation", "x"}


def test_every_class_takes_the_arguments_of_the_base():
    assert not Walker(spec_locked=False).is_spec_locked
    assert not Walker(3, spec_locked=False).observation_spec.is_locked
    assert not GymEnv("CartPole-v1", spec_locked=False).is_spec_locked
    assert not SerialEnv(2, Walker, spec_locked=False).is_spec_locked
    with pytest.raises(TypeError, match="sizes"):
        Walker(sizes=3)


def test_an_abstract_class_can_be_defined():
    class Abstract(EnvBase, abc.ABC):
        @abc.abstractmethod
        def speed(self): ...

    class Concrete(Abstract, Walker):
        def speed(self):
            return 1

    with pytest.raises(TypeError, match="abstract"):
        Abstract()
    assert Concrete().rollout(2).shape == (2,)


def test_a_class_has_the_signature_of_its_init():
    assert list(inspect.signature(Walker).parameters) == ["size"]
    assert "categorical_action_encoding" in inspect.signature(GymEnv).parameters


@pytest.mark.parametrize("how", ["class", "later", "instance", "private", "new"])
def test_an_environment_says_that_it_takes_any_batch_size(how):
    if how == "class":

        class Free(StatelessCountingEnv):
            batch_locked = False
    elif how == "new":

        class Free(StatelessCountingEnv):
            def __new__(cls, *args, **kwargs):
                return super().__new__(cls, *args, _batch_locked=False, **kwargs)
    else:

        class Free(StatelessCountingEnv):
            _batch_locked = True

        if how == "later":
            Free.batch_locked = False
        if how == "private":
            Free._batch_locked = False
    env = Free()
    if how == "instance":
        assert env.batch_locked
        env.batch_locked = False

    assert env.batch_locked is False
    assert env.reset(TensorDict(batch_size=[4]))["count"].shape == (4, 1)


def test_a_locked_batch_size_can_be_assigned_again():
    env = StatelessCountingEnv()
    env.batch_locked = True

    with pytest.raises(SpecError, match="batch size"):
        env.reset(TensorDict(batch_size=[4]))


def test_compile_true_compiles_at_construction():
    env = CountingEnv(compile={"backend": "eager", "warmup": 1})

    assert env.rollout(3)["observation"].flatten().tolist() == [0, 1, 2]
    assert type(CountingEnv(compile=False)) is CountingEnv
    with pytest.raises(TypeError, match="True, or a dict"):
        CountingEnv(compile=3)


def test_a_spec_that_is_only_looked_at_in_init_is_not_declared():
    class Curious(CountingEnv):
        def __init__(self):
            super().__init__()
            del self.base_state.specs["reward"]
            assert self.full_reward_spec.is_empty()

    assert Curious().reward_spec == Unbounded((1,))


def test_one_hot_actions_can_be_edited_in_place():
    class Chooser(Walker):
        def __init__(self):
            super().__init__()
            self.full_action_spec["choice"] = OneHot(3)

    assert Chooser().rand_action()["choice"].sum() == 1


@pytest.mark.parametrize("base", [EnvBase, ArrayEnv])
def test_a_missing_super_init_is_named_by_the_constructor(base):
    class Forgetful(base):
        def __init__(self):
            self.observation_spec = Composite(observation=Unbounded((1,)))
            self.length = 3

    with pytest.raises(StateError, match=r"Forgetful.__init__ has not called super\(\).__init__\(\).*first line"):
        Forgetful()


@pytest.mark.parametrize("base", [CountingEnv, ArrayCountingEnv])
@pytest.mark.parametrize(
    "place", [lambda make: make(), lambda make: TransformedEnv(make()), lambda make: SerialEnv(2, make)]
)
def test_an_environment_may_have_set_seed_without_an_argument(base, place):
    class Pole(base):
        def _set_seed(self):
            pass

    env = place(Pole)
    assert env.rollout(2).shape[-1] == 2
    with pytest.raises(TypeError, match=r"Pole\._set_seed\(\) takes 1 positional argument but 2 were given"):
        env.set_seed(7)


@pytest.mark.parametrize("name", ["reset", "step"])
def test_a_method_without_underscore_is_pointed_out(name):
    """If a class defines step instead of _step, the error says to rename it."""

    class Gymlike(EnvBase):
        def __init__(self):
            super().__init__()
            self.observation_spec = Unbounded((1,))

        _set_seed = CountingEnv._set_seed

    setattr(Gymlike, name, lambda self, action=None: None)
    setattr(Gymlike, "_step" if name == "reset" else "_reset", lambda self, tensordict=None: TensorDict({}))

    with pytest.raises(
        NotSupported, match=rf"Gymlike defines {name}, and no _{name}\(tensordict\)\. Rename it to _{name}"
    ):
        Gymlike()
