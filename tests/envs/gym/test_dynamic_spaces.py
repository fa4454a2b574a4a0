"""Spaces whose values are text, or vary in size: Text and Sequence, as observations and as actions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack

gymnasium = pytest.importorskip("gymnasium", minversion="1.0")

from gymnasium import spaces  # noqa: E402

from steppe.batched import SerialEnv  # noqa: E402
from steppe.envs import check_env_specs  # noqa: E402
from steppe.errors import NotSupported  # noqa: E402
from steppe.specs import NonTensor  # noqa: E402
from steppe_gym import GymWrapper, space_to_spec  # noqa: E402
from tests.envs.gym.echo import Echo  # noqa: E402

BOX = spaces.Box(0, 1, (2,))


@pytest.mark.parametrize("categorical", [False, True])
def test_a_sequence_varies_in_length(categorical):
    raw = Echo(spaces.Sequence(spaces.Dict({"a": BOX, "n": spaces.Discrete(3)})))
    env = GymWrapper(raw, categorical_action_encoding=categorical)
    assert env.row_writer is None
    data = env.rollout(4)

    for t, shown in enumerate(raw.shown[1:5]):
        found = data["next"][t]["observation"]
        assert found["a"].tolist() == [element["a"].tolist() for element in shown]
        numbers = found["n"] if categorical else found["n"].argmax(-1)
        assert numbers.tolist() == [int(element["n"]) for element in shown]


def test_a_sequence_that_the_library_stacks():
    raw = Echo(spaces.Sequence(BOX, stack=True))
    data = GymWrapper(raw).rollout(4, return_contiguous=False)

    for t, shown in enumerate(raw.shown[1:5]):
        np.testing.assert_array_equal(data["next"][t]["observation"].numpy(), shown)


def test_specs_hold_for_a_sequence():
    check_env_specs(GymWrapper(Echo(spaces.Dict({"many": spaces.Sequence(BOX), "x": BOX}))), return_contiguous=False)


def test_a_sequence_of_sequences_is_refused():
    with pytest.raises(NotSupported, match="more than one size varies"):
        GymWrapper(Echo(spaces.Sequence(spaces.Sequence(BOX))))


def test_text_is_kept_unchanged():
    raw = Echo(spaces.Dict({"say": spaces.Text(5), "x": BOX}))
    env = GymWrapper(raw)

    assert env.row_writer is None
    assert env.reset()["say"] == raw.shown[-1]["say"]
    check_env_specs(env)


def test_a_sequence_of_text_is_kept_unchanged():
    raw = Echo(spaces.Sequence(spaces.Text(5)))
    data = GymWrapper(raw).rollout(3)

    assert list(data["next", "observation"]) == raw.shown[1:4]


def test_text_in_batches():
    makers = [lambda: Echo(spaces.Dict({"say": spaces.Text(5)})) for _ in range(2)]
    vector = gymnasium.vector.SyncVectorEnv(makers)
    for env, raws in (
        (GymWrapper(vector), vector.envs),
        (serial := SerialEnv(2, [lambda one=one: GymWrapper(one()) for one in makers]), None),
    ):
        found = list(env.reset()["say"])
        if raws is not None:
            assert found == [raw.shown[-1]["say"] for raw in raws]
        assert all(isinstance(text, str) and text for text in found)
    serial.close()


ACTIONS = {
    "text": (spaces.Text(5), "abc", "abc"),
    "sequence": (spaces.Sequence(BOX), [[0.0, 1.0], [1.0, 0.5], [0.0, 0.0]], ([0, 1], [1, 0.5], [0, 0])),
    "stacked": (spaces.Sequence(BOX, stack=True), [[0.0, 1.0], [1.0, 0.5]], [[0, 1], [1, 0.5]]),
    "numbers": (spaces.Sequence(spaces.Discrete(3, start=2)), [[0, 0, 1], [1, 0, 0]], (4, 2)),
    "none": (spaces.Sequence(BOX), np.zeros((0, 2)).tolist(), ()),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_given_actions_reach_the_library_as_its_space_says(name):
    space, given, expected = ACTIONS[name]
    raw = Echo(BOX, space)
    env = GymWrapper(raw)
    root = env.reset()
    if isinstance(given, str):
        root["action"] = given
    else:
        leaf = env.full_action_spec["action"]
        root["action"] = torch.tensor(given, dtype=leaf.dtype).reshape(-1, *leaf.shape[1:])
    env.step(root)

    assert type(raw.actions[0]) is type(expected if name != "stacked" else np.zeros(1))
    assert len(raw.actions[0]) == len(expected)
    assert str([np.asarray(part).tolist() for part in raw.actions[0]]) == str(
        [
            np.asarray(part, np.asarray(found).dtype).tolist()
            for part, found in zip(expected, raw.actions[0], strict=True)
        ]
    )


def test_actions_with_text_and_elements_inside_a_dict():
    space = spaces.Dict(
        {"say": spaces.Text(5), "many": spaces.Sequence(spaces.Dict({"n": spaces.Discrete(3), "b": BOX}))}
    )
    raw = Echo(BOX, space)
    env = GymWrapper(raw, categorical_action_encoding=True)
    root = env.reset()
    root["say"] = NonTensorData("abc")
    root["many", "n"] = torch.tensor([2, 0])
    root["many", "b"] = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    env.step(root)

    say, many = raw.actions[0]["say"], raw.actions[0]["many"]
    assert say == "abc"
    assert [(element["n"], element["b"].tolist()) for element in many] == [(2, [0, 1]), (0, [1, 0])]


def test_random_actions_of_text_are_of_their_space():
    raw = Echo(BOX, spaces.Text(min_length=3, max_length=5))
    GymWrapper(raw).rollout(3)

    assert len(raw.actions) == 3  # each was checked by the environment


def test_text_actions_of_a_vector_environment():
    vector = gymnasium.vector.SyncVectorEnv([lambda: Echo(BOX, spaces.Text(5)) for _ in range(2)])
    env = GymWrapper(vector)
    root = env.reset()
    root["action"] = NonTensorStack(NonTensorData("ab"), NonTensorData("c"))
    env.step(root)

    assert [raw.actions for raw in vector.envs] == [["ab"], ["c"]]


def test_text_and_sequences_have_specs_inside_containers():
    spec = space_to_spec(spaces.Dict({"say": spaces.Text(5), "many": spaces.Sequence(BOX)}))

    assert isinstance(spec["say"], NonTensor)
    assert spec["many"].shape == (-1, 2)
