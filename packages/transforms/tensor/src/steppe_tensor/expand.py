"""ExpandAs: expand an entry to the shape of another."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import Composite, Spec
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform, RowHooks, as_key, names_of, set_beside

__all__ = ["ExpandAs"]

_FLAGS = ("done", "terminated", "truncated")


class ExpandAs(PlannedTransform):
    """Expand an entry to the shape of another by adding dimensions at the end.

    Use it to give each agent of a group its own ``done``, for example.

    At a reset, which has no reward, the shape of a reward is read from its spec.

    >>> from steppe import ExpandAs, TransformedEnv
    >>> from steppe_testing import NestedCountingEnv
    >>> base = NestedCountingEnv(n_agents=3, root_done="all", group_done=False)
    >>> env = TransformedEnv(base, ExpandAs("done", ("agents", "reward"), ("agents", "episode_done")))
    >>> env.rollout(2)["next", "agents", "episode_done"].shape
    torch.Size([2, 3, 1])

    Args:
        in_key: entry to expand: an observation, reward or done entry.
        ref_key: entry with the shape of the result.
        out_key: key of the result. Default: ``in_key``. An expanded done entry is an observation and needs another
            name, because all done entries of a level have the same shape.

    Raises:
        SpecError: the environment lacks one of the entries, the shapes do not match, or the result would be a done
            entry of another shape.
    """

    def __init__(self, in_key: NestedKey, ref_key: NestedKey, out_key: NestedKey | None = None) -> None:
        super().__init__()
        self.in_key, self.ref_key = as_key(in_key), as_key(ref_key)
        self.out_key = self.in_key if out_key is None else as_key(out_key)

    @property
    def in_keys(self) -> list[Any]:
        """The entry to expand, in a list."""
        return [self.in_key]

    @property
    def out_keys(self) -> list[Any]:
        """The key of the result, in a list."""
        return [self.out_key]

    def _entry(self, specs: EnvSpecs, key: Any) -> tuple[Composite, Spec]:
        for spec in (specs.observation, specs.reward, specs.done):
            leaf = spec.get(key, None)
            if leaf is not None:
                return spec, leaf
        existing = [key for spec in (specs.observation, specs.reward, specs.done) for key in spec.keys(True, True)]
        raise SpecError(f"ExpandAs: the environment has no entry {key!r}. It has {existing}.")

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        kinds = (specs.observation, specs.reward, specs.done)
        if self.missing_tolerance and any(
            all(spec.get(key, None) is None for spec in kinds) for key in (self.in_key, self.ref_key)
        ):
            return specs
        spec, leaf = self._entry(specs, self.in_key)
        like, reference = self._entry(specs, self.ref_key)
        missing = reference.ndim - leaf.ndim
        for _ in range(missing):
            leaf = leaf.unsqueeze(-1)
        if missing < 0 or any(a not in (1, b) for a, b in zip(leaf.shape, reference.shape, strict=True)):
            raise self._other_shape(leaf.shape, reference.shape)
        if names_of(self.out_key)[-1] in _FLAGS and reference.shape != self._entry(specs, self.in_key)[1].shape:
            raise SpecError(
                f"ExpandAs: {self.out_key!r} would have the shape {tuple(reference.shape)}, but all done entries of a "
                f"level have the same shape. Choose another key, such as out_key={self._other_name()!r}."
            )
        observed = spec is specs.done and names_of(self.out_key)[-1] not in _FLAGS
        target = specs.observation if observed else spec
        set_beside(target, self.out_key, leaf.expand(reference.shape), like)
        return specs

    def _other_name(self) -> Any:
        above = names_of(self.ref_key)[:-1]
        return (*above, f"each_{names_of(self.in_key)[-1]}") if above else f"each_{names_of(self.in_key)[-1]}"

    def _other_shape(self, shape: Any, reference: Any) -> SpecError:
        return SpecError(
            f"ExpandAs: {self.in_key!r} of shape {tuple(shape)} cannot be expanded at the end to the shape "
            f"{tuple(reference)} of {self.ref_key!r}: the first sizes must be equal, or 1."
        )

    def hooks(self, specs: EnvSpecs) -> Hooks:
        batch = len(specs.batch_size)
        tail = tuple(self._entry(specs, self.ref_key)[1].shape[batch:])
        in_root = specs.reward.get(self.in_key, None) is None

        def expand(_: Any, data: TensorDictBase) -> TensorDictBase:
            value = data.get(self.in_key)
            return data.set(self.out_key, _expanded(value, (*data.batch_size, *tail)))

        rows = RowHooks(_Kernel(self.in_key, self.out_key, tail), reads=[self.in_key])
        return Hooks(step=expand, reset=expand if in_root else None, reads_root=False, rows=rows)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Expand an entry of data that comes from no environment.

        Args:
            tensordict: data of any batch size with both entries. Its entries are replaced; tensors are not changed.

        Raises:
            KeyError: an entry is missing.
            SpecError: the shapes do not match.
        """
        for key in (self.in_key, self.ref_key):
            if tensordict.get(key, None) is None:
                if self.missing_tolerance:
                    return tensordict
                keys = sorted(map(str, tensordict.keys(include_nested=True, leaves_only=True)))
                raise KeyError(f"ExpandAs: the data has no entry {key!r}. It has {keys}.")
        value, reference = tensordict.get(self.in_key), tensordict.get(self.ref_key)
        try:
            return tensordict.set(self.out_key, _expanded(value, reference.shape))
        except RuntimeError:
            raise self._other_shape(value.shape, reference.shape) from None

    def shared_key(self) -> Any:
        return (type(self), self.in_key, self.ref_key, self.out_key)

    def _repr_keys(self) -> Any:
        return ("in_key", "ref_key", "out_key")


def _expanded(value: torch.Tensor, shape: Any) -> torch.Tensor:
    # Expanded views share memory, so a write to one element would change others.
    return value.reshape(value.shape + (1,) * (len(shape) - value.ndim)).expand(shape).contiguous()


class _Kernel:
    """Numpy version of the transform, for blocks of rows."""

    def __init__(self, in_key: Any, out_key: Any, tail: tuple[int, ...]) -> None:
        self.in_key, self.out_key, self.tail = in_key, out_key, tail

    def _pair(self, arrays: Any) -> tuple[Any, Any] | None:
        source, target = arrays.before.get(self.in_key), arrays.get(self.out_key)
        if source is None or target is None:
            return None  # rewards are only in ``next``
        return target, source.reshape(source.shape + (1,) * (target.ndim - source.ndim))

    def __call__(self, root: Any, following: Any) -> Any:
        after, at_root = self._pair(following), self._pair(root)

        def step() -> bool:
            if after is not None:
                after[0][...] = after[1]
            return False

        def reset(at: Any) -> None:
            if at_root is not None:
                for row in at:
                    at_root[0][row] = at_root[1][row]

        return step, reset
