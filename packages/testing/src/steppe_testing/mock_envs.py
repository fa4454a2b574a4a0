"""Environments with predictable data: they count their steps.

The observation is the number of steps since the reset, the reward is the number of the action (see
:func:`~steppe_testing.mock_actions.action_number`), and an episode ends after ``max_steps`` steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import ArrayEnv, EnvBase
from steppe.specs import Bounded, Composite, Unbounded

from .mock_actions import action_leaf, action_number, decoded_action_number

__all__ = [
    "ArrayCountingEnv",
    "CountingEnv",
    "DoNothingEnv",
    "IncrementingEnv",
    "ScalarActionEnv",
    "StatelessCountingEnv",
]


class CountingEnv(EnvBase):
    """An environment that counts its steps, on the tensordict path.

    It may have any batch size.

    Data: ``observation`` ``[*B, 1]`` is ``start`` plus the steps since the reset; ``reward`` ``[*B, 1]`` float32 is the
    number of the action; ``terminated`` (or ``truncated``) is True from step ``max_steps`` on. Partial steps and resets
    do not change other rows.

    >>> from steppe_testing import CountingEnv
    >>> data = CountingEnv(max_steps=3, start=10).rollout(100)
    >>> data["next", "observation"].flatten(), data["next", "terminated"].flatten()
    (tensor([11., 12., 13.]), tensor([False, False,  True]))

    Args:
        max_steps: length of an episode.
        start: the first observation.
        batch_size: leading dimensions.
        action: a kind of action, see :data:`~steppe_testing.mock_actions.ACTION_KINDS`.
        dtype: dtype of the observation.
        noise: add an entry ``noise`` ``[*B, 1]`` float32 in ``[0, 1)``, drawn from a generator that ``set_seed`` seeds.
        truncate: end by truncation instead of termination.
        env_info: accept ``reset(env_info={"start": ...})``, the first observation of each row, ``[*B, 1]`` int64.
        **kwargs: arguments of :class:`~steppe.envs.EnvBase`.
    """

    def __init__(
        self,
        max_steps: int = 5,
        *,
        start: int = 0,
        batch_size: tuple[int, ...] = (),
        action: str = "one_hot",
        dtype: torch.dtype = torch.float32,
        noise: bool = False,
        truncate: bool = False,
        env_info: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, **kwargs)
        self.max_steps = max_steps
        self.start = start
        self.action_kind = action
        self.dtype = dtype
        self.noise = noise
        self.truncate = truncate
        shape = (*batch_size, 1)
        entries: dict[str, Any] = {"observation": Unbounded(shape, dtype=dtype)}
        if noise:
            entries["noise"] = Bounded(0.0, 1.0, shape=shape)
        self.observation_spec = Composite(entries, shape=batch_size)
        self.action_spec = action_leaf(action, batch_size)
        self.reward_spec = Unbounded(shape)
        if env_info:
            self.env_info_spec = Composite(start=Unbounded(shape, dtype=torch.int64), shape=batch_size)
        self.count = torch.zeros(shape, dtype=torch.int64, device="cpu")
        self.begin = torch.zeros(shape, dtype=torch.int64, device="cpu")
        self.seed: int | None = None
        self._draws = torch.Generator().manual_seed(0)

    def _data(self) -> TensorDict:
        shape = self.count.shape
        data = TensorDict({"observation": (self.begin + self.count).to(self.dtype)}, self.batch_size, self.device)
        if self.noise:
            data["noise"] = torch.rand(shape, generator=self._draws, device="cpu")
        return data

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        rows = torch.ones_like(self.count, dtype=torch.bool)
        begin = torch.full_like(self.begin, self.start)
        if tensordict is not None:
            rows = tensordict.get("_reset", rows).reshape(rows.shape).to(rows.device)
            info = tensordict.get("env_info", None)
            if info is not None and "start" in self.env_info_spec.keys():
                begin = info.get("start").to(begin.device)
        self.begin = torch.where(rows, begin, self.begin)
        self.count = torch.where(rows, 0, self.count)
        return self._data()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        rows = tensordict.get("_step", None)
        self.count = self.count + (1 if rows is None else rows.to(self.count.device).reshape(self.count.shape))
        data = self._data()
        data["reward"] = action_number(self.action_kind, tensordict.get("action"))
        ended = (self.count >= self.max_steps).to(self.device or "cpu")
        data["truncated" if self.truncate else "terminated"] = ended
        return data

    def _set_seed(self, seed: int | None) -> None:
        self.seed = seed
        if seed is None:
            self._draws.seed()
        else:
            self._draws.manual_seed(seed)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_draws": self._draws.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        draws = torch.Generator()
        draws.set_state(state["_draws"])
        super().__setstate__({**state, "_draws": draws})  # type: ignore[no-untyped-call]


class IncrementingEnv(CountingEnv):
    """A :class:`CountingEnv` whose first observation is the seed, or ``start``.

    >>> from steppe_testing import IncrementingEnv
    >>> env = IncrementingEnv()
    >>> _ = env.set_seed(40)
    >>> env.rollout(3)["observation"].flatten()
    tensor([40., 41., 42.])
    """

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        if self.seed is not None:
            self.start = self.seed
        return super()._reset(tensordict, **kwargs)


class ScalarActionEnv(CountingEnv):
    """A :class:`CountingEnv` with a scalar action: ``[*B]`` int64.

    >>> from steppe_testing import ScalarActionEnv
    >>> env = ScalarActionEnv()
    >>> env.action_spec, env.rollout(4)["action"].shape
    (Categorical(n=3, shape=(), dtype=int64), torch.Size([4]))
    """

    def __init__(self, max_steps: int = 5, **kwargs: Any) -> None:
        super().__init__(max_steps, action="categorical", **kwargs)


class ArrayCountingEnv(ArrayEnv):
    """An environment that counts its steps on the array path.

    The data is that of a :class:`CountingEnv` without a batch.

    >>> from steppe_testing import ArrayCountingEnv
    >>> env = ArrayCountingEnv(max_steps=3, info=True)
    >>> data = env.rollout(10)
    >>> data["next", "observation"].flatten(), data["next", "is_even"].flatten()
    (tensor([1., 2., 3.]), tensor([False,  True, False]))
    >>> env.no_row_writer_reason is None  # it is on the array path
    True

    Args:
        max_steps: length of an episode.
        start: the first observation.
        action: a kind of action, see :data:`~steppe_testing.mock_actions.ACTION_KINDS`.
        actions: use two actions of this kind, ``action`` and ``("arm", "action")``; their numbers are added.
        dtype: dtype of the observation.
        nested: put the observation at ``("data", "observation")``.
        info: add the entries ``total`` ``[1]`` float64, the sum of rewards, and ``is_even`` ``[1]`` bool.
        pixels: height and width of an entry ``pixels`` ``[H, W, 3]`` uint8 filled with the count. Default: no entry.
        noise: add an entry ``noise`` ``[1]`` float32 in ``[0, 1)``, drawn from a generator that ``set_seed`` seeds.
        truncate: end by truncation instead of termination.
        env_info: accept ``reset(env_info={"start": ...})``, the first observation, ``[1]`` int64.
        array_path: whether to use the array path. False uses the tensordict path, to compare the two.
        **kwargs: arguments of :class:`~steppe.envs.EnvBase`.
    """

    def __init__(
        self,
        max_steps: int = 5,
        *,
        start: int = 0,
        action: str = "one_hot",
        actions: bool = False,
        dtype: torch.dtype = torch.float32,
        nested: bool = False,
        info: bool = False,
        pixels: tuple[int, int] | None = None,
        noise: bool = False,
        truncate: bool = False,
        env_info: bool = False,
        array_path: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.__dict__["_array_path"] = array_path
        self.max_steps = max_steps
        self.start = start
        self.truncate = truncate
        self.info = info
        self.pixels = pixels
        self.noise = noise
        self.key = ("data", "observation") if nested else "observation"
        entries: dict[Any, Any] = {self.key: Unbounded((1,), dtype=dtype)}
        if info:
            entries["total"] = Unbounded((1,), dtype=torch.float64)
            entries["is_even"] = Unbounded((1,), dtype=torch.bool)
        if pixels is not None:
            entries["pixels"] = Bounded(0, 255, shape=(*pixels, 3), dtype=torch.uint8)
        if noise:
            entries["noise"] = Bounded(0.0, 1.0, shape=(1,))
        self.observation_spec = Composite(entries)
        if actions:
            self.full_action_spec = Composite({"action": action_leaf(action), ("arm", "action"): action_leaf(action)})
        else:
            self.action_spec = action_leaf(action)
        self.reward_spec = Unbounded((1,))
        if env_info:
            self.env_info_spec = Composite(start=Unbounded((1,), dtype=torch.int64))
        self.count = 0
        self.begin = 0
        self.total = 0.0
        self._draws = np.random.default_rng(0)

    def no_rows_reason(self) -> str | None:
        return super().no_rows_reason() if self.__dict__["_array_path"] else "array_path=False was passed."

    def _write(self, out: dict[Any, np.ndarray[Any, Any]]) -> None:
        out[self.key][0] = self.begin + self.count
        if self.info:
            out["total"][0] = self.total
            out["is_even"][0] = self.count % 2 == 0
        if self.pixels is not None:
            out["pixels"][...] = self.count % 256
        if self.noise:
            out["noise"][0] = self._draws.random()

    def reset_into(
        self, out: dict[Any, np.ndarray[Any, Any]], seed: int | None, env_info: dict[str, Any] | None
    ) -> None:
        """Restart the count."""
        if seed is not None:
            self._draws = np.random.default_rng(seed)
        self.begin = int(np.asarray(env_info["start"]).item()) if env_info is not None else self.start
        self.count, self.total = 0, 0.0
        self._write(out)

    def step_into(self, action: Any, out: dict[Any, np.ndarray[Any, Any]]) -> tuple[bool, bool]:
        """Count one step."""
        number = (
            sum(map(decoded_action_number, action.values()))
            if isinstance(action, dict)
            else decoded_action_number(action)
        )
        self.count += 1
        self.total += number
        self._write(out)
        out["reward"][0] = number
        ended = self.count >= self.max_steps
        return (False, ended) if self.truncate else (ended, False)


class StatelessCountingEnv(EnvBase):
    """An environment that counts its steps in the data.

    So it accepts data of any batch size. Data: ``count`` ``[*B, 1]`` int64 is a state and an observation, which each
    step increments; ``reward`` is the number of the action; ``terminated`` is True when ``count`` reaches
    ``max_steps``. ``reset(td, set_state=True)`` starts from the ``count`` in ``td``.

    >>> import torch
    >>> from steppe_testing import StatelessCountingEnv
    >>> from tensordict import TensorDict
    >>> env = StatelessCountingEnv()
    >>> start = TensorDict(count=torch.tensor([[2], [3]]), batch_size=[2])
    >>> env.reset(start, set_state=True)["count"].flatten()
    tensor([2, 3])

    Args:
        max_steps: length of an episode.
        batch_size: leading dimensions. If they are not empty, the environment accepts only this batch size.
        action: a kind of action, see :data:`~steppe_testing.mock_actions.ACTION_KINDS`.
        **kwargs: arguments of :class:`~steppe.envs.EnvBase`.
    """

    _batch_locked = False
    _supports_set_state = True

    def __init__(
        self, max_steps: int = 5, *, batch_size: tuple[int, ...] = (), action: str = "one_hot", **kwargs: Any
    ) -> None:
        super().__init__(batch_size=batch_size, **kwargs)
        self.max_steps = max_steps
        self.action_kind = action
        shape = (*batch_size, 1)
        self.observation_spec = Composite(count=Unbounded(shape, dtype=torch.int64), shape=batch_size)
        self.state_spec = Composite(count=Unbounded(shape, dtype=torch.int64), shape=batch_size)
        self.action_spec = action_leaf(action, batch_size)
        self.reward_spec = Unbounded(shape)

    def _reset(
        self, tensordict: TensorDictBase | None = None, *, set_state: bool = False, **kwargs: Any
    ) -> TensorDictBase:
        size = self.batch_size if tensordict is None else tensordict.batch_size
        if set_state and tensordict is not None:
            count = tensordict["count"].clone()
        else:
            count = torch.zeros((*size, 1), dtype=torch.int64, device="cpu")
        return TensorDict({"count": count}, size, self.device)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        count = tensordict["count"] + 1
        data = TensorDict({"count": count}, tensordict.batch_size, self.device)
        data["reward"] = action_number(self.action_kind, tensordict["action"])
        data["terminated"] = count >= self.max_steps
        return data

    def _set_seed(self, seed: int | None) -> None:
        """Nothing is random."""


class DoNothingEnv(EnvBase):
    """The smallest environment: no observation, a reward of 0, and no end.

    >>> from steppe_testing import DoNothingEnv
    >>> env = DoNothingEnv(batch_size=(2,))
    >>> env.rollout(50)["next", "reward"].sum(), list(env.observation_spec.keys())
    (tensor(0.), [])

    Args:
        batch_size: leading dimensions.
        **kwargs: arguments of :class:`~steppe.envs.EnvBase`.
    """

    def __init__(self, *, batch_size: tuple[int, ...] = (), **kwargs: Any) -> None:
        super().__init__(batch_size=batch_size, **kwargs)
        self.action_spec = action_leaf("continuous", batch_size)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        return TensorDict({}, self.batch_size, self.device)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        return TensorDict({"reward": torch.zeros(*self.batch_size, 1, device="cpu")}, self.batch_size, self.device)

    def _set_seed(self, seed: int | None) -> None:
        """Nothing is random."""
