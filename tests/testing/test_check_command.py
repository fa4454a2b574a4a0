from __future__ import annotations

import pytest

from steppe.cli import main

pytest.importorskip("torch")
pytest.importorskip("gymnasium")


@pytest.fixture
def steppe(steppe_with_commands):
    return steppe_with_commands


def test_a_good_environment_passes_every_check(capsys):
    assert main(["check", "gym:CartPole-v1"]) == 0
    assert capsys.readouterr().out == (
        "ok      reset and step fit the specs\n"
        "ok      the same seed gives the same data\n"
        "ok      rollouts go on over episode ends\n"
        "ok      steps write rows of arrays, the fast path\n"
        "ok      SerialEnv(2) and ParallelEnv(2) give equal data\n"
    )


RESTLESS = """
import torch
from steppe import EnvBase, hookimpl
from steppe.specs import Bounded, Composite
from tensordict import TensorDict

COUNT = [0]


class Restless(EnvBase):
    def __init__(self):
        super().__init__()
        self.observation_spec = Composite(observation=Bounded(-1.0, 1e6, (1,)))
        self.action_spec = Bounded(-1.0, 1.0, (1,))
        self.reward_spec = Bounded(-1.0, 1.0, (1,))

    def _set_seed(self, seed):
        pass

    def _reset(self, td=None):
        return self._data()

    def _step(self, td):
        return self._data().update({"reward": torch.zeros(1)})

    def _data(self):
        COUNT[0] += 1
        return TensorDict({"observation": torch.full((1,), float(COUNT[0])), "done": torch.zeros(1, dtype=torch.bool)})


@hookimpl
def steppe_make_env(name):
    return Restless()
"""


def test_a_failed_check_is_named_and_the_others_run(steppe, fake_dist):
    fake_dist("restless", envs={"restless": "restless"}, files={"restless.py": RESTLESS})
    status, out, _ = steppe("check", "restless:a", "--num-envs", "1")
    lines = out.splitlines()
    assert status == 1
    assert lines[0] == "ok      reset and step fit the specs"
    assert lines[1].startswith("FAILED  the same seed gives the same data: ValueError: ")
    assert "'observation' differs between first run and second run, first at step 0 (of 0 to 63): random" in lines[1]
    assert lines[2] == "ok      rollouts go on over episode ends"
    assert lines[3].startswith("slower  steps make TensorDicts, without the fast path: ")


OVERRIDDEN = """
from steppe import hookimpl
from steppe_testing import ArrayCountingEnv


class Own(ArrayCountingEnv):
    def _step(self, td):
        return super()._step(td)


@hookimpl
def steppe_make_env(name):
    return Own()
"""


def test_check_names_what_keeps_an_env_off_the_fast_path(steppe, fake_dist):
    """An overridden method that makes steps slower is reported and is no failure."""
    fake_dist("own", envs={"own": "own"}, files={"own.py": OVERRIDDEN})
    status, out, _ = steppe("check", "own:a", "--num-envs", "1")
    assert status == 0, out
    assert "slower  steps make TensorDicts, without the fast path: _step is overridden.\n" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nobody:a"], "steppe check: No plugin provides 'nobody:'"),
        (
            ["gym:CartPole-v1", "--num-envs", "0"],
            "steppe check: argument --num-envs: expected a positive integer, got '0'",
        ),
        (["gym:CartPole-v1", "--device", "moon"], "steppe check: --device 'moon' cannot be used: "),
        (["gym:CartPool-v1"], "steppe check: Plugin 'gym' (steppe-gym"),
    ],
)
def test_wrong_input_is_one_line(capsys, arguments, text):
    assert main(["check", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(text)


# Fields are taken one after the other, and no field twice. The first is taken by chance.
FIELDS = """
import os

import torch
from steppe import EnvBase, hookimpl
from steppe.specs import Binary, Categorical, Composite, Unbounded
from tensordict import TensorDict


class Fields(EnvBase):
    def __init__(self, steps_alike=100):
        super().__init__()
        self.steps_alike = steps_alike
        self.observation_spec = Composite(free=Binary(shape=(6,), dtype=torch.bool), place=Unbounded((1,)))
        self.action_spec = Categorical(6)
        self.reward_spec = Unbounded((1,))
        self.generator = torch.Generator()
        self.steps = 0

    def rand_action(self, td=None):
        return td.set("action", torch.multinomial(td["free"].float(), 1).squeeze(-1))

    def _set_seed(self, seed):
        self.generator.manual_seed(seed)

    def _reset(self, td=None):
        self.free = torch.ones(6, dtype=torch.bool)
        self.free[torch.randint(6, (1,), generator=self.generator)] = False
        self.steps = 0
        return self._data()

    def _step(self, td):
        if not self.free[td["action"]]:
            raise ValueError("this field is taken")
        self.free[td["action"]] = False
        self.steps += 1
        return self._data().update({"reward": torch.zeros(1)})

    def _data(self):
        place = float(os.getpid() if self.steps > self.steps_alike else 0)
        done = ~self.free.any(-1, keepdim=True)
        return TensorDict({"free": self.free.clone(), "place": torch.full((1,), place), "done": done})


@hookimpl
def steppe_make_env(name):
    return Fields(int(name))
"""


def test_random_actions_keep_to_the_masks_of_each_state(steppe, fake_dist):
    fake_dist("fields", envs={"fields": "fields"}, files={"fields.py": FIELDS})
    status, out, _ = steppe("check", "fields:100", "--num-envs", "3")
    assert status == 0, out


def test_the_first_step_and_entry_that_differ_are_named(steppe, fake_dist):
    fake_dist("fields", envs={"fields": "fields"}, files={"fields.py": FIELDS})
    status, out, _ = steppe("check", "fields:2")
    assert status == 1
    text = "ValueError: ('next', 'place') differs between SerialEnv and ParallelEnv, first at step 2 (of 0 to 63)"
    assert out.splitlines()[-1].endswith(text)
