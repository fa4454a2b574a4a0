"""Each environment in the list of PettingZoo fits its specs; those with parallel steps return the library's data."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("pettingzoo")

from steppe import check_env_specs, make_env
from steppe.registry import list_envs
from tests.envs.pettingzoo.test_against_library import as_data, assert_equal_to_library, played, raw_parallel

pytestmark = [
    pytest.mark.library,
    pytest.mark.exhaustive,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore"),
]

NAMES = list_envs("pettingzoo")

#: Families whose environments have a parallel interface; those of the others take turns.
PARALLEL = ("atari/", "butterfly/", "mpe2/", "sisl/")


def made(name, **kwargs):
    """The environment; the test is skipped if a game's ROM or a further library is missing."""
    try:
        return make_env(f"pettingzoo:{name}", **kwargs)
    except (ImportError, OSError) as error:
        pytest.skip(f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("name", NAMES)
def test_turns_fit_the_specs_over_ends_of_episodes(name):
    env = made(name, parallel=False)
    env.set_seed(2)
    check_env_specs(env)

    data = env.rollout(60, break_when_any_done=False)

    assert data.batch_size == (60,)
    for group in env.group_map:
        if "action_mask" in env.observation_spec[group]:
            on_turn, action = data[group, "mask"], data[group, "action"]
            assert on_turn.any()
            assert data[group, "action_mask"].gather(-1, action.unsqueeze(-1)).squeeze(-1)[on_turn].all()


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(PARALLEL)])
def test_parallel_steps_return_the_data_of_the_library(name):
    env = made(name)
    ale = find_spec("ale_py") if name.startswith("atari/") else None
    roms = {} if ale is None else {"auto_rom_install_path": str(Path(ale.origin).parent / "roms")}
    rows = played(raw_parallel(name, **roms), 40, 5)
    env.set_seed(5)

    data = env.rollout(40, actions=as_data(env, rows), break_when_any_done=False)

    assert_equal_to_library(env, data, rows)
