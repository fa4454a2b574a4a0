"""TensorDictRecorder: which data it keeps, and the file that it writes."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe import SerialEnv, TransformedEnv
from steppe.errors import FileExists, SpecError
from steppe.specs import Unbounded
from steppe.transforms import Compose, StepCounter, TensorDictRecorder
from steppe_testing import ArrayDataEnv, DataEnv, TextCountingEnv

pytestmark = pytest.mark.matrix


def make(base: type = ArrayDataEnv):
    return base({"observation": Unbounded((3,))}, max_steps=3)


@pytest.mark.parametrize("base", [ArrayDataEnv, DataEnv])
def test_the_file_holds_what_came_of_each_step(tmp_path, base):
    env = TransformedEnv(make(base), TensorDictRecorder(tmp_path / "deep" / "run", skip=1))
    data = env.rollout(5, break_when_any_done=False)
    env.transform.dump()

    read = torch.load(tmp_path / "deep/run_tensordict.t", weights_only=False)
    assert read.batch_size == (5,)
    for key in ("observation", "reward", "done"):
        assert torch.equal(read[key], data["next", key])
    assert (env.transform.td, env.transform.count, env.transform.iter) == ([], 0, 1)


def test_resets_are_recorded_on_request_with_zero_reward(tmp_path):
    env = TransformedEnv(make(), TensorDictRecorder(tmp_path / "run", skip_reset=False, skip=1))
    data = env.rollout(4, break_when_any_done=False)
    env.transform.dump()

    read = torch.load(tmp_path / "run_tensordict.t", weights_only=False)
    following = data["next", "observation"]
    expected = [data["observation"][0], *following[:3], data["observation"][3], following[3]]
    assert torch.equal(read["observation"], torch.stack(expected))
    assert read["reward"][[0, 4]].tolist() == [[0.0], [0.0]]


def test_interval_and_keys_select_recorded_steps(tmp_path):
    env = TransformedEnv(make(), TensorDictRecorder(tmp_path / "run", skip=2, in_keys=["observation"]))
    data = env.rollout(3)
    env.transform.dump(suffix="eval")

    read = torch.load(tmp_path / "run_eval_tensordict.t", weights_only=False)
    assert set(read.keys()) == {"observation"}
    assert torch.equal(read["observation"], data["next", "observation"][[0, 2]])  # the reset counts


def test_where_some_rows_are_reset_the_others_keep_their_data(tmp_path):
    lengths = iter((2, 5))
    batch = SerialEnv(2, lambda: ArrayDataEnv({"observation": Unbounded((3,))}, max_steps=next(lengths)))
    env = TransformedEnv(batch, TensorDictRecorder(tmp_path / "run", skip_reset=False, skip=1))
    data = env.rollout(3, break_when_any_done=False)
    env.transform.dump()

    read = torch.load(tmp_path / "run_tensordict.t", weights_only=False)
    assert read.batch_size == (5, 2)
    ended = int(data["next", "done"][:, 1, 0].nonzero()[0])
    assert torch.equal(read["observation"][3, ended], data["observation"][ended, 2])
    assert torch.equal(read["observation"][3, 1 - ended], data["next", "observation"][1 - ended, 1])


def test_a_file_is_replaced_only_on_request(tmp_path):
    env = TransformedEnv(make(), TensorDictRecorder(tmp_path / "run", skip=1))
    for _ in range(2):
        env.rollout(2)
        if env.transform.iter:
            with pytest.raises(FileExists, match=r"run_tensordict\.t' exists"):
                env.transform.dump()
            env.transform.overwrite = True
        env.transform.dump()
    assert [path.name for path in tmp_path.iterdir()] == ["run_tensordict.t"]


def test_a_compose_dumps_all_of_its_transforms(tmp_path):
    parts = Compose(TensorDictRecorder(tmp_path / "run", skip=1), StepCounter())
    TransformedEnv(make(), parts).rollout(1)
    parts.dump(suffix="a", step=3)
    assert (tmp_path / "run_a_tensordict.t").exists()


def test_a_misspelt_argument_of_dump_is_an_error(tmp_path):
    parts = Compose(TensorDictRecorder(tmp_path / "run", skip=1), StepCounter())
    TransformedEnv(make(), parts).rollout(1)
    with pytest.raises(TypeError, match="sufix"):
        parts.dump(sufix="a")
    assert not list(tmp_path.iterdir())
    assert len(parts[0].td) == 1


def test_text_of_environments_that_are_not_reset_is_kept(tmp_path):
    batch = SerialEnv(2, [lambda: TextCountingEnv(2), lambda: TextCountingEnv(3)])
    env = TransformedEnv(batch, TensorDictRecorder(tmp_path / "run", skip=1, skip_reset=False))
    env.rollout(3, break_when_any_done=False)
    env.transform.dump()
    read = torch.load(tmp_path / "run_tensordict.t", weights_only=False)
    assert read["text"] == [["0", "0"], ["1", "1"], ["2", "2"], ["0", "2"], ["1", "3"]]


def test_missing_text_is_recorded_as_none(tmp_path):
    recorder = TensorDictRecorder(tmp_path / "run", skip=1)
    recorder(TensorDict(number=torch.ones(2)))
    recorder(TensorDict(text="said", number=torch.ones(2)))
    recorder.dump()
    read = torch.load(tmp_path / "run_tensordict.t", weights_only=False)
    assert read["text"] == [None, "said"]


def test_skip_is_positive():
    with pytest.raises(SpecError, match="positive integer as skip, found 0"):
        TensorDictRecorder("run", skip=0)
