"""load_dataset: data sets of the formats that installed packages provide, by their ids."""

from __future__ import annotations

from typing import Any, Protocol

from steppe.errors import PluginNotFound, SpecError, SteppeError
from steppe.registry import find_class, list_classes
from steppe_replay.buffers import ReplayBuffer

__all__ = ["DatasetFormat", "DatasetNotFound", "dataset_format", "load_dataset"]


class DatasetNotFound(SteppeError, FileNotFoundError):
    """There is no data set of this name, or it cannot be downloaded.

    >>> from steppe import load_dataset
    >>> from steppe_replay import DatasetNotFound
    >>> try:
    ...     load_dataset("minari:no/such-v0")
    ... except (DatasetNotFound, ImportError) as error:
    ...     print("train online instead")
    train online instead
    """


class DatasetFormat(Protocol):
    """A format of data sets: the class that an entry point of the group ``steppe.datasets`` names.

    The name of the entry point is the namespace of its ids: ``minari = "steppe_minari:MinariFormat"``. The class is
    made without arguments, and imports its library in its methods.

    >>> import torch
    >>> from steppe import LazyTensorStorage, ReplayBuffer
    >>> from steppe_replay import DatasetFormat
    >>> from tensordict import TensorDict
    >>> class TorchFiles(DatasetFormat):
    ...     def load(self, name, **kwargs):
    ...         data = torch.load(name, weights_only=False)
    ...         buffer = ReplayBuffer(storage=LazyTensorStorage(len(data)), **kwargs)
    ...         buffer.extend(data)
    ...         return buffer
    >>> torch.save(TensorDict(reward=torch.ones(8), batch_size=[8]), "data.pt")
    >>> len(TorchFiles().load("data.pt", batch_size=4))
    8
    """

    def load(self, name: str, **kwargs: Any) -> ReplayBuffer:
        """Return a data set as a buffer that cannot be written, with rows that are read when they are sampled.

        Args:
            name: the id without its namespace.
            **kwargs: the arguments of ``load_dataset``. Those that the format does not know are the buffer's.

        Raises:
            DatasetNotFound: there is no such data set.
        """

    def check_new(self, name: str) -> None:
        """Raise an error unless a data set of this name can be saved: it is malformed, or there is one."""

    def save(self, source: Any, name: str, env: Any, **kwargs: Any) -> None:
        """Write a new data set.

        Args:
            source: what :func:`~steppe_replay.iter_trajectories` reads.
            name: the id without its namespace.
            env: the environment of the data, or its id.
            **kwargs: settings of the format.
        """


def load_dataset(id: str, **kwargs: Any) -> ReplayBuffer:
    """Load a data set as a replay buffer, to sample it as data of a collector is sampled.

    The rows stay in files, and are read when they are sampled: the data set may be larger than memory.

    >>> from steppe import load_dataset
    >>> load_dataset("D4RL/pen/human-v2")
    Traceback (most recent call last):
        ...
    steppe.errors.SpecError: The id of a data set is 'namespace:name', such as 'minari:D4RL/pen/human-v2'; ...

    Args:
        id: ``"namespace:name"``, such as ``"minari:D4RL/pen/human-v2"``. The namespace is a format, which a package
            provides: steppe-minari has ``"minari"``.
        **kwargs: settings of the format, and of the buffer: ``batch_size=``, ``sampler=``, ``transform=``, ...

    Raises:
        SpecError: the id has no namespace.
        PluginNotFound: no installed package provides the namespace.
        ClassNotFound: a first-party package provides it, and is not installed.
        DatasetNotFound: there is no such data set; the text says how to download it.
    """
    namespace, colon, name = id.partition(":")
    if not colon or not namespace or not name:
        raise SpecError(f"The id of a data set is 'namespace:name', such as 'minari:D4RL/pen/human-v2'; found {id!r}.")
    return dataset_format(namespace).load(name, **kwargs)


def dataset_format(namespace: str) -> DatasetFormat:
    """Return the format of a namespace.

    >>> from steppe_replay import dataset_format
    >>> dataset_format("csv")
    Traceback (most recent call last):
        ...
    steppe.errors.PluginNotFound: No plugin provides data sets 'csv:'. Installed formats: ...

    Raises:
        PluginNotFound: no installed package provides it.
        ClassNotFound: a first-party package provides it, and is not installed.
    """
    try:
        kind = find_class("dataset", namespace)
    except AttributeError as error:
        hint = str(error).partition(". ")[2]
        installed = ", ".join(list_classes("dataset")) or "none"
        raise PluginNotFound(
            f"No plugin provides data sets '{namespace}:'. {hint + ' ' if hint else ''}Installed formats: {installed}. "
            "'steppe plugins' lists them."
        ) from None
    made: DatasetFormat = kind()
    return made
