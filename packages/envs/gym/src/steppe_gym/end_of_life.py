"""EndOfLifeTransform: mark the loss of a life in games that continue after it."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import NotSupported, SpecError
from steppe.specs import Composite, Unbounded
from steppe.transforms import Transform

__all__ = ["EndOfLifeTransform"]


class EndOfLifeTransform(Transform):
    """Mark the steps at which a life was lost, without ending the episode.

    Losses that bootstrap read the mark instead of done, see :meth:`register_keys`: learning treats the loss of a life
    as the end of an episode, while the game continues.

    >>> env = TransformedEnv(GymEnv("ALE/Breakout-v5"), EndOfLifeTransform())  # doctest: +SKIP

    The number of lives is read from the environment. For a batch, put the transform inside the batch, or add the number
    of lives to the observations: ``env.set_info_dict_reader(["lives"])``.

    Args:
        eol_key: key of the mark, with shape and dtype of ``done_key``: True if a life was lost or the episode ended.
        lives_key: key of the number of lives, ``[*B]`` int64. If the environment has this entry, it is read; otherwise
            it is written.
        done_key: key of the done entry whose shape and dtype the mark has.
        eol_attribute: dotted path of the environment's attribute or method that returns the number of lives.
    """

    needs_env = True
    does = "reads the lives of its environment"

    def __init__(
        self,
        eol_key: NestedKey = "end-of-life",
        lives_key: NestedKey = "lives",
        done_key: NestedKey = "done",
        eol_attribute: str = "unwrapped.ale.lives",
    ) -> None:
        self.__dict__["_observed"] = False
        super().__init__(out_keys=[eol_key])
        self.eol_key = eol_key
        self.lives_key = lives_key
        self.done_key = done_key
        self.eol_attribute = eol_attribute

    @property
    def reads_root(self) -> list[Any]:  # type: ignore[override]
        """The number of lives, which a step compares with the number after it."""
        return [self.lives_key]

    @property
    def writes_done(self) -> bool:
        """Whether lives are read from the environment.

        They must be read before the environment is reset, as if this transform wrote done entries.
        """
        return not self._observed

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        """Add the mark and the number of lives."""
        parent = self.parent
        assert parent is not None
        if self.done_key not in parent.done_keys:
            raise SpecError(
                f"EndOfLifeTransform: the environment has no done entry {self.done_key!r}. It has {parent.done_keys}."
            )
        self._observed = self.lives_key in observation_spec
        observation_spec[self.eol_key] = parent.full_done_spec[self.done_key].clone()
        if not self._observed:
            observation_spec[self.lives_key] = Unbounded(parent.batch_size, dtype=torch.int64, device=parent.device)
        return observation_spec

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        before = tensordict.get(self.lives_key, None)
        if before is None:
            raise KeyError(
                f"EndOfLifeTransform: the data passed to step has no {self.lives_key!r}, which reset writes. Pass data "
                "that reset or step returned."
            )
        lives = self._lives(next_tensordict)
        done = next_tensordict.get(self.done_key)
        next_tensordict.set(self.eol_key, (lives < before).reshape(done.shape) | done)
        return next_tensordict

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        self._lives(tensordict_reset)
        done = tensordict_reset.get(self.done_key)
        tensordict_reset.set(self.eol_key, torch.zeros_like(done))
        return tensordict_reset

    def _lives(self, data: TensorDictBase) -> torch.Tensor:
        """Return the number of lives.

        If the number is not observed, it is also written into ``data``.
        """
        if self._observed:
            lives: torch.Tensor = data.get(self.lives_key)
            return lives
        env = self.container
        if data.batch_size:
            raise NotSupported(
                "EndOfLifeTransform reads the lives of a single environment. For a batch, put it inside the batch, or "
                "add the number of lives to the observations of each environment with set_info_dict_reader(['lives'])."
            )
        value = reduce(getattr, self.eol_attribute.split("."), getattr(env, "base_env", env))
        lives = torch.tensor(int(value() if callable(value) else value), device=data.device or "cpu")
        data.set(self.lives_key, lives)
        return lives

    def register_keys(self, loss: Any) -> None:
        """Make a loss, or an advantage estimator, use the mark as done and terminated.

        Args:
            loss: an object with a method ``set_keys(done=..., terminated=...)``.
        """
        loss.set_keys(done=self.eol_key, terminated=self.eol_key)
