"""RandomTruncationTransform: truncate episodes at random lengths."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import SpecError, StateError
from steppe.specs import Bounded, Composite
from steppe.transforms import (
    EnvSpecs,
    Hooks,
    PlannedTransform,
    RowGenerators,
    RowHooks,
    as_key,
    names_of,
    replace_last,
    set_beside,
)

__all__ = ["RandomTruncationTransform"]

_FLAGS = ("done", "terminated", "truncated")


class RandomTruncationTransform(PlannedTransform):
    """Truncate episodes after a random number of steps, drawn for each row.

    If all rows of a batch start together and have episodes of the same length, each batch of data covers the same phase
    of the episodes. To prevent this, the length of the first episode of a row is drawn from 1 to ``max_horizon``. With
    a probability, the length of a later one is drawn from ``min_horizon`` to ``max_horizon``; otherwise it is
    ``max_horizon``. Episodes may end earlier. Put a :class:`~steppe.transforms.StepCounter` before this transform,
    which compares its count with the length.

    The length is a private entry of the data, whose name begins with two underscores. ``set_seed`` restarts the
    counting of episodes.

    >>> from steppe import Compose, RandomTruncationTransform, SerialEnv, StepCounter, TransformedEnv
    >>> from steppe_testing import CountingEnv
    >>> chain = Compose(StepCounter(), RandomTruncationTransform(10, 50))
    >>> env = TransformedEnv(SerialEnv(3, lambda: CountingEnv(max_steps=1000)), chain)
    >>> _ = env.set_seed(0)
    >>> data = env.rollout(50, break_when_any_done=False)
    >>> data["next", "truncated"].squeeze(-1).int().argmax(-1) + 1  # lengths of the first episodes
    tensor([45, 22, 15])

    Args:
        min_horizon: minimum length of a truncated episode, in steps.
        max_horizon: maximum length of all episodes; usually the time limit of the environment.
        prob: probability of drawing the length of an episode.
        first_episode_prob: the same for the second episode of a row, the first one after the initial spread. Default:
            ``prob``.
        step_count_key: the count: a name at any level, or a key.
        truncated_key: the entry to set: a name at the level of the count, or a key. Added if it does not exist.
        done_key: ``done`` to set, in the same way.

    Raises:
        SpecError: a probability is not between 0 and 1, the horizons are not ``1 <= min_horizon <= max_horizon``, or
            the environment has no count.
    """

    writes_done = True
    needs_env = True
    does = "ends episodes of its environment at random"

    def __init__(
        self,
        min_horizon: int,
        max_horizon: int,
        prob: float = 0.0,
        first_episode_prob: float | None = None,
        *,
        step_count_key: NestedKey = "step_count",
        truncated_key: NestedKey = "truncated",
        done_key: NestedKey = "done",
    ) -> None:
        first_episode_prob = prob if first_episode_prob is None else first_episode_prob
        for name, value in (("prob", prob), ("first_episode_prob", first_episode_prob)):
            if not 0.0 <= value <= 1.0:
                raise SpecError(f"RandomTruncationTransform: {name} must be from 0 to 1, found {value!r}.")
        if not 1 <= min_horizon <= max_horizon:
            raise SpecError(
                "RandomTruncationTransform: expected 1 <= min_horizon <= max_horizon, found "
                f"{min_horizon!r} and {max_horizon!r}."
            )
        super().__init__()
        self.min_horizon, self.max_horizon = min_horizon, max_horizon
        self.prob, self.first_episode_prob = prob, first_episode_prob
        self.step_count_key, self.truncated_key, self.done_key = map(as_key, (step_count_key, truncated_key, done_key))
        self._draws = RowGenerators()
        #: Number of episodes that each row has started, which decides how the next length is drawn.
        self._begun: list[int] = []

    def _set_seed(self, seed: int | None) -> None:
        self._draws.seed(seed)
        self._begun = []

    def clone(self) -> Any:
        twin = super().clone()
        twin._draws, twin._begun = RowGenerators(), []
        return twin

    needs_all_rows = True  # it counts the episodes of each row

    # -- specs -----------------------------------------------------------------------------------------------------

    def _count_key(self, specs: EnvSpecs) -> Any:
        observed = list(specs.observation.keys(include_nested=True, leaves_only=True))
        count = self.step_count_key
        if count in observed:
            return count
        for key in observed:
            if isinstance(count, str) and names_of(key)[-1] == count:
                return key
        if self.missing_tolerance:
            return count
        raise SpecError(
            f"RandomTruncationTransform: there is no count {count!r} before it. Put StepCounter() before it in the "
            f"chain, or name the count with step_count_key. Found {observed}."
        )

    def _keys(self, specs: EnvSpecs) -> tuple[Any, Any, Any, Any]:
        """Return the keys of the count, of ``truncated``, of ``done`` and of the length."""
        count = self._count_key(specs)
        truncated, done = (
            key if isinstance(key, tuple) else replace_last(count, key) for key in (self.truncated_key, self.done_key)
        )
        if specs.done.get(done, None) is None:
            raise SpecError(
                f"RandomTruncationTransform: the environment has no done entry {done!r} beside the count {count!r}. "
                f"Name one of {list(specs.done.keys(include_nested=True, leaves_only=True))} with done_key."
            )
        return count, truncated, done, replace_last(count, "__horizon")

    def memory_spec(self, specs: EnvSpecs) -> Composite:
        count, _, _, horizon = self._keys(specs)
        leaf = specs.observation[count]
        spec = Composite({}, shape=specs.batch_size, device=specs.device)
        most = torch.iinfo(torch.int64).max
        length = Bounded(0, most, shape=leaf.shape, device=leaf.device, dtype=torch.int64)
        set_beside(spec, horizon, length, specs.observation)
        return spec

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        _, truncated, done, _ = self._keys(specs)
        specs = specs.copy()
        if specs.done.get(truncated, None) is None:
            where = specs.done if names_of(truncated)[-1] in _FLAGS else specs.observation
            set_beside(where, truncated, specs.done[done].clone(), specs.done)
        return specs

    # -- steps -----------------------------------------------------------------------------------------------------

    def hooks(self, specs: EnvSpecs) -> Hooks:
        count_key, truncated_key, done_key, horizon_key = self._keys(specs)
        shape = tuple(specs.observation[count_key].shape[len(specs.batch_size) :])
        group = next((level for level in specs.groups if level.prefix == names_of(count_key)[:-1]), specs.groups[0])
        observed = names_of(truncated_key)[-1] not in _FLAGS

        def step(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
            horizon = td.get(horizon_key, None)
            if horizon is None:
                raise StateError(
                    f"RandomTruncationTransform: the argument of step has no {horizon_key!r}. Step what "
                    "reset, step_mdp or step_and_maybe_reset returned, with an action added to it. Found "
                    f"{sorted(map(str, td.keys()))}."
                )
            following.set(horizon_key, horizon)
            reached = following.get(count_key) >= horizon
            truncated = following.get(truncated_key, None)
            following.set(truncated_key, reached if truncated is None else truncated | reached)
            return following.set(done_key, following.get(done_key) | reached)

        def reset(td: TensorDictBase | None, fresh: TensorDictBase) -> TensorDictBase:
            size = fresh.batch_size
            mask = None if td is None else td.get(group.reset_key, td.get("_reset", None))
            rows = [True] * size.numel() if mask is None else mask.reshape(size.numel(), -1).any(-1).tolist()
            drawn = [self._draw(row, len(rows), shape) if begins else None for row, begins in enumerate(rows)]
            blank = torch.full(shape, self.max_horizon, dtype=torch.int64, device="cpu")
            horizons = torch.stack([blank if horizon is None else horizon for horizon in drawn]).reshape(*size, *shape)
            fresh.set(horizon_key, horizons.to(fresh.get(count_key).device))
            if observed:
                fresh.set(truncated_key, torch.zeros_like(fresh.get(done_key)))
            return fresh

        default_keys = truncated_key == "truncated" and done_key == "done" and "truncated" in specs.done.keys()
        rows = self._row_hooks(count_key, horizon_key, shape) if default_keys else None
        return Hooks(step=step, reset=reset, reads_root=[horizon_key], rows=rows)

    def _draw(self, row: int, rows: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Draw the length of the next episode of a row."""
        begun: list[int] = self._begun
        begun += [0] * (rows - len(begun))
        number, generator = begun[row], self._draws.of(rows)[row]
        begun[row] += 1
        if number == 0:
            return torch.randint(1, self.max_horizon + 1, shape, generator=generator, device="cpu")
        prob = self.first_episode_prob if number == 1 else self.prob
        drawn = torch.randint(self.min_horizon, self.max_horizon + 1, shape, generator=generator, device="cpu")
        cut = torch.rand(shape, generator=generator, device="cpu") < prob
        return torch.where(cut, drawn, self.max_horizon)

    def _row_hooks(self, count_key: Any, horizon_key: Any, shape: tuple[int, ...]) -> RowHooks:
        def bind(root: Any, following: Any) -> Any:
            before, horizon, count = root[horizon_key], following[horizon_key], following[count_key]
            done, truncated = following["done"], following["truncated"]
            rows = len(count)

            def step() -> bool:
                horizon[...] = before
                reached = count >= before
                if not reached.any():
                    return False
                truncated[...] |= reached
                done[...] |= reached
                return True

            def reset(at: Any) -> None:
                for row in at:
                    before[row] = self._draw(row, rows, shape).numpy()

            return step, reset

        return RowHooks(bind, root_inputs=[horizon_key], reads=[count_key])

    def _repr_keys(self) -> Any:
        return ("min_horizon", "max_horizon", "prob", "first_episode_prob")
