"""The shortest way through steppe-brax: part of every run of the session, while the rest takes longer."""

from __future__ import annotations

import pytest

pytest.importorskip("brax")

from steppe import check_env_specs, make_env
from steppe.errors import EnvNotFound, IgnoredArgumentWarning, NotSupported
from steppe_brax import BraxEnv, BraxWrapper

pytestmark = [pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("kwargs", [{}, {"batch_size": 2}], ids=["function of the data", "batch"])
def test_environments_are_made_by_their_names(kwargs):
    env = make_env("brax:fast", episode_length=4, **kwargs)

    check_env_specs(env, seed=0)
    data = env.rollout(9, break_when_any_done=False)
    assert data["next", "truncated"][..., 0].reshape(-1, 9)[0].nonzero().flatten().tolist() == [3, 7]
    assert not data["next", "terminated"].any()


def test_a_wrong_name_is_answered_with_a_close_one():
    with pytest.raises(EnvNotFound, match="halfcheetah"):
        make_env("brax:half_cheetah")


def test_pixels_are_refused():
    with pytest.raises(NotSupported, match=r"render_mode=.rgb_array."):
        BraxEnv("fast", from_pixels=True)


def test_arguments_of_torchrl_are_not_passed_on_to_brax():
    # "fast" takes any keyword, and would ignore these.
    with pytest.raises(NotSupported, match=r"BraxEnv does not repeat actions: .*FrameSkipTransform\(3\)"):
        BraxEnv("fast", frame_skip=3)
    with pytest.warns(IgnoredArgumentWarning, match="actions of Brax are continuous"):
        BraxEnv("fast", categorical_action_encoding=True, pixels_only=False)


def test_a_batched_brax_environment_is_refused():
    from brax import envs

    with pytest.raises(NotSupported, match="batch_size=n"):
        BraxWrapper(envs.create("fast", batch_size=2, auto_reset=False))


def test_names_are_listed():
    assert {"ant", "fast", "humanoid"} <= set(BraxEnv.available_envs)


def test_attributes_come_from_brax():
    env = BraxEnv("fast", batch_size=2)

    assert env.action_size == 1
    assert env.libname == "brax"
    env.close()
    env.close()


def test_help_names_all_arguments():
    import inspect

    named = set(inspect.signature(BraxEnv).parameters)

    assert {"episode_length", "batch_size", "device", "requires_grad", "state_in_data", "jit"} <= named
