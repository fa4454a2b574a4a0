"""Counting environments with data that is out of the ordinary: text, sizes that vary, resets of their own."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict, TensorDictBase

from steppe.envs import EnvBase
from steppe.specs import Composite, NonTensor, Unbounded

from .mock_actions import action_leaf
from .mock_envs import CountingEnv

__all__ = ["AutoResettingCountingEnv", "DynamicSpecEnv", "MetadataEnv", "TextCountingEnv"]


class AutoResettingCountingEnv(CountingEnv):
    """A :class:`~steppe_testing.CountingEnv` that resets itself: the step that ends an episode returns ``start``.

    Args:
        max_steps: length of an episode.
        **kwargs: for :class:`~steppe_testing.CountingEnv`; ``auto_reset=True`` is the default.
    """

    def __init__(self, max_steps: int = 5, **kwargs: Any) -> None:
        super().__init__(max_steps, **{"auto_reset": True, **kwargs})
        self.resets = 0

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        self.resets += 1
        return super()._reset(tensordict, **kwargs)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        data = super()._step(tensordict)
        ended = data["truncated" if self.truncate else "terminated"]
        self.count = torch.where(ended.to(self.count.device), 0, self.count)
        return data.update(self._data().select("observation"))


class DynamicSpecEnv(EnvBase):
    """An observation that grows by one with each step: ``[3, 1 + steps, 2]`` float32 of spec ``(3, -1, 2)``.

    Args:
        max_steps: length of an episode.
        **kwargs: for :class:`~steppe.envs.EnvBase`.
    """

    def __init__(self, max_steps: int = 5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_steps = max_steps
        self.count = 0
        self.observation_spec = Composite(observation=Unbounded((3, -1, 2)))
        self.action_spec = action_leaf("continuous")
        self.reward_spec = Unbounded((1,))

    def _data(self) -> TensorDict:
        return TensorDict({"observation": torch.full((3, 1 + self.count, 2), float(self.count))}, [], self.device)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        self.count = 0
        return self._data()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        self.count += 1
        data = self._data()
        data["reward"] = tensordict["action"].sum(-1, keepdim=True)
        data["terminated"] = torch.tensor([self.count >= self.max_steps])
        return data

    def _set_seed(self, seed: int | None) -> None:
        """Nothing is random."""


class TextCountingEnv(CountingEnv):
    """A :class:`~steppe_testing.CountingEnv` that also says its count as ``text`` ``[*B]``: ``"0"``, ``"1"``, ...

    Args:
        max_steps: length of an episode.
        **kwargs: for :class:`~steppe_testing.CountingEnv`.
    """

    def __init__(self, max_steps: int = 5, **kwargs: Any) -> None:
        super().__init__(max_steps, **kwargs)
        spec = self.full_observation_spec.clone()
        spec["text"] = NonTensor(self.batch_size, example_data="0")
        self.observation_spec = spec

    def _data(self) -> TensorDict:
        data = super()._data()
        text = (self.begin + self.count).squeeze(-1).tolist()
        return data.set("text", _texts(text))


def _texts(counts: Any) -> Any:
    if isinstance(counts, list):
        return NonTensorStack(*[_texts(count) for count in counts])
    return NonTensorData(str(counts))


class MetadataEnv(CountingEnv):
    """A :class:`~steppe_testing.CountingEnv` that hands on an object of any class at ``metadata``, always the same.

    Args:
        metadata: the object; a dict by default.
        **kwargs: for :class:`~steppe_testing.CountingEnv`.
    """

    def __init__(self, *, metadata: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metadata = {"level": 1} if metadata is None else metadata
        spec = self.full_observation_spec.clone()
        spec["metadata"] = NonTensor(self.batch_size, example_data=self.metadata)
        self.observation_spec = spec

    def _data(self) -> TensorDict:
        return super()._data().set("metadata", NonTensorData(self.metadata, batch_size=self.batch_size))
