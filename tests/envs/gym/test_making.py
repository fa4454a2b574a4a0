"""Making environments of gymnasium: errors about arguments."""

from __future__ import annotations

import pytest

from steppe import make_env


@pytest.mark.parametrize(
    ("wrong", "right"), [("categorical_actions", "categorical_action_encoding"), ("frameskip_", "frame_skip")]
)
def test_a_misspelt_argument_suggests_one_of_the_wrapper(wrong, right):
    with pytest.raises(TypeError, match=f"{wrong}.*Did you mean '{right}', an argument of GymEnv"):
        make_env("gym:MountainCar-v0", **{wrong: 2})
