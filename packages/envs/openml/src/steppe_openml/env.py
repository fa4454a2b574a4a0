"""OpenMLEnv: a contextual bandit over a data set of OpenML."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.envs import EnvBase, no_layout_reason
from steppe.errors import ArgumentError
from steppe.registry import AvailableEnvs, env_not_found
from steppe.specs import Binary, Categorical, Composite, Unbounded
from steppe.storage import build_td

from .data_sets import load
from .names import SETS, env_names
from .table_writer import TableWriter

__all__ = ["OpenMLEnv"]


class OpenMLEnv(EnvBase):
    """Guess the label of a row of a data set, in one step.

    ==================  =============================================================================================
    Key                 Value, for a batch ``[*B]``
    ==================  =============================================================================================
    ``"observation"``   ``[*B, k]`` float32: the features of the row
    ``"y"``             ``[*B]`` int64: the label of the row, which a policy should not read
    ``"action"``        ``[*B]`` int64: the guessed label
    ``"reward"``        ``[*B, 1]`` float32: 1 for a right guess, otherwise 0
    ``"done"``          ``[*B, 1]`` bool, with ``"terminated"``: always True after a step
    ==================  =============================================================================================

    A reset draws rows without replacement; when too few are left, all rows are shuffled again. ``next`` repeats the
    observation and the label.

    >>> from steppe_openml import OpenMLEnv
    >>> env = OpenMLEnv("mushroom_num", batch_size=[8])
    >>> env.rollout(1)["next", "reward"].shape
    torch.Size([8, 1, 1])
    >>> env.action_spec.space.n  # edible or poisonous
    2

    Args:
        dataset_name: a name of ``OpenMLEnv.available_envs``.
        device: device of the data.
        batch_size: number or shape of rows that a reset draws.
        data_home: folder of scikit-learn's cache of data sets. ``None``: its default, ``~/scikit_learn_data``.
        **kwargs: for :class:`steppe.EnvBase`.

    Attributes:
        features: ``[n, k]`` float32, the features of all rows.
        labels: ``[n]`` int64, their labels.
        drawn: ``[n]`` int64 for n rows of the batch, the rows of the data set that the last resets drew.

    Raises:
        EnvNotFound: there is no such data set.
        StateError: the data set is not in the cache, and cannot be downloaded.
        ArgumentError: the batch has more rows than the data set.
    """

    git_url = "https://github.com/scikit-learn/scikit-learn"
    libname = "openml"
    available_envs = AvailableEnvs(env_names)

    def __init__(
        self,
        dataset_name: str,
        device: torch.device | str | int | None = None,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int | None = None,
        *,
        data_home: str | None = None,
        **kwargs: Any,
    ) -> None:
        if dataset_name not in SETS:
            raise env_not_found("openml", dataset_name)
        features, labels = load(dataset_name, data_home)
        super().__init__(device=device, batch_size=() if batch_size is None else batch_size, **kwargs)
        size = self.batch_size.numel()
        if size > len(labels):
            raise ArgumentError(
                f"The data set {dataset_name!r} has {len(labels)} rows, fewer than the batch of {size}."
            )
        state = self.__dict__
        state["dataset_name"] = dataset_name
        # Buffers, which move with the environment.
        self.register_buffer("features", torch.from_numpy(features).float().to(self.device or "cpu"), persistent=False)
        self.register_buffer("labels", torch.from_numpy(labels).to(self.device or "cpu"), persistent=False)
        state["_generator"] = np.random.default_rng()
        state["drawn"] = np.zeros(size, np.int64)
        state["_order"] = None
        n = int(labels.max()) + 1
        self.observation_spec = Composite(
            observation=Unbounded(shape=(*self.batch_size, features.shape[1])),
            y=Categorical(n, shape=self.batch_size),
            shape=self.batch_size,
        ).to(self.device)
        self.action_spec = Categorical(n, shape=self.batch_size).to(self.device)
        self.reward_spec = Unbounded(shape=(*self.batch_size, 1)).to(self.device)
        flag = Binary(shape=(*self.batch_size, 1), dtype=torch.bool)
        self.done_spec = Composite(done=flag, terminated=flag.clone(), shape=self.batch_size).to(self.device)

    # -- rows -----------------------------------------------------------------------------------------------------

    def no_rows_reason(self) -> str | None:
        """Return why steps are taken on TensorDicts, or None if they are taken on rows of arrays."""
        if len(self.batch_size) > 1:
            return f"its batch has {len(self.batch_size)} dimensions."
        reason: str | None = no_layout_reason(self)
        return reason

    def make_row_writer(self) -> TableWriter:
        """Make the row writer of the batch."""
        return TableWriter(self)

    def draw(self, count: int) -> np.ndarray:
        """Return the numbers of the next rows ``[count]`` int64, without replacement."""
        order: np.ndarray | None = self._order
        if order is None or len(order) < count:
            order = self._generator.permutation(len(self.labels))
        self.__dict__["_order"] = order[count:]
        return order[:count]

    def rows_of_table(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Return observation and label of rows ``[k]`` of the data set, which is on the CPU."""
        return {"observation": self.features.numpy()[numbers], "y": self.labels.numpy()[numbers]}

    # -- steps on TensorDicts -------------------------------------------------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        if kwargs:
            raise TypeError(f"OpenMLEnv.reset does not take {sorted(kwargs)}. To seed it, call env.set_seed(seed).")
        mask = None if tensordict is None else tensordict.get("_reset", None)
        chosen = slice(None) if mask is None else mask.reshape(-1).cpu().numpy()
        self.drawn[chosen] = self.draw(len(self.drawn[chosen]))
        flags = torch.zeros((*self.batch_size, 1), dtype=torch.bool, device=self.device or "cpu")
        return build_td({**self._shown(), "done": flags, "terminated": flags.clone()}, self.batch_size, self.device)

    def _shown(self) -> dict[str, torch.Tensor]:
        rows = torch.from_numpy(self.drawn.reshape(self.batch_size)).to(self.labels.device)
        return {"observation": self.features[rows], "y": self.labels[rows]}

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        shown = self._shown()
        # The root belongs to the caller, who may have edited the label or have chosen the row.
        label = tensordict.get("y", None)
        if label is None:
            label = shown["y"]
        data = {key: tensordict.get(key, None) for key in ("observation", "y")}
        following = {key: shown[key] if value is None else value.clone() for key, value in data.items()}
        reward = (tensordict.get("action") == label).float().unsqueeze(-1)
        ended = torch.ones_like(reward, dtype=torch.bool)
        return build_td(
            {**following, "reward": reward, "done": ended, "terminated": ended.clone()}, self.batch_size, self.device
        )

    def _set_seed(self, seed: int | None) -> None:
        self.__dict__["_generator"] = np.random.default_rng(seed)
        self.__dict__["_order"] = None

    @property
    def lib(self) -> Any:
        """The module ``sklearn``."""
        import sklearn

        return sklearn

    def __repr__(self) -> str:
        return f"OpenMLEnv({self.__dict__.get('dataset_name')!r}, batch_size={tuple(self.batch_size)})"
