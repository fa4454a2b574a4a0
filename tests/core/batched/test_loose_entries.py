"""Text and entries of varying size in batches: the data of every class equals that of single environments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import NonTensorData, TensorDict, TensorDictBase

from steppe import AsyncEnvPool, ParallelEnv, SerialEnv
from steppe.envs import ArrayEnv, EnvBase
from steppe.errors import NotSupported, WorkerError
from steppe.specs import Binary, Categorical, Composite, NonTensor, Unbounded

LENGTH = 3  # steps of an episode


class Teller(EnvBase):
    """An environment on TensorDicts. Its mission changes with each episode, and its news in some of the steps."""

    def __init__(self, start: int = 0, *, fails: bool = False) -> None:
        super().__init__()
        self.observation_spec = Composite(
            observation=Unbounded(shape=(1,)), mission=NonTensor(example_data=""), news=NonTensor(example_data="")
        )
        self.action_spec = Composite(action=Categorical(4))
        self.reward_spec = Composite(reward=Unbounded(shape=(1,)))
        self.done_spec = Composite(done=Binary(shape=(1,), dtype=torch.bool))
        self.episode, self.t, self.fails = start, 0, fails

    def _data(self, length: int) -> TensorDict:
        news = f"step {self.t}" if self.t % 2 else "none"
        texts = {"mission": f"mission {self.episode}", "news": news}
        return TensorDict({"observation": torch.full((1,), float(length)), **texts}, [])

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        self.episode, self.t = self.episode + 1, 0
        return self._data(0).update({"done": torch.zeros(1, dtype=torch.bool)})

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self.fails and self.t:
            raise RuntimeError("nothing to tell")
        self.t += 1
        data = self._data(len(tensordict["mission"]) + int(tensordict["action"]))
        return data.update({"reward": torch.ones(1), "done": torch.tensor([self.t >= LENGTH])})

    def _set_seed(self, seed: int | None) -> None:
        self.episode = 100 * (seed or 0)


class Growing(ArrayEnv):
    """An array environment with a trace that grows by a number in each step, and a mission."""

    writes_loose_entries = True

    def __init__(self, start: int = 0) -> None:
        super().__init__()
        self.observation_spec = Composite(
            observation=Unbounded(shape=(1,)), trace=Unbounded(shape=(-1,)), mission=NonTensor(example_data="")
        )
        self.action_spec = Composite(action=Categorical(4))
        self.reward_spec = Composite(reward=Unbounded(shape=(1,)))
        self.done_spec = Composite(
            done=Binary(shape=(1,), dtype=torch.bool), terminated=Binary(shape=(1,), dtype=torch.bool)
        )
        self.start = self.episode = start
        self.trace: list[float] = []

    def _write(self, out: Any) -> None:
        out["observation"][0] = len(self.trace)
        out["trace"][...] = torch.tensor(self.trace)
        out["mission"][...] = f"mission {self.episode}"

    def reset_into(self, out: Any, seed: int | None, env_info: Any) -> None:
        self.episode += 1
        self.trace = [float(self.episode)]
        self._write(out)

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        self.trace.append(float(action))
        self._write(out)
        out["reward"][0] = 1.0
        return len(self.trace) > LENGTH + self.start, False


class GrowingOnTensorDicts(Growing):
    """The same on TensorDicts."""

    def _data(self) -> TensorDict:
        return TensorDict(
            {
                "observation": torch.tensor([float(len(self.trace))]),
                "trace": torch.tensor(self.trace),
                "mission": f"mission {self.episode}",
            },
            [],
        )

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        self.episode += 1
        self.trace = [float(self.episode)]
        return self._data()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        self.trace.append(float(tensordict["action"]))
        ended = torch.tensor([len(self.trace) > LENGTH + self.start])
        return self._data().update({"reward": torch.ones(1), "done": ended, "terminated": ended.clone()})


class TakesText(Teller):
    """Its action is a word."""

    def __init__(self, start: int = 0) -> None:
        super().__init__(start)
        self.action_spec = Composite(action=NonTensor(example_data="a"))

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        self.t += 1
        data = self._data(len(tensordict["mission"]) + len(tensordict["action"]))
        return data.update({"reward": torch.ones(1), "done": torch.tensor([self.t >= LENGTH])})


def _makers(cls: Any, n: int = 3) -> list[Any]:
    return [lambda start=start: cls(start) for start in range(n)]


BATCHES = {
    "serial": lambda cls: SerialEnv(3, _makers(cls)),
    "parallel": lambda cls: ParallelEnv(3, _makers(cls), num_processes=2),
    "caller": lambda cls: ParallelEnv(3, _makers(cls), num_processes=2, caller_share=True),
    "threads": lambda cls: AsyncEnvPool(_makers(cls), backend="threading", stack="maybe_dense"),
    "processes": lambda cls: AsyncEnvPool(_makers(cls), backend="multiprocessing", stack="maybe_dense"),
}


@pytest.fixture(params=BATCHES)
def make(request: pytest.FixtureRequest) -> Any:
    return BATCHES[request.param]


def _plain(td: TensorDictBase) -> dict[Any, Any]:
    """The data of one row, comparable."""
    found = {}
    for key in td.keys(True, True, is_leaf=lambda cls: not issubclass(cls, TensorDictBase) or cls is NonTensorData):
        value = td[key]
        found[key] = value.tolist() if isinstance(value, torch.Tensor) else value
    return found


def _row(td: TensorDictBase, row: int) -> dict[Any, Any]:
    return _plain(td[row])


@pytest.mark.parametrize("cls", [Teller, Growing, GrowingOnTensorDicts])
def test_steps_and_resets_equal_single_environments(make: Any, cls: Any) -> None:
    """Every step, last observation and first observation of three episodes."""
    batch, singles = make(cls), [maker() for maker in _makers(GrowingOnTensorDicts if cls is Growing else cls)]
    with batch:
        roots, root = [env.reset() for env in singles], batch.reset()
        for t in range(8):
            actions = torch.tensor([(t + row) % 4 for row in range(3)])
            held = root
            root["action"] = actions
            stepped, root = batch.step_and_maybe_reset(root)
            for row, env in enumerate(singles):
                roots[row]["action"] = actions[row].clone()
                expected, following = env.step_and_maybe_reset(roots[row])
                assert _row(stepped, row) == _plain(expected), (t, row)
                assert _row(root, row) == _plain(following), (t, row)
                roots[row] = following
            assert stepped is held
        if isinstance(batch, (SerialEnv, ParallelEnv)):
            assert batch._loose is not None


def test_rollouts_of_all_classes_are_equal() -> None:
    """Text of a rollout, with episodes that end in different steps."""
    found = []
    for name, make in BATCHES.items():
        with make(Teller) as batch:
            batch.set_seed(3)
            data = batch.rollout(7, break_when_any_done=False)
            assert data.names == [None, "time"] == data["next"].names
            found.append((name, data["mission"], data["next", "mission"], data["next", "news"], data["observation"]))
    assert found[0][1][0][0] == "mission 301"
    for name, *values, observation in found[1:]:
        assert list(map(list, values[0])) == list(map(list, found[0][1])), name
        assert [list(map(list, value)) for value in values] == [list(map(list, value)) for value in found[0][1:4]]
        assert torch.equal(observation, found[0][4])


def test_a_rollout_that_grows_keeps_each_size(make: Any) -> None:
    """Rows of different lengths come as a lazy stack."""
    with make(Growing) as batch:
        data = batch.rollout(5, break_when_any_done=False, return_contiguous=False)
        assert [data[0, t]["trace"].numel() for t in range(5)] == [1, 2, 3, 1, 2]
        assert [data[2, t]["next", "trace"].numel() for t in range(5)] == [2, 3, 4, 5, 6]


def test_an_environment_reads_a_text_that_the_caller_changed(make: Any) -> None:
    """An environment on TensorDicts receives observations that the caller changed."""
    with make(Teller) as batch:
        root = batch.reset()
        root["action"] = torch.zeros(3, dtype=torch.int64)
        root["mission"] = torch.stack([NonTensorData("x" * (row + 1)) for row in range(3)])
        stepped, root = batch.step_and_maybe_reset(root)
        assert stepped["next", "observation"].squeeze(-1).tolist() == [1.0, 2.0, 3.0]
        assert list(root["mission"]) == ["mission 1", "mission 2", "mission 3"]
        root["action"] = torch.ones(3, dtype=torch.int64)
        after = batch.step(root)["next", "observation"].squeeze(-1)
        assert after.tolist() == [10.0, 10.0, 10.0]


def test_actions_may_be_text(make: Any) -> None:
    """Words reach the environments, also the same ones again."""
    with make(TakesText) as batch:
        root = batch.reset()
        for words in (["a", "bb", "ccc"], ["a", "bb", "ccc"], ["dddd", "bb", "c"], ["", "bb", "c"]):
            root["action"] = torch.stack([NonTensorData(word) for word in words])
            stepped, root = batch.step_and_maybe_reset(root)
            lengths = stepped["next", "observation"].squeeze(-1).tolist()
            assert lengths == [9.0 + len(word) for word in words]


@pytest.mark.parametrize("cls", [Teller, Growing])
def test_some_rows_are_stepped_and_reset(make: Any, cls: Any) -> None:
    """``step_at``, ``reset_at`` and masks do not change other rows."""
    with make(cls) as batch:
        root = batch.reset()
        actions = torch.zeros(3, dtype=torch.int64)
        batch.step(root.set("action", actions))  # the first one is validated
        part = batch.reset().set("action", actions)[[2, 0]]
        out = batch.step_at(part, [2, 0])
        assert list(out["next", "mission"]) == ["mission 4", "mission 2"]
        fresh = batch.reset_at(None, [1])
        assert list(fresh["mission"]) == ["mission 4"]
        root = batch.reset()
        root["_reset"] = torch.tensor([[False], [True], [False]])
        root = batch.reset(root)
        assert list(root["mission"]) == ["mission 3", "mission 6", "mission 5"]
        root["action"], root["_step"] = actions, torch.tensor([True, False, True])
        stepped = batch.step(root)
        assert stepped["next", "observation"].squeeze(-1)[1] == root["observation"][1]
        assert list(stepped["next", "mission"]) == ["mission 3", "mission 6", "mission 5"]


def test_a_view_steps_its_rows() -> None:
    """A view of a batch has the texts of its rows."""
    with ParallelEnv(3, _makers(Teller), num_processes=2) as batch:
        batch.reset()
        view = batch[[2, 1]]
        root = view.reset()
        assert list(root["mission"]) == ["mission 4", "mission 3"]
        root["action"] = torch.zeros(2, dtype=torch.int64)
        assert list(view.step(root)["next", "news"]) == ["step 1", "step 1"]


def test_returned_text_never_changes() -> None:
    """Data of an early step is as it was after later ones, and changing it changes no later one."""
    with SerialEnv(2, Teller) as batch:
        first = batch.reset()
        kept = _row(first, 0)
        root = first
        for _ in range(LENGTH + 1):
            root["action"] = torch.zeros(2, dtype=torch.int64)
            root = batch.step_and_maybe_reset(root)[1]
        assert {key: _row(first, 0)[key] for key in kept} == kept
        root["action"] = torch.zeros(2, dtype=torch.int64)
        stepped, following = batch.step_and_maybe_reset(root)
        stepped["next"].set("mission", torch.stack([NonTensorData("changed")] * 2))
        assert list(following["mission"]) == ["mission 2", "mission 2"]


def test_only_changed_texts_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step whose texts stay the same sends no message."""
    with ParallelEnv(2, Growing, num_processes=1) as batch:
        batch.reset()
        calls = []
        ask = batch._backend.pool.ask
        monkeypatch.setattr(batch._backend.pool, "ask", lambda *args: calls.append(args) or ask(*args))
        batch.rollout(2, break_when_any_done=False, return_contiguous=False)
        assert len(calls) == 3  # a trace grows in each
    with ParallelEnv(2, Quiet, num_processes=1) as batch:
        batch.rollout(2, break_when_any_done=False)
        calls.clear()
        ask = batch._backend.pool.ask
        monkeypatch.setattr(batch._backend.pool, "ask", lambda *args: calls.append(args) or ask(*args))
        data = batch.rollout(8, break_when_any_done=False)
        assert calls == []
        assert data["mission"] == [["stay"] * 8] * 2


class Quiet(Growing):
    """Its only text never changes."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_spec = self.observation_spec.exclude("trace")

    def _write(self, out: Any) -> None:
        out["observation"][0] = len(self.trace)
        out["mission"][...] = "stay"


def test_an_error_of_an_environment_with_text_names_it() -> None:
    """As of any other environment."""
    makers = [Teller, lambda: Teller(fails=True)]
    with ParallelEnv(2, makers) as batch, pytest.raises(WorkerError, match="nothing to tell"):
        batch.rollout(4)


def test_rows_outside_of_a_batch_have_no_place_for_text() -> None:
    """A single array environment with text says why it has no row writer."""
    env = Growing()
    assert env.row_writer is None
    assert "trace" in str(env.no_row_writer_reason)
    with pytest.raises(NotSupported, match="no place in rows"):
        env.reset()
