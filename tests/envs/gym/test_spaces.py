"""Spaces become specs and specs become spaces, values included."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

gymnasium = pytest.importorskip("gymnasium", minversion="1.0")

from gymnasium import spaces  # noqa: E402

from steppe.errors import NotSupported, SpecError  # noqa: E402
from steppe.specs import (  # noqa: E402
    Binary,
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    NonTensor,
    OneHot,
    Unbounded,
)
from steppe_gym import GymWrapper, register_gym_spec_conversion, space_to_spec  # noqa: E402
from tests.envs.gym.echo import Echo  # noqa: E402
from tests.forked import python  # noqa: E402
from tests.limits import CHILD  # noqa: E402


@pytest.mark.parametrize(
    ("space", "kind", "shape", "dtype"),
    [
        (spaces.Box(-1, 1, (3,)), Bounded, (3,), torch.float32),
        (spaces.Box(-np.inf, np.inf, (2, 2), np.float64), Unbounded, (2, 2), torch.float64),
        (spaces.Box(0, np.inf, (2,)), Bounded, (2,), torch.float32),
        (spaces.Box(0, 255, (4, 4, 3), np.uint8), Bounded, (4, 4, 3), torch.uint8),
        (spaces.Box(0, 9, (2,), np.uint16), Bounded, (2,), torch.int32),
        (spaces.Box(-5, 5, (), np.float32), Bounded, (), torch.float32),
        (spaces.Discrete(4), OneHot, (4,), torch.int64),
        (spaces.Discrete(4, start=-2), OneHot, (4,), torch.int64),
        (spaces.MultiDiscrete([3, 2]), MultiOneHot, (5,), torch.int64),
        (spaces.MultiDiscrete([3, 3]), OneHot, (2, 3), torch.int64),
        (spaces.MultiBinary(3), Binary, (3,), torch.int8),
        (spaces.MultiBinary([2, 3]), Binary, (2, 3), torch.int8),
        (spaces.Tuple([spaces.Box(0, 1, (2,)), spaces.Box(0, 2, (2,))]), Bounded, (2, 2), torch.float32),
        (spaces.Sequence(spaces.Box(0, 1, (2,))), Bounded, (-1, 2), torch.float32),
    ],
    ids=str,
)
def test_a_space_becomes_a_spec(space, kind, shape, dtype):
    spec = space_to_spec(space)

    assert type(spec) is kind
    assert (tuple(spec.shape), spec.dtype) == (shape, dtype)


@pytest.mark.parametrize(
    ("space", "kind", "shape"),
    [
        (spaces.Discrete(4), Categorical, ()),
        (spaces.MultiDiscrete([3, 2]), MultiCategorical, (2,)),
        (spaces.MultiDiscrete([3, 3]), Categorical, (2,)),
    ],
    ids=str,
)
def test_categorical_encoding(space, kind, shape):
    spec = space_to_spec(space, categorical_action_encoding=True)

    assert type(spec) is kind
    assert tuple(spec.shape) == shape


def test_bounds_are_the_space_s():
    spec = space_to_spec(spaces.Box(np.array([-1, 0.0]), np.array([1, np.inf]), dtype=np.float64))

    assert spec.space.low.tolist() == [-1, 0]
    assert spec.space.high.tolist() == [1, float("inf")]
    assert spec.is_in(spec.rand())


def test_containers_nest():
    space = spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)}), "t": spaces.Tuple([spaces.Text(3)])})
    spec = space_to_spec(space)

    assert isinstance(spec, Composite)
    assert set(spec.keys(True, True)) == {("a", "b"), ("t", "0")}
    assert isinstance(spec["t", "0"], NonTensor)


@pytest.mark.parametrize("name", ["Graph", "OneOf"])
def test_graph_and_one_of_spaces_are_refused(name):
    space = {
        "Graph": lambda: spaces.Graph(spaces.Box(0, 1, (2,)), None),
        "OneOf": lambda: spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1)]),
    }[name]()

    with pytest.raises(NotSupported, match=f"{name}.*has no tensor layout"):
        space_to_spec(space)


def test_a_subclass_is_converted_as_its_base():
    class Angles(spaces.Box):
        pass

    assert isinstance(space_to_spec(Angles(0, 1, (2,))), Bounded)


def test_an_unknown_space_names_the_decorator():
    class Mystery(spaces.Space):
        pass

    with pytest.raises(NotSupported, match=r"register_gym_spec_conversion\('.*Mystery'\)"):
        space_to_spec(Mystery())


@pytest.mark.parametrize("name", ["Box", "box.Box", "spaces.Box", "gymnasium.spaces.Box"])
@pytest.mark.parametrize("first", ["import gymnasium", ""], ids=["library loaded", "library not loaded"])
def test_a_built_in_space_conversion_can_be_replaced_by_name(name, first):
    """A space has several names, and each of them replaces the conversion."""
    code = f"""
{first}
from steppe import Unbounded
from steppe_gym import register_gym_spec_conversion, space_to_spec

@register_gym_spec_conversion({name!r})
def convert(spec, dtype=None, device=None, categorical_action_encoding=None, batch_size=None):
    return Unbounded((7,), device=device)

import gymnasium
print(space_to_spec(gymnasium.spaces.Box(0, 1, (2,))).shape, space_to_spec(gymnasium.spaces.Discrete(3)).shape)
"""
    done = subprocess.run([*python(), "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=CHILD)

    assert done.stdout == "torch.Size([7]) torch.Size([3])\n", done.stderr


def test_a_conversion_is_registered_by_class_with_its_values():
    class Colour(spaces.Space):
        names = ("red", "green")

        def sample(self, mask=None):
            return self.names[int(self.np_random.integers(2))]

        def contains(self, x):
            return x in self.names

    @register_gym_spec_conversion(
        Colour,
        encode=lambda space, value: space.names.index(value),
        decode=lambda space, action: space.names[int(action)],
    )
    def convert(space, device=None):
        return Categorical(2, device=device)

    raw = Echo(Colour(), Colour())
    env = GymWrapper(raw)
    data = env.rollout(5)

    assert data["next", "observation"].tolist() == [Colour.names.index(name) for name in raw.shown[1:]]
    assert [Colour.names.index(name) for name in raw.actions] == data["action"].tolist()


def test_a_conversion_is_registered_by_name():
    @register_gym_spec_conversion(f"{__name__}.Named")
    def convert(space, **kwargs):
        assert {"device", "categorical_action_encoding", "remap_state_to_observation", "batch_size"} <= set(kwargs)
        return Unbounded((1,))

    class Named(spaces.Space):
        pass

    import types

    module = types.ModuleType(__name__)
    module.Named = Named
    before = sys.modules.get(__name__)
    sys.modules[__name__] = module
    try:
        assert isinstance(space_to_spec(Named()), Unbounded)
    finally:
        if before is None:
            del sys.modules[__name__]
        else:
            sys.modules[__name__] = before


OBSERVATIONS = {
    "box": spaces.Box(-1, 1, (2, 3)),
    "scalar": spaces.Box(-1, 1, ()),
    "int16": spaces.Box(-9, 9, (2,), np.int16),
    "uint16": spaces.Box(0, 9, (2,), np.uint16),
    "discrete": spaces.Discrete(5, start=3),
    "multi": spaces.MultiDiscrete([3, 2], start=[1, -1]),
    "grid": spaces.MultiDiscrete([[3, 3], [3, 3]]),
    "unequal": spaces.MultiDiscrete([[3, 4], [3, 3]], start=[[-2, 0], [1, 2]]),
    "binary": spaces.MultiBinary([2, 2]),
    "dict": spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Dict({"c": spaces.Discrete(3)})}),
    "tuple": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (2,))]),
    "alike": spaces.Tuple([spaces.Discrete(3, start=1), spaces.Discrete(3)]),
    "tuples": spaces.Tuple([spaces.Tuple([spaces.Discrete(3, start=1)])]),
    "mixed": spaces.Tuple([spaces.Tuple([spaces.Discrete(3)]), spaces.Box(0, 1, (2,))]),
}


def decoded(spec, value, space):
    """Return an array in the format of the library."""
    if isinstance(spec, MultiOneHot):
        return np.array([part.argmax() for part in np.split(value, np.cumsum(space.nvec)[:-1])]) + space.start
    if isinstance(spec, OneHot):
        value = value.argmax(-1)
    if isinstance(space, spaces.Tuple):
        starts = [part.spaces[0].start if isinstance(part, spaces.Tuple) else part.start for part in space.spaces]
        return value + np.array(starts).reshape(-1, *[1] * (value.ndim - 1))
    return value + getattr(space, "start", 0)


def leaves(space, value, key=()):
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from leaves(part, value[name], (*key, name))
    elif isinstance(space, spaces.Tuple) and not isinstance(space_to_spec(space), OneHot):
        for i, part in enumerate(space.spaces):
            yield from leaves(part, value[i], (*key, str(i)))
    else:
        yield key, space, value


@pytest.mark.parametrize("path", ["arrays", "tensordicts"])
@pytest.mark.parametrize("categorical", [False, True])
@pytest.mark.parametrize("name", OBSERVATIONS)
def test_observations_of_every_space_arrive(name, categorical, path):
    raw = Echo(OBSERVATIONS[name])

    class Slow(GymWrapper):
        def read_obs(self, observations):
            return super().read_obs(observations)

    env = (GymWrapper if path == "arrays" else Slow)(raw, categorical_action_encoding=categorical)
    assert (env.row_writer is not None) == (path == "arrays")
    env.set_seed(0)
    data = env.rollout(4)

    rooted = isinstance(raw.observation_space, spaces.Dict)
    for t, shown in enumerate(raw.shown[1:5]):
        for key, space, expected in leaves(raw.observation_space, shown):
            key = key if rooted else ("observation", *key)
            found = data["next"][t][key].numpy()
            spec = env.full_observation_spec[key]
            np.testing.assert_array_equal(decoded(spec, found, space), np.asarray(expected))


ACTIONS = {
    "discrete": spaces.Discrete(3, start=-1),
    "multi": spaces.MultiDiscrete([3, 2], start=[1, 0]),
    "equal": spaces.MultiDiscrete([3, 3]),
    "single": spaces.MultiDiscrete([4]),
    "binary": spaces.MultiBinary(3),
    "box": spaces.Box(-1, 1, (2,)),
    "scalar": spaces.Box(-1, 1, ()),
    "integers": spaces.Box(0, 9, (2,), np.uint16),
    "dict": spaces.Dict({"move": spaces.Discrete(2), "aim": spaces.Box(-1, 1, (2,))}),
    "one": spaces.Dict({"move": spaces.Discrete(2, start=5)}),
    "tuple": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (2,))]),
    "alike": spaces.Tuple([spaces.Discrete(3), spaces.Discrete(3, start=1)]),
    "boxes": spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2,))]),
    "unequal": spaces.MultiDiscrete([[3, 4], [3, 3]], start=[[-2, 0], [1, 2]]),
    "grids": spaces.Tuple([spaces.MultiDiscrete([3, 3]), spaces.MultiDiscrete([3, 3], start=[1, 2])]),
    "tuples": spaces.Tuple([spaces.Tuple([spaces.Discrete(3, start=1)])]),
}


@pytest.mark.parametrize("path", ["arrays", "tensordicts"])
@pytest.mark.parametrize("categorical", [False, True])
@pytest.mark.parametrize("name", ACTIONS)
def test_actions_of_every_space_are_its_own(name, categorical, path):
    raw = Echo(spaces.Box(0, 1), ACTIONS[name])

    class Slow(GymWrapper):
        def read_obs(self, observations):
            return super().read_obs(observations)

    env = (GymWrapper if path == "arrays" else Slow)(raw, categorical_action_encoding=categorical)
    env.rollout(5)
    assert len(raw.actions) == 5  # each was checked by the environment

    for _ in range(20):
        env.step(env.rand_action(env.reset()))
    assert len({str(action) for action in raw.actions}) > 1


def test_actions_are_not_kept_views():
    raw = Echo(spaces.Box(0, 1), spaces.Box(-1, 1, (2,)))
    data = GymWrapper(raw).rollout(5)

    np.testing.assert_array_equal(np.stack(raw.actions), data["action"].numpy())


def test_state_is_renamed_to_observation():
    box = spaces.Box(0, 1, (2,))

    assert GymWrapper(Echo(spaces.Dict({"state": box}))).observation_keys == ["observation"]
    both = GymWrapper(Echo(spaces.Dict({"state": box, "observation": box})))
    assert sorted(both.observation_keys) == ["observation", "state"]


@pytest.mark.parametrize("name", ["action", "reward", "done"])
def test_an_entry_with_the_name_of_something_else_is_refused(name):
    with pytest.raises(SpecError, match=rf"observes entries named \['{name}'\], which are reserved keys"):
        GymWrapper(Echo(spaces.Dict({name: spaces.Box(0, 1), "x": spaces.Box(0, 1)})))


def test_a_wrong_shape_is_an_error_at_the_first_step():
    class Liar(Echo):
        def step(self, action):
            return np.zeros(3, np.float32), 0.0, False, False, {}

    env = GymWrapper(Liar(spaces.Box(0, 1, (2,))))
    with pytest.raises(SpecError, match=r"'observation' must have shape \(2,\).*returned \(3,\)"):
        env.rollout(2)


def test_a_value_outside_its_space_has_no_place_in_a_one_hot_row():
    class Liar(Echo):
        def step(self, action):
            self.actions.append(action)
            return (7 if len(self.actions) > 1 else 2), 0.0, False, False, {}

    with pytest.raises(SpecError, match=r"returned 7, which is not in its Discrete\(3\)"):
        GymWrapper(Liar(spaces.Discrete(3))).rollout(2)


@pytest.mark.parametrize("path", ["arrays", "tensordicts"])
def test_values_may_be_tensors(path):
    class Torch(Echo):
        def reset(self, *, seed=None, options=None):
            return torch.zeros(2), {}

        def step(self, action):
            return torch.ones(2), torch.tensor(2.0), torch.tensor(True), torch.tensor(False), {}

    class Slow(GymWrapper):
        def read_obs(self, observations):
            return super().read_obs(observations)

    data = (GymWrapper if path == "arrays" else Slow)(Torch(spaces.Box(0, 1, (2,)))).rollout(2)
    assert data["next", "reward"].tolist() == [[2]]
    assert data["next", "observation"].tolist() == [[1, 1]]
    assert data["next", "terminated"].tolist() == [[True]]


def test_a_missing_reward_is_an_error_at_the_first_step():
    class Liar(Echo):
        def step(self, action):
            return self._show(), None, False, False, {}

    with pytest.raises(SpecError, match="'reward' must have shape"):
        GymWrapper(Liar(spaces.Box(0, 1, (2,)))).rollout(2)


def test_a_wrong_reward_is_an_error_at_the_first_step():
    class Liar(Echo):
        def step(self, action):
            return self._show(), np.zeros(2), False, False, {}

    with pytest.raises(SpecError, match=r"'reward' must have shape \(1,\)"):
        GymWrapper(Liar(spaces.Box(0, 1, (2,)))).rollout(2)


@pytest.mark.parametrize("categorical", [False, True])
@pytest.mark.parametrize("name", OBSERVATIONS)
def test_batched_observations_of_every_space_arrive(name, categorical):
    raws = [Echo(OBSERVATIONS[name]) for _ in range(2)]
    vector = gymnasium.vector.SyncVectorEnv([lambda raw=raw: raw for raw in raws])
    env = GymWrapper(vector, categorical_action_encoding=categorical)
    data = env.rollout(4)

    rooted = isinstance(raws[0].observation_space, spaces.Dict)
    for row, raw in enumerate(raws):
        for t, shown in enumerate(raw.shown[1:5]):
            for key, space, expected in leaves(raw.observation_space, shown):
                key = key if rooted else ("observation", *key)
                found = data["next"][row, t][key].numpy()
                spec = env.full_observation_spec[key][row]
                np.testing.assert_array_equal(decoded(spec, found, space), np.asarray(expected))


@pytest.mark.parametrize("categorical", [False, True])
@pytest.mark.parametrize("name", ACTIONS)
def test_batched_actions_of_every_space_are_its_own(name, categorical):
    raws = [Echo(spaces.Box(0, 1), ACTIONS[name]) for _ in range(2)]
    vector = gymnasium.vector.SyncVectorEnv([lambda raw=raw: raw for raw in raws])
    GymWrapper(vector, categorical_action_encoding=categorical).rollout(5)

    assert [len(raw.actions) for raw in raws] == [5, 5]  # each was checked by its environment
    assert str(raws[0].actions) != str(raws[1].actions)


def test_conversions_are_registered_through_steppe_too():
    import steppe
    import steppe_gym

    assert steppe.register_gym_spec_conversion is steppe_gym.register_gym_spec_conversion
