"""A replay buffer that records its data, and reports the progress of a collector."""

from __future__ import annotations

import threading

from tensordict import TensorDictBase


class Buffer:
    """A minimal replay buffer for collectors; signals when it has 12 frames."""

    def __init__(self) -> None:
        self.extended: list[TensorDictBase] = []
        self.added: list[TensorDictBase] = []
        self.three = threading.Event()

    @property
    def write_count(self) -> int:
        return sum(data.numel() for data in self.extended)

    def extend(self, data: TensorDictBase) -> None:
        self.extended.append(data)
        if self.write_count >= 12:
            self.three.set()

    def add(self, data: TensorDictBase) -> None:
        self.added.append(data)
