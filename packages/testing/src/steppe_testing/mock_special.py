"""Counting environments with special data: text, varying sizes, automatic resets."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NonTensorData, NonTensorStack, TensorClass, TensorDict, TensorDictBase

from steppe.envs import EnvBase
from steppe.specs import Composite, NonTensor, Unbounded

from .mock_actions import action_leaf
from .mock_envs import CountingEnv
from .mock_multi import HeterogeneousCountingEnv

__all__ = [
    "AutoResettingCountingEnv",
    "AutoResettingHeterogeneousEnv",
    "DynamicSpecEnv",
    "EchoEnv",
    "MetadataEnv",
    "PlaceEnv",
    "TextCountingEnv",
]


class AutoResettingCountingEnv(CountingEnv):
    """A :class:`~steppe_testing.CountingEnv` that resets itself.

    The step that ends an episode returns ``start``, the first observation of the next.

    >>> from steppe_testing import AutoResettingCountingEnv
    >>> env = AutoResettingCountingEnv(max_steps=3)
    >>> data = env.rollout(5, break_when_any_done=False)
    >>> data["next", "done"].flatten(), data["observation"].flatten()
    (tensor([False, False,  True, False, False]), tensor([0., 1., 2., 0., 1.]))

    Args:
        max_steps: length of an episode.
        **kwargs: arguments of :class:`~steppe_testing.CountingEnv`; ``auto_reset=True`` is the
            default, which needs steppe-time.
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


class AutoResettingHeterogeneousEnv(HeterogeneousCountingEnv):
    """A :class:`~steppe_testing.HeterogeneousCountingEnv` that resets itself.

    All agents are reset together.

    >>> from steppe_testing import AutoResettingHeterogeneousEnv
    >>> env = AutoResettingHeterogeneousEnv(max_steps=2)
    >>> data = env.rollout(4, break_when_any_done=False)
    >>> data["agents"][0, 0]["observation"].shape, data["next", "done"].flatten()
    (torch.Size([1]), tensor([False,  True, False,  True]))

    Args:
        max_steps: length of an episode.
        **kwargs: arguments of :class:`~steppe_testing.HeterogeneousCountingEnv`; ``auto_reset=True`` is the
            default, which needs steppe-time.
    """

    def __init__(self, max_steps: int = 5, **kwargs: Any) -> None:
        super().__init__(max_steps, **{"auto_reset": True, **kwargs})

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        data = super()._step(tensordict)
        self.count = torch.where(data["terminated"], 0, self.count)
        return data.update(self._data())


class DynamicSpecEnv(EnvBase):
    """An environment whose observation grows with each step.

    The observation is ``[3, 1 + steps, 2]`` float32, with a spec of shape ``(3, -1, 2)``.

    >>> from steppe_testing import DynamicSpecEnv
    >>> data = DynamicSpecEnv().rollout(3, return_contiguous=False)
    >>> [step["observation"].shape for step in data.unbind(0)]
    [torch.Size([3, 1, 2]), torch.Size([3, 2, 2]), torch.Size([3, 3, 2])]

    Args:
        max_steps: length of an episode.
        **kwargs: arguments of :class:`~steppe.envs.EnvBase`.
    """

    def __init__(self, max_steps: int = 5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_steps = max_steps
        self.count = 0
        self.observation_spec = Composite(observation=Unbounded((3, -1, 2)))
        self.action_spec = action_leaf("continuous")
        self.reward_spec = Unbounded((1,))

    def _data(self) -> TensorDict:
        observation = torch.full((3, 1 + self.count, 2), float(self.count), device="cpu")
        return TensorDict({"observation": observation}, [], self.device)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        self.count = 0
        return self._data()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        self.count += 1
        data = self._data()
        data["reward"] = tensordict["action"].sum(-1, keepdim=True)
        data["terminated"] = torch.tensor([self.count >= self.max_steps], device="cpu")
        return data

    def _set_seed(self, seed: int | None) -> None:
        """Nothing is random."""


class TextCountingEnv(CountingEnv):
    """A :class:`~steppe_testing.CountingEnv` with its count as text.

    The entry ``text`` ``[*B]`` is ``"0"``, ``"1"``, ...

    >>> from steppe_testing import TextCountingEnv
    >>> data = TextCountingEnv().rollout(3)
    >>> data["text"], data[-1]["next", "text"]
    (LinkedList(['0', '1', '2']), '3')

    Args:
        max_steps: length of an episode.
        **kwargs: arguments of :class:`~steppe_testing.CountingEnv`.
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
    """A :class:`~steppe_testing.CountingEnv` that returns an object at ``metadata``.

    >>> from steppe_testing import MetadataEnv
    >>> MetadataEnv(metadata={"level": 3}).reset()["metadata"]
    {'level': 3}

    Args:
        metadata: the object, of any class, the same in all steps. Default: a dict.
        **kwargs: arguments of :class:`~steppe_testing.CountingEnv`.
    """

    def __init__(self, *, metadata: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metadata = {"level": 1} if metadata is None else metadata
        spec = self.full_observation_spec.clone()
        spec["metadata"] = NonTensor(self.batch_size, example_data=self.metadata)
        self.observation_spec = spec

    def _data(self) -> TensorDict:
        data = super()._data()
        data["metadata"] = NonTensorData(self.metadata, batch_size=self.batch_size)
        return data


class EchoEnv(EnvBase):
    """An environment that returns the text of the ``action`` as observation.

    After a reset, the observation is ``"start"``.

    The reward is the length of the text. Episodes never end.

    >>> from steppe_testing import EchoEnv
    >>> env = EchoEnv()
    >>> root = env.reset()
    >>> root["observation"], env.step(root.set("action", "go north"))["next", "observation"]
    ('start', 'go north')

    Args:
        **kwargs: arguments of :class:`~steppe.envs.EnvBase`, without a batch.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.observation_spec = Composite(observation=NonTensor((), example_data="start"))
        self.action_spec = NonTensor((), example_data="word")
        self.reward_spec = Unbounded((1,))

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        return TensorDict({"observation": NonTensorData("start")}, [], self.device)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        word = tensordict["action"]
        reward = torch.tensor([float(len(word))], device="cpu")
        return TensorDict({"observation": NonTensorData(word), "reward": reward}, [], self.device)

    def _set_seed(self, seed: int | None) -> None:
        """Nothing is random."""


class Place(TensorClass):
    """A point in the plane: ``x`` and ``y``, ``[*B, 1]`` float32 each."""

    x: torch.Tensor
    y: torch.Tensor


class PlaceEnv(CountingEnv):
    """A :class:`~steppe_testing.CountingEnv` with a tensorclass at ``place``.

    ``x`` is the count, and ``y`` is its negative.

    >>> from steppe_testing import PlaceEnv
    >>> place = PlaceEnv().rollout(3)["next", "place"]
    >>> place.x.flatten(), place.y.flatten()
    (tensor([1., 2., 3.]), tensor([-1., -2., -3.]))

    Args:
        max_steps: length of an episode.
        **kwargs: arguments of :class:`~steppe_testing.CountingEnv`.
    """

    def __init__(self, max_steps: int = 5, **kwargs: Any) -> None:
        super().__init__(max_steps, **kwargs)
        size = self.batch_size
        spec = self.full_observation_spec.clone()
        spec["place"] = Composite(x=Unbounded((*size, 1)), y=Unbounded((*size, 1)), shape=size)
        self.observation_spec = spec

    def _data(self) -> TensorDict:
        data = super()._data()
        count = data["observation"].float()
        data["place"] = Place(x=count, y=-count, batch_size=self.batch_size, device=self.device)
        return data
