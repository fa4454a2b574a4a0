"""Data sets of Minari: read from a folder that Minari has written, and saved so that Minari reads them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("minari")
pytest.importorskip("h5py")

import gymnasium
import minari
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

import steppe
from steppe import SerialEnv, SyncDataCollector, make_env
from steppe.errors import NotSupported, SpecError, StateError
from steppe_gym import GymWrapper
from steppe_minari import save_minari
from steppe_replay import (
    DatasetNotFound,
    LazyMemmapStorage,
    LazyTensorStorage,
    ReplayBuffer,
    SliceSampler,
    iter_trajectories,
    load_dataset,
)

pytestmark = [pytest.mark.library, pytest.mark.matrix]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of data sets."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


LENGTHS = (5, 1, 9, 4)


def write(name: str, observation: Any, action: Any, lengths: tuple[int, ...] = LENGTHS) -> list[EpisodeBuffer]:
    """Write a data set with Minari itself; return its episodes."""
    observation.seed(0)
    action.seed(1)
    episodes = []
    for n in lengths:
        seen = [observation.sample() for _ in range(n + 1)]
        acts = [action.sample() for _ in range(n)]
        episodes.append(
            EpisodeBuffer(
                observations=_stacked(seen),
                actions=_stacked(acts),
                rewards=list(np.arange(n) + 0.5),
                terminations=[i == n - 1 and n % 2 == 1 for i in range(n)],
                truncations=[i == n - 1 and n % 2 == 0 for i in range(n)],
            )
        )
    minari.create_dataset_from_buffers(name, episodes, observation_space=observation, action_space=action)
    return episodes


def _stacked(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {key: _stacked([value[key] for value in values]) for key in values[0]}
    if isinstance(values[0], tuple):
        return tuple(_stacked(list(part)) for part in zip(*values, strict=True))
    return np.stack(values)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_episodes_of_minari_become_rows() -> None:
    episodes = write("plain/box-v0", spaces.Box(-1, 1, (3,), np.float64), spaces.Box(-2, 2, (2,)))
    buffer = load_dataset("minari:plain/box-v0", batch_size=50)
    steps = list(iter_trajectories(buffer))

    assert [len(each) for each in steps] == list(LENGTHS)
    for number, (each, episode) in enumerate(zip(steps, episodes, strict=True)):
        assert each["observation"].dtype is torch.float64
        np.testing.assert_array_equal(each["observation"], episode.observations[:-1])
        np.testing.assert_array_equal(each["next", "observation"], episode.observations[1:])
        np.testing.assert_array_equal(each["action"], episode.actions)
        assert each["next", "reward"].squeeze(-1).tolist() == episode.rewards
        assert each["next", "terminated"].squeeze(-1).tolist() == episode.terminations
        assert each["next", "truncated"].squeeze(-1).tolist() == episode.truncations
        assert torch.equal(each["next", "done"], each["next", "terminated"] | each["next", "truncated"])
        assert (each["collector", "traj_ids"] == number).all()
        assert not each["done"].any()
    assert buffer.sample().batch_size == (50,)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nested_spaces_and_starts_have_their_entries() -> None:
    space = spaces.Dict(
        {
            "pose": spaces.Box(0, 1, (2,)),
            "part": spaces.Dict({"mode": spaces.Discrete(3, start=4)}),
            "n": spaces.MultiBinary(3),
        }
    )
    episodes = write("nested/all-v3", space, spaces.Discrete(4, start=-1))
    one_hot = load_dataset("minari:nested/all-v3")[:]
    numbers = load_dataset("minari:nested/all-v3", categorical_action_encoding=True)[:]

    actions = np.concatenate([np.asarray(episode.actions) for episode in episodes])
    modes = np.concatenate([episode.observations["part"]["mode"][:-1] for episode in episodes])
    assert one_hot["action"].shape == (sum(LENGTHS), 4)
    np.testing.assert_array_equal(one_hot["action"].argmax(-1), actions + 1)
    np.testing.assert_array_equal(numbers["action"], actions + 1)
    np.testing.assert_array_equal(one_hot["part", "mode"].argmax(-1), modes - 4)
    assert one_hot["next", "n"].shape == (sum(LENGTHS), 3)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_slices_follow_the_episodes() -> None:
    write("slices/of-v0", spaces.Box(-1, 1, (1,)), spaces.Discrete(2))
    buffer = load_dataset("minari:slices/of-v0", sampler=SliceSampler(slice_len=4), batch_size=80)
    slices = buffer.sample().reshape(-1, 4)
    reward = slices["next", "reward"].squeeze(-1)

    assert torch.equal(reward, reward[:, :1] + torch.arange(4))
    assert set(slices["collector", "traj_ids"][:, 0].tolist()) == {0, 2, 3}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rows_are_written_once_and_again_after_a_change(root: Path) -> None:
    write("once/more-v0", spaces.Box(-1, 1, (1,)), spaces.Discrete(2))
    load_dataset("minari:once/more-v0")
    file = root / "once/more-v0/steppe-one-hot" / LazyMemmapStorage.FILE
    before = file.stat().st_mtime_ns
    load_dataset("minari:once/more-v0")
    assert file.stat().st_mtime_ns == before

    episode = EpisodeBuffer(
        observations=np.zeros((3, 1), np.float32),
        actions=np.zeros(2, np.int64),
        rewards=[1.0, 1.0],
        terminations=[False, True],
        truncations=[False, False],
    )
    minari.load_dataset("once/more-v0").update_dataset_from_buffer([episode])
    assert len(load_dataset("minari:once/more-v0")) == sum(LENGTHS) + 2
    assert list(minari.list_local_datasets()) == ["once/more-v0"], "the rows do not hide the data set"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rows_may_be_in_a_folder_of_the_caller(root: Path, tmp_path: Path) -> None:
    write("other/folder-v0", spaces.Box(-1, 1, (1,)), spaces.Discrete(2))
    buffer = load_dataset("minari:other/folder-v0", scratch_dir=tmp_path / "rows")

    assert isinstance(buffer.storage, LazyMemmapStorage)
    assert (tmp_path / "rows" / LazyMemmapStorage.FILE).is_file()
    assert [path.name for path in (root / "other/folder-v0").iterdir()] == ["data"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(StateError, match="has other files"):
        load_dataset("minari:other/folder-v0", scratch_dir=tmp_path / "full")
    assert (tmp_path / "full" / "thesis.txt").read_text() == "mine"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_data_set_cannot_be_written() -> None:
    write("read/only-v0", spaces.Box(-1, 1, (1,)), spaces.Discrete(2))
    buffer = load_dataset("minari:read/only-v0")
    with pytest.raises(NotSupported, match="cannot be written"):
        buffer.extend(buffer[:2])


@pytest.mark.parametrize("id", ["gym:CartPole-v1", "gym:Pendulum-v1"])
@pytest.mark.parametrize("given", ["buffer", "folder", "saved buffer", "rows of a file", "TensorDict"])
def test_saved_data_is_loaded_unchanged(id: str, given: str, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    storage: Any = LazyTensorStorage(300, ndim=2)
    if given == "rows of a file":
        storage = LazyMemmapStorage(300, ndim=2, scratch_dir=folder)
    buffer = ReplayBuffer(storage=storage)
    with SyncDataCollector(SerialEnv(2, id), frames_per_batch=100, total_frames=300, replay_buffer=buffer) as collector:
        for _ in collector:
            pass
    expected = list(iter_trajectories(buffer))
    source: Any = {"buffer": buffer, "TensorDict": buffer[:]}.get(given, folder)
    if given == "folder":
        buffer[:].memmap(folder)
    elif given == "saved buffer":
        buffer.dumps(folder)
    dataset = save_minari(source, "saved/data-v0", id)
    loaded = list(iter_trajectories(load_dataset("minari:saved/data-v0")))

    assert dataset.total_steps == 300
    assert len(loaded) == len(expected) == dataset.total_episodes
    for steps, before in zip(loaded, expected, strict=True):
        for key in steps.keys(True, True):
            if key != ("collector", "traj_ids"):
                assert steps[key].dtype is before[key].dtype
                assert torch.equal(steps[key], before[key])
    assert dataset.recover_environment().spec.id == id.removeprefix("gym:")


class Pixels(gymnasium.Env[Any, Any]):
    """Random images."""

    observation_space = spaces.Box(0, 255, (40, 36, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.integers(0, 255, (40, 36, 3), np.uint8), {}

    def step(self, action: Any) -> Any:
        return self.np_random.integers(0, 255, (40, 36, 3), np.uint8), 1.0, False, False, {}


def test_images_lose_nothing() -> None:
    env = GymWrapper(Pixels())
    data = env.rollout(12)
    if "jpeg_encoding" not in inspect.signature(minari.create_dataset_from_buffers).parameters:
        with pytest.raises(NotSupported, match=r"stores images as JPEG.*pip install 'minari>=0.5.4'"):
            save_minari(data, "some/images-v0", env)
        return
    save_minari(data, "some/images-v0", env)
    loaded = load_dataset("minari:some/images-v0")[:]
    assert torch.equal(loaded["pixels"], data["pixels"])
    assert torch.equal(loaded["next", "pixels"], data["next", "pixels"])
    assert not loaded["next", "done"].any(), "the end of the data is no truncation"


def test_errors_of_saving_leave_nothing(root: Path) -> None:
    data = make_env("gym:CartPole-v1").rollout(20)
    changed = data.clone()
    changed["next", "observation"] += 1.0
    wrong: list[tuple[Any, str, str, type[Exception], str]] = [
        (data, "group/name", "gym:CartPole-v1", SpecError, "is 'group/name-v0'"),
        (data, "group/name-v0", "gym:Pendulum-v1", SpecError, "not in the action space"),
        (data.exclude("action"), "group/name-v0", "gym:CartPole-v1", SpecError, "no entry 'action'"),
        (changed, "group/name-v0", "gym:CartPole-v1", SpecError, "stores each observation once"),
        (data[:0], "group/name-v0", "gym:CartPole-v1", StateError, "no steps"),
        (root / "nowhere", "group/name-v0", "gym:CartPole-v1", StateError, "has no"),
    ]
    for source, name, env, kind, text in wrong:
        with pytest.raises(kind, match=text):
            save_minari(source, name, env)
        assert not minari.list_local_datasets()
    save_minari(data, "group/name-v0", "gym:CartPole-v1")
    with pytest.raises(StateError, match="choose another version, or 'minari delete group/name-v0'"):
        save_minari(data, "group/name-v0", "gym:CartPole-v1")


def test_a_missing_data_set_is_an_error_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    save_minari(make_env("gym:CartPole-v1").rollout(5), "pole/short-v1", "gym:CartPole-v1")
    with pytest.raises(DatasetNotFound, match="Did you mean 'pole/short-v1'") as caught:
        load_dataset("minari:pole/short-v2")
    assert "load_dataset('minari:pole/short-v2', download=True)" in str(caught.value)
    assert "minari download pole/short-v2" in str(caught.value)

    def no_network(name: str) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(minari, "download_dataset", no_network)
    with pytest.raises(DatasetNotFound, match=r"no route to host\). Without a network, copy its folder"):
        load_dataset("minari:pole/short-v2", download=True)


def test_collected_data_becomes_a_data_set_by_a_command(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from steppe.cli import main

    command = ["collect", "gym:CartPole-v1", "--frames", "60", "--format", "minari", "--out", "cli/pole-v0"]
    assert main(command) == 0
    assert "minari:cli/pole-v0" in capsys.readouterr().out
    assert len(load_dataset("minari:cli/pole-v0")) == 60
    assert main(command) == 2
    assert "choose another version" in capsys.readouterr().err


def test_names_are_found_in_steppe() -> None:
    assert steppe.load_dataset is load_dataset
    assert steppe.save_minari is save_minari
