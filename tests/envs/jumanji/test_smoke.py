"""The shortest way through steppe-jumanji: part of every run of the session, while the rest takes longer."""

from __future__ import annotations

import pytest
from tensordict import TensorDict

pytest.importorskip("jumanji")

from steppe import check_env_specs, make_env
from steppe.errors import EnvNotFound, NotSupported
from steppe_jumanji import JumanjiEnv, JumanjiWrapper

pytestmark = [pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


def test_environments_are_made_by_their_names():
    env = make_env("jumanji:Snake-v1", num_rows=4, num_cols=4)

    check_env_specs(env, seed=0)
    assert env.reset(TensorDict({}, [2]))["grid"].shape == (2, 4, 4, 5)


def test_a_wrong_name_is_answered_with_a_close_one():
    with pytest.raises(EnvNotFound, match="Snake-v1"):
        make_env("jumanji:Snake-v0")


def test_a_batched_jumanji_environment_is_refused():
    import jumanji
    from jumanji.wrappers import VmapWrapper

    with pytest.raises(NotSupported, match="batch_size=n"):
        JumanjiWrapper(VmapWrapper(jumanji.make("Snake-v1")))


def test_names_are_listed():
    assert {"Snake-v1", "Game2048-v1", "Cleaner-v0"} <= set(JumanjiEnv.available_envs)


def test_arguments_of_torchrl_are_refused_by_name():
    with pytest.raises(NotSupported, match="JumanjiEnv: from_pixels is not supported"):
        JumanjiEnv("Snake-v1", from_pixels=True)
    with pytest.raises(NotSupported, match=r"JumanjiEnv does not repeat actions: .*FrameSkipTransform\(2\)"):
        JumanjiEnv("Snake-v1", frame_skip=2)
