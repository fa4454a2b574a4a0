"""Pickling of objects from a script for workers."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path

import pytest

from steppe.workers.pickling import named_modules, pickled
from tests.forked import python
from tests.limits import CHILD

pytestmark = pytest.mark.programs

SCRIPT = """
import torch
from tensordict import tensorclass
from steppe import Composite, NonTensor, ParallelEnv, Unbounded
from steppe_testing import CountingEnv


@tensorclass
class Place:
    x: torch.Tensor


class Note:
    def __init__(self, number):
        self.number = number


class Noting(CountingEnv):
    def __init__(self):
        super().__init__(3)
        self.observation_spec["place"] = Composite(x=Unbounded((1,)), data_cls=Place)
        self.observation_spec["note"] = NonTensor(())
        self.state_spec = Composite(note=NonTensor(()))

    def _noted(self, data, number):
        data["place"] = Place(x=torch.full((1,), float(number)), batch_size=[])
        return data.set_non_tensor("note", Note(number))

    def _reset(self, tensordict=None, **kwargs):
        return self._noted(super()._reset(tensordict, **kwargs), 0)

    def _step(self, tensordict):
        assert isinstance(tensordict["note"], Note), type(tensordict["note"])
        return self._noted(super()._step(tensordict), tensordict["note"].number + 1)


env = ParallelEnv(2, Noting)
assert env.observation_spec["place"].data_cls is Place
data = env.rollout(3)
notes = [note for row in data["next", "note"].tolist() if isinstance(row, list) for note in row]
assert [type(note) for note in notes] == [Note] * 6, notes
print([note.number for note in notes], data["next", "place"].x.flatten().tolist())
env.close()
"""


def test_classes_of_a_script_travel_to_workers_and_back(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([*python(), str(path)], capture_output=True, text=True, timeout=CHILD)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[1, 2, 3, 1, 2, 3] [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]"


def test_a_function_sent_by_value_does_not_need_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module is named only if the function refers to other names of it."""
    code = "def make():\n    return 1\nown = lambda: make()\nother = lambda: len('')\n"
    (tmp_path / "of_lambdas.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("of_lambdas")

    assert "of_lambdas" in named_modules(pickled(module.own))
    assert "of_lambdas" in named_modules(pickled(pickled(module.make)))
    assert "of_lambdas" not in named_modules(pickled(module.other))
