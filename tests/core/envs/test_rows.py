"""Rows that step_into writes."""

from __future__ import annotations

import numpy as np
import pytest

from steppe import SerialEnv, check_env_specs
from steppe.envs import ArrayEnv
from steppe.errors import SpecError
from steppe.specs import Composite, OneHot, Unbounded


class Grid(ArrayEnv):
    """Observes ``grid`` of three values, which ``write(out, where)`` writes."""

    def __init__(self, write=None, reward=lambda out: out["reward"].fill(1.0), flags=(False, False)):
        super().__init__()
        self.observation_spec = Composite(grid=Unbounded((3,)))
        self.action_spec = OneHot(2)
        self.reward_spec = Unbounded((1,))
        self.write, self.reward, self.flags = write or (lambda out, where: out["grid"].fill(1)), reward, flags

    def reset_into(self, out, seed, env_info):
        self.write(out, "reset")

    def step_into(self, action, out):
        self.write(out, "step")
        self.reward(out)
        return self.flags


def put(out, where):
    out["grid"] = np.ones(3)


def updated(out, where):
    out.update(grid=np.ones(3))


@pytest.mark.parametrize("write", [put, updated])
def test_replacing_a_row_by_another_array_is_an_error(write):
    expected = r"out\['grid'\] = value replaces the row by another array.*Write into the row: out\['grid'\]\["
    for use in (check_env_specs, lambda env: env.reset(), lambda env: env.rollout(2)):
        with pytest.raises(SpecError, match=expected):
            use(Grid(write=write))
    with pytest.raises(SpecError, match=expected):
        SerialEnv(2, lambda: Grid(write=write)).reset()


def test_a_row_that_is_added_to_may_be_put_back():
    def write(out, where):
        out["grid"][...] = 1
        out["grid"] += 1

    env = Grid(write=write)
    check_env_specs(env)
    assert env.reset()["grid"].tolist() == [2, 2, 2]


def test_an_unknown_key_is_an_error_with_the_existing_keys():
    def misspelt(out, where):
        out["gird"][...] = 1

    def rewarded(out, where):
        out["reward"][0] = 1

    def ended(out, where):
        out["terminated"][0] = True

    for write, text in (
        (misspelt, "Did you mean 'grid'"),
        (rewarded, "A reset has no reward"),
        (ended, "is returned: return terminated, truncated"),
    ):
        for use in (check_env_specs, lambda env: env.reset()):
            with pytest.raises(SpecError, match=rf"out has \['grid'\].*{text}"):
                use(Grid(write=write))
