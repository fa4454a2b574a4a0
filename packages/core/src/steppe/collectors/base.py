"""DataCollectorBase: the methods that every collector has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from tensordict import TensorDictBase

__all__ = ["DataCollectorBase"]


class DataCollectorBase(ABC):
    """Iterates over batches of transitions.

    A collector is its own iterator: a second loop continues where the first one stopped. Use it as a context manager,
    or call ``shutdown`` in the end.
    """

    #: Frames in each batch that is yielded, before ``split_trajs`` and ``postproc``.
    frames_per_batch: int
    #: Frames to collect in all; negative for no end.
    total_frames: int

    @abstractmethod
    def next(self) -> TensorDictBase | None:
        """Collect one batch; None when ``total_frames`` have been collected."""

    @abstractmethod
    def reset(self, **kwargs: Any) -> None:
        """Begin new episodes in all rows."""

    @abstractmethod
    def set_seed(self, seed: int | None, static_seed: bool = False) -> int | None:
        """Seed environments and random actions; returns the seed for whatever comes next."""

    @abstractmethod
    def update_policy_weights_(self, policy_or_weights: Any = None) -> None:
        """Take over new weights before the next batch."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs to continue in another process."""

    @abstractmethod
    def load_state_dict(self, state_dict: dict[str, Any], *, strict: bool = True) -> None:
        """Restore what ``state_dict`` returned."""

    @abstractmethod
    def shutdown(self, timeout: float | None = None, close_env: bool = True) -> None:
        """Release everything. Calling it again does nothing."""

    def close(self) -> None:
        """The same as ``shutdown``."""
        self.shutdown()

    def __iter__(self) -> Iterator[TensorDictBase]:
        return self

    def __next__(self) -> TensorDictBase:
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    def __len__(self) -> int:
        if self.total_frames < 0:
            raise TypeError(f"This {type(self).__name__} has no length: total_frames is {self.total_frames}, no end.")
        return -(-self.total_frames // self.frames_per_batch)

    def __bool__(self) -> bool:
        # bool() would otherwise call __len__, which raises without an end and is 0 after it.
        return True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.shutdown()
