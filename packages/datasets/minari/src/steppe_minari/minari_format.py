"""MinariFormat: load and save data sets of the library Minari."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensordict import TensorDictBase

from steppe import EnvBase, make_env
from steppe.errors import NotSupported, SpecError, StateError
from steppe_gym import are_frames, spec_to_space
from steppe_minari.episodes import EpisodeLayout, has_images
from steppe_replay import (
    DatasetNotFound,
    ImmutableDatasetWriter,
    LazyMemmapStorage,
    ReplayBuffer,
    TensorDictReplayBuffer,
    iter_trajectories,
)

if TYPE_CHECKING:
    from minari import MinariDataset

__all__ = ["MinariFormat", "save_minari"]

#: The file in a folder of rows that names the data set from which they were made.
_STAMP = "made-from.json"


class MinariFormat:
    """The data sets of Minari, in the folder ``MINARI_DATASETS_PATH``, by default ``~/.minari/datasets``.

    Rows have the entries that a collector yields of the environment: observations, ``"action"``, ``"next"`` with
    observations, ``"reward"`` and flags, and ``("collector", "traj_ids")``, the number of the episode, which
    SliceSampler uses. Infos of Minari are left out.

    >>> import os
    >>> os.environ["MINARI_DATASETS_PATH"] = os.getcwd()  # by default ~/.minari/datasets
    >>> from steppe import make_env
    >>> from steppe_minari import MinariFormat
    >>> data = make_env("gym:CartPole-v1").rollout(50, break_when_any_done=False)
    >>> dataset = MinariFormat().save(data, "cartpole/random-v0", "gym:CartPole-v1", author="me")
    >>> len(MinariFormat().load("cartpole/random-v0", batch_size=8))
    50
    """

    def load(
        self,
        name: str,
        *,
        download: bool = False,
        scratch_dir: str | Path | None = None,
        categorical_action_encoding: bool = False,
        **kwargs: Any,
    ) -> ReplayBuffer:
        """Return a data set as a buffer whose rows are read from a file when they are sampled.

        At the first time, the episodes are written to this file one by one. It is made again if the data set changes.

        Args:
            name: the id of the data set in Minari, such as ``"D4RL/pen/human-v2"``.
            download: download the data set with Minari if it is missing.
            scratch_dir: the folder of the file; default: a folder ``steppe-...`` beside the data set.
            categorical_action_encoding: discrete actions are numbers instead of one-hot vectors.
            **kwargs: arguments of :class:`~steppe_replay.TensorDictReplayBuffer`.

        Raises:
            DatasetNotFound: the data set is missing, and was not downloaded.
            StateError: the data set has no steps, or the folder of the file cannot be written.
            NotSupported: observations or actions have no fixed shape.
        """
        dataset = _open(name, download=download)
        if not dataset.total_steps:
            raise StateError(f"The Minari data set {name!r} has no steps.")
        encoding = "numbers" if categorical_action_encoding else "one-hot"
        folder = dataset.storage.data_path.parent / f"steppe-{encoding}" if scratch_dir is None else Path(scratch_dir)
        stamp = _stamp(dataset, encoding)
        if not _is_made_from(folder, stamp):
            layout = EpisodeLayout(dataset.observation_space, dataset.action_space, categorical_action_encoding)
            _write_rows(dataset, layout, folder, stamp)
        storage = LazyMemmapStorage(dataset.total_steps, scratch_dir=folder, existsok=True)
        return TensorDictReplayBuffer(storage=storage, writer=ImmutableDatasetWriter(), **kwargs)

    def check_new(self, name: str) -> None:
        """Raise an error unless a data set of this name can be saved.

        Raises:
            SpecError: the name is malformed.
            StateError: there is a data set of this name.
        """
        from minari.dataset.minari_dataset import parse_dataset_id

        try:
            parse_dataset_id(name)
        except (ValueError, TypeError):  # of an id without a version
            raise SpecError(
                f"The id of a Minari data set is 'group/name-v0', with a group of two letters or more; found {name!r}."
            ) from None
        if _folder(name).exists():
            raise StateError(f"There is a Minari data set {name!r}: choose another version, or 'minari delete {name}'.")

    def save(self, source: Any, name: str, env: EnvBase | str, **kwargs: Any) -> None:
        """Write a data set; see :func:`save_minari`."""
        save_minari(source, name, env, **kwargs)


def save_minari(
    source: ReplayBuffer | TensorDictBase | str | Path, id: str, env: EnvBase | str, **kwargs: Any
) -> MinariDataset:
    """Save collected data as a data set of Minari.

    Images are stored without loss. An episode that the end of the data has cut has neither a termination nor a
    truncation at its last step.

    >>> import os
    >>> os.environ["MINARI_DATASETS_PATH"] = os.getcwd()  # by default ~/.minari/datasets
    >>> from steppe import load_dataset, make_env, save_minari
    >>> data = make_env("gym:Pendulum-v1").rollout(200)
    >>> dataset = save_minari(data, "pendulum/random-v0", "gym:Pendulum-v1", author="me")
    >>> dataset.total_steps, load_dataset("minari:pendulum/random-v0", batch_size=32).sample()["action"].shape
    (200, torch.Size([32, 1]))

    Args:
        source: a buffer, a TensorDict of a collector, or the folder of ``steppe collect`` or of a buffer; see
            :func:`~steppe_replay.iter_trajectories`.
        id: the id of the new data set, such as ``"pendulum/random-v0"``.
        env: the environment of the data, or its id. With an id of ``gym:``, Minari can make the environment again.
        **kwargs: arguments of ``minari.create_dataset_from_buffers``: ``author=``, ``description=``,
            ``algorithm_name=``, ...

    Returns:
        The data set, as Minari loads it.

    Raises:
        SpecError: the id is malformed, or the data does not fit the environment. Nothing was written.
        NotSupported: this version of Minari would change the values of images.
        StateError: there is a data set of this id, or there is no data.
    """
    import minari
    from minari.data_collector import EpisodeBuffer

    MinariFormat().check_new(id)
    settings = _spaces_of(env)
    if "jpeg_encoding" in inspect.signature(minari.create_dataset_from_buffers).parameters:
        settings["jpeg_encoding"] = False
    elif has_images(settings["observation_space"]):
        raise NotSupported(
            f"Minari {minari.__version__} stores images as JPEG, which changes their values. Minari 0.5.4 stores them "
            "as they are: pip install 'minari>=0.5.4'."
        )
    dataset: MinariDataset | None = None
    layout: EpisodeLayout | None = None
    try:
        for steps in iter_trajectories(source):
            if layout is None:
                layout = EpisodeLayout.of(settings["observation_space"], settings["action_space"], steps)
            episode = EpisodeBuffer(**layout.episode(steps))
            with _quiet():
                if dataset is None:
                    dataset = minari.create_dataset_from_buffers(id, [episode], **{**settings, **kwargs})
                else:
                    dataset.update_dataset_from_buffer([episode])
    except BaseException:
        # A part of the data would look like a whole data set.
        shutil.rmtree(_folder(id), ignore_errors=True)
        raise
    assert dataset is not None  # iter_trajectories() raises an error if there is no data
    return dataset


def _spaces_of(env: EnvBase | str) -> dict[str, Any]:
    """Return the spaces of an environment, and its specification in gymnasium if it has one."""
    import gymnasium

    if isinstance(env, str):
        name = env.removeprefix("gym:")
        if name != env and name in gymnasium.registry:
            made = gymnasium.make(name)
            found = {"env": made.spec, "observation_space": made.observation_space, "action_space": made.action_space}
            made.close()
            return found
        made_env = make_env(env)
        try:
            return _spaces_of(made_env)
        finally:
            made_env.close()
    observation = env.observation_spec_unbatched
    keys = list(observation.keys())
    if keys == ["observation"] or (keys == ["pixels"] and are_frames(spec_to_space(observation["pixels"]))):
        observation = observation[keys[0]]
    action = env.full_action_spec_unbatched
    if list(action.keys()) != ["action"]:
        raise SpecError(f"Minari has one action for each step; this environment has {sorted(map(str, action.keys()))}.")
    return {
        "observation_space": spec_to_space(observation, backend="gymnasium"),
        "action_space": spec_to_space(action["action"], backend="gymnasium"),
    }


def _folder(name: str) -> Path:
    """Return the folder of a data set of Minari."""
    from minari.storage import get_dataset_path

    return Path(get_dataset_path(name))


def _open(name: str, *, download: bool) -> MinariDataset:
    """Return a data set of Minari, without reading its episodes."""
    import minari

    folder = _folder(name)
    if not (folder / "data").is_dir():
        if not download:
            close = get_close_matches(name, minari.list_local_datasets(), 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise DatasetNotFound(
                f"There is no Minari data set {name!r} in {_folder('')}.{hint} Download it: "
                f"load_dataset({'minari:' + name!r}, download=True), or 'minari download {name}'. The variable "
                "MINARI_DATASETS_PATH names another folder."
            )
        try:
            minari.download_dataset(name)
        except Exception as error:
            raise DatasetNotFound(
                f"The Minari data set {name!r} cannot be downloaded ({type(error).__name__}: {error}). Without a "
                f"network, copy its folder from another machine to {folder}."
            ) from error
    return minari.MinariDataset(folder / "data")


def _stamp(dataset: MinariDataset, encoding: str) -> dict[str, Any]:
    """Describe the state of a data set, to see whether it has changed."""
    files = sorted(path for path in dataset.storage.data_path.rglob("*") if path.is_file())
    return {
        "encoding": encoding,
        "steps": int(dataset.total_steps),
        "files": [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files],
    }


def _is_made_from(folder: Path, stamp: dict[str, Any]) -> bool:
    """Whether a folder has the rows of a data set in this state."""
    file = folder / _STAMP
    if file.is_file():
        return bool(json.loads(file.read_text()) == stamp)
    if folder.is_dir() and any(folder.iterdir()):
        raise StateError(f"scratch_dir {folder} has other files: choose an empty or a new folder.")
    return False


def _write_rows(dataset: MinariDataset, layout: EpisodeLayout, folder: Path, stamp: dict[str, Any]) -> None:
    """Write all episodes to a folder, which appears when it is complete."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise StateError(f"{folder} cannot be written ({error}): pass scratch_dir= to load_dataset.") from error
    try:
        buffer = ReplayBuffer(storage=LazyMemmapStorage(dataset.total_steps, scratch_dir=work))
        for number, episode in enumerate(dataset.iterate_episodes()):
            buffer.extend(layout.trajectory(episode, number))
        (work / _STAMP).write_text(json.dumps(stamp))
        if folder.is_dir():
            shutil.rmtree(folder)
        os.replace(work, folder)
    except BaseException as error:
        shutil.rmtree(work, ignore_errors=True)
        if isinstance(error, OSError) and _is_made_from(folder, stamp):
            return  # another process was faster
        raise


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide Minari's warnings about metadata that the caller did not give."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module="minari")
        yield
