"""Specs become spaces, and the spaces that specs were made of come back."""

from __future__ import annotations

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", minversion="1.0")

from gymnasium import spaces  # noqa: E402

from steppe.specs import NonTensor, OneHot  # noqa: E402
from steppe_gym import space_to_spec, spec_to_space  # noqa: E402


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (3,)),
        spaces.Box(-np.inf, np.inf, (2,), np.float64),
        spaces.Box(0, 255, (4, 4, 3), np.uint8),
        spaces.Discrete(4),
        spaces.MultiDiscrete([3, 2]),
        spaces.MultiDiscrete([3, 3]),
        spaces.MultiBinary(3),
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Dict({"c": spaces.Box(0, 1)})}),
        spaces.Sequence(spaces.Box(0, 1, (2,)), stack=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("categorical", [False, True])
def test_specs_convert_back_to_their_spaces(space, categorical):
    assert spec_to_space(space_to_spec(space, categorical_action_encoding=categorical)) == space


def test_text_converts_back_to_text():
    assert spec_to_space(NonTensor(shape=(), example_data="")).contains("any words, with stops.")


def test_the_other_library_s_spaces():
    pytest.importorskip("gym")
    import gym

    assert isinstance(spec_to_space(OneHot(3), backend="gym"), gym.spaces.Discrete)
    assert isinstance(space_to_spec(gym.spaces.Discrete(3)), OneHot)
