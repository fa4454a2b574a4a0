from __future__ import annotations

import pytest

from steppe.cli import main

pytest.importorskip("torch")
pytest.importorskip("gymnasium")


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


def test_what_fails_is_named_and_the_rest_goes_on(steppe, fake_dist):
    fake_dist("restless", envs={"restless": "restless"}, files={"restless.py": RESTLESS})
    status, out, _ = steppe("check", "restless:a", "--workers", "1")
    lines = out.splitlines()
    assert status == 1
    assert lines[0] == "ok      reset and step fit the specs"
    assert lines[1].startswith("FAILED  the same seed gives the same data: ValueError: ")
    assert "differs between first run and second run: random numbers come from elsewhere than" in lines[1]
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


def test_what_keeps_an_environment_off_the_fast_path_is_named_and_is_no_failure(steppe, fake_dist):
    fake_dist("own", envs={"own": "own"}, files={"own.py": OVERRIDDEN})
    status, out, _ = steppe("check", "own:a", "--workers", "1")
    assert status == 0, out
    assert "slower  steps make TensorDicts, without the fast path: _step is overridden.\n" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nobody:a"], "steppe check: No plugin provides 'nobody:'"),
        (["gym:CartPole-v1", "--workers", "0"], "steppe check: --workers takes a positive integer, got 0"),
        (["gym:CartPole-v1", "--device", "moon"], "steppe check: --device 'moon' cannot be used: "),
        (["gym:CartPool-v1"], "steppe check: Plugin 'gym' (steppe-gym"),
    ],
)
def test_wrong_input_is_one_line(capsys, arguments, text):
    assert main(["check", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(text)
