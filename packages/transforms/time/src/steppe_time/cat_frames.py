"""CatFrames: concatenate the last observations of an episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase

import steppe
from steppe.errors import NotSupported, SpecError
from steppe.specs import Bounded, Spec, Unbounded
from steppe.transforms import Compose, EnvSpecs, Transform, as_key, first_steps, names_of, time_dim_of

from .history import OverHistory
from .windows import episode_windows

__all__ = ["CatFrames"]

_PADDING = ("same", "constant")


class CatFrames(OverHistory):
    """Concatenate each observation with the ``N - 1`` before it, the oldest first.

    The size of an observation ``[*B, *F]`` along ``dim`` becomes ``N`` times as large; the dtype stays. At the start of
    an episode, missing observations are replaced by the first one, or by ``padding_value``. A reset of some rows
    restarts these rows only.

    :meth:`unfolding` does the same with stored data, so that a buffer stores each frame once and stacks its samples.

    >>> from steppe import CatFrames, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), CatFrames(4, dim=-1, in_keys=["observation"]))
    >>> env.reset()["observation"].shape
    torch.Size([16])

    Args:
        N: number of observations.
        dim: dimension to concatenate along; negative, so that it means the same for any batch size.
        in_keys: observations to read. Default: ``["pixels"]``.
        out_keys: keys of the stacks, as many as ``in_keys``. Default: ``in_keys``.
        padding: ``"same"`` or ``"constant"``.
        padding_value: value before the first observation, with ``padding="constant"``.
        as_inverse: stack in ``inv``, which a buffer calls when it is extended, instead of in ``forward``. Not for
            environments.
        reset_key: mask of the rows that are reset, if it is not that of the level of the observation.
        done_key: the done entry below ``"next"`` that ends episodes in stored data. Default: ``"done"``.
        future: concatenate each observation with the ``N - 1`` after it, in stored data only. After the end of an
            episode, its last observation is repeated (or ``padding_value``).
        mask_key: key of a mask ``[*B, N]``, bool, True for padding, in stored data only.

    Raises:
        SpecError: ``N`` is not a whole number >= 1, ``dim`` is not negative, or ``padding`` is unknown.
        NotSupported: ``future``, ``mask_key`` or ``as_inverse`` in an environment.
    """

    memory_name = "__frames"

    def __init__(
        self,
        N: int,
        dim: int,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        padding: str = "same",
        padding_value: float = 0,
        as_inverse: bool = False,
        reset_key: NestedKey | None = None,
        done_key: NestedKey | None = None,
        future: bool = False,
        mask_key: NestedKey | None = None,
    ) -> None:
        if isinstance(N, bool) or not isinstance(N, int) or N < 1:
            raise SpecError(f"CatFrames: N must be a whole number >= 1, found {N!r}.")
        if isinstance(dim, bool) or not isinstance(dim, int) or dim >= 0:
            raise SpecError(
                f"CatFrames: dim must be negative, because batches add dimensions in front; found {dim!r}. For images "
                "of shape [channels, height, width], pass -3."
            )
        if padding not in _PADDING:
            raise SpecError(f"CatFrames: padding must be 'same' or 'constant', found {padding!r}.")
        super().__init__(["pixels"] if in_keys is None else in_keys, out_keys, reset_key)
        self.N, self.dim = N, dim
        self.padding, self.padding_value = padding, padding_value
        self.as_inverse, self.future = bool(as_inverse), bool(future)
        self.done_key = "done" if done_key is None else as_key(done_key)
        self.mask_key = None if mask_key is None else as_key(mask_key)

    @property
    def over_time(self) -> bool:  # type: ignore[override]
        """Whether a call reads steps in order of time: unless ``as_inverse`` is set."""
        return not self.as_inverse

    def shared_key(self) -> Any:
        keys = (tuple(self.in_keys), tuple(self.out_keys), self._reset_key)
        return (type(self), self.N, self.dim, self.padding, self.padding_value, *keys)

    # -- in an environment -----------------------------------------------------------------------------------------

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        for name in ("future", "mask_key", "as_inverse"):
            if getattr(self, name):
                raise NotSupported(
                    f"CatFrames({name}={getattr(self, name)!r}) works on stored data only, such as samples of a "
                    "buffer. Leave it out for an environment."
                )
        return super().transform_specs(specs)

    def remembered(self, shape: tuple[int, ...], batch_dims: int) -> tuple[int, ...] | None:
        if len(shape) - batch_dims < -self.dim:
            raise SpecError(
                f"CatFrames: dim={self.dim} needs observations of at least {-self.dim} dimensions, found "
                f"{tuple(shape[batch_dims:])}. Put an UnsqueezeTransform before it, or choose another dim."
            )
        if self.N == 1:
            return None
        at = len(shape) + self.dim
        return (*shape[:at], shape[at] * (self.N - 1), *shape[at + 1 :])

    def result_spec(self, leaf: Spec) -> Spec:
        at = leaf.ndim + self.dim
        shape = (*leaf.shape[:at], leaf.shape[at] * self.N, *leaf.shape[at + 1 :])
        if isinstance(leaf, Bounded):
            low, high = (torch.cat([bound] * self.N, self.dim) for bound in (leaf.space.low, leaf.space.high))
            if self.padding == "constant":
                low, high = low.clamp(max=self.padding_value), high.clamp(min=self.padding_value)
            return Bounded(low, high, shape=shape, device=leaf.device, dtype=leaf.dtype)
        try:
            wide = leaf.unsqueeze(at).expand(*leaf.shape[:at], self.N, *leaf.shape[at:])
            return wide.flatten(at, at + 1)
        except SpecError:  # the domain may change: a stack of one-hot vectors is not one-hot
            return Unbounded(shape, device=leaf.device, dtype=leaf.dtype)

    def following(self, value: torch.Tensor, memory: torch.Tensor | None, dims: int) -> Any:
        if memory is None:
            return value, None
        result = torch.cat((memory, value), self.dim)
        size = value.shape[self.dim]
        return result, result.narrow(self.dim, size, size * (self.N - 1))

    def first(self, value: torch.Tensor, dims: int) -> Any:
        if self.N == 1:
            return value, None
        filler = value if self.padding == "same" else torch.full_like(value, self.padding_value)
        result = torch.cat([filler] * (self.N - 1) + [value], self.dim)
        size = value.shape[self.dim]
        return result, result.narrow(self.dim, size, size * (self.N - 1))

    def kernel(self, arrays: dict[str, Any]) -> Any:
        value, result, memory = arrays["value"], arrays["result"], arrays["memory"]
        size, n, dim, copy = value.shape[self.dim], self.N, self.dim, np.copyto
        constant = self.padding == "constant"

        def part(array: Any, begin: int, end: int) -> Any:
            index: list[Any] = [slice(None)] * array.ndim
            index[dim] = slice(begin * size, end * size)
            return array[tuple(index)]

        if memory is None:
            first_value, first_result = arrays["first_value"], arrays["first_result"]

            def copy_first(row: int) -> None:
                first_result[row] = first_value[row]

            return (lambda: copy(result, value, casting="unsafe")), copy_first
        older, newest, later = part(result, 0, n - 1), part(result, n - 1, n), part(result, 1, n)
        kept = arrays["next_memory"]

        def step() -> None:
            copy(older, memory, casting="unsafe")
            copy(newest, value, casting="unsafe")
            copy(kept, later, casting="unsafe")

        first_value, first_memory = arrays["first_value"], arrays["first_memory"]
        places = [part(arrays["first_result"], i, i + 1) for i in range(n)]
        first_later = part(arrays["first_result"], 1, n)
        padding = self.padding_value

        def reset(row: int) -> None:
            for place in places[:-1]:
                place[row] = padding if constant else first_value[row]
            places[-1][row] = first_value[row]
            first_memory[row] = first_later[row]

        return step, reset

    # -- on stored data --------------------------------------------------------------------------------------------

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Call :meth:`unfolding`, unless ``as_inverse`` is set."""
        return tensordict if self.as_inverse else self.unfolding(tensordict)

    def inv(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Call :meth:`unfolding` on a copy, if ``as_inverse`` is set."""
        return self.unfolding(tensordict.copy()) if self.as_inverse else tensordict

    def unfolding(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Stack the observations of stored steps, as in an environment.

        The time dimension is the batch dimension of that name, or the last one. Episodes end where
        ``("next", done_key)`` is True or ``("collector", "traj_ids")`` changes; the first step of the data counts as
        the start of an episode. If an observation
        and its entry below ``"next"`` are both among ``in_keys``, the stacks below ``"next"`` continue those of the
        root.

        Args:
            tensordict: data ``[*B, T]`` with the entries ``in_keys``; changed in place.

        Returns:
            ``tensordict`` with the stacks at ``out_keys``, and ``[*B, T, N]`` bool at ``mask_key``.

        Raises:
            SpecError: the data has no batch dimension.
            KeyError: one of ``in_keys`` or the done entry is missing (``future`` does not need the latter).
            NotSupported: ``future`` with an observation and its entry below ``"next"``.
        """
        time = time_dim_of(tensordict, "CatFrames")
        size = tensordict.batch_size
        try:
            begins = first_steps(tensordict, "CatFrames", self.done_key)
        except KeyError:
            if not self.future:
                raise
            begins = torch.zeros(size, dtype=torch.bool, device=tensordict.get(self.in_keys[0]).device)
            begins = begins.movedim(time, -1)
        begins = begins.movedim(-1, time).transpose(time, -1)  # time changes places with the last dimension below
        index, padded = episode_windows(begins, self.N, future=self.future)
        if self.mask_key is not None:
            tensordict.set(self.mask_key, padded.transpose(time, -2))
        last = len(size) - 1
        roots: dict[Any, torch.Tensor] = {}
        pairs = self.key_pairs
        # Roots first, because the stacks below "next" continue them.
        for key, out_key in sorted(pairs, key=lambda pair: names_of(pair[0])[0] == "next"):
            value = tensordict.get(key, None)
            if value is None:
                raise KeyError(f"CatFrames: there is no {key!r} in the data. Found {_keys_of(tensordict)}.")
            value = value.transpose(time, last)
            names = names_of(key)
            root = roots.get(as_key(names[1:])) if len(names) > 1 and names[0] == "next" else None
            if root is None:
                frames = self._windows(value, index, padded, last)
                roots[key] = frames
            elif self.future:
                raise NotSupported(
                    f"CatFrames(future=True): in_keys has {key!r} and its entry at the root, which need different "
                    "windows. Use one transform for each."
                )
            else:
                frames = torch.cat(
                    [root[(slice(None),) * (last + 1) + (slice(1, None),)], value.unsqueeze(last + 1)], last + 1
                )
            # [*B, T, N, *F]: the dimension of the windows moves in front of the one to concatenate along.
            joined = frames.movedim(last + 1, self.dim - 1).flatten(self.dim - 1, self.dim)
            tensordict.set(out_key, joined.transpose(time, last))
        return tensordict

    def _windows(self, value: torch.Tensor, index: torch.Tensor, padded: torch.Tensor, last: int) -> torch.Tensor:
        """Values ``[*B, T, *F]`` at ``index`` ``[*B, T, N]``: ``[*B, T, N, *F]``."""
        lead, tail = value.shape[: last + 1], value.shape[last + 1 :]
        flat = value.reshape(-1, lead[-1], *tail)
        steps = index.reshape(-1, *index.shape[-2:])
        rows = torch.arange(len(flat), device=flat.device).reshape(-1, 1, 1)
        frames = flat[rows, steps].reshape(*lead, self.N, *tail)
        if self.padding == "constant":
            frames = frames.masked_fill(padded.reshape(*padded.shape, *(1,) * len(tail)), self.padding_value)
        return frames

    def make_rb_transform_and_sampler(self, batch_size: int, *, sampler: Any = None, **sampler_kwargs: Any) -> Any:
        """Make a transform and a sampler for a replay buffer of single frames.

        The buffer stores each frame once, and the transform stacks the frames of samples. It does not store the stacks
        at ``out_keys`` that an environment with this transform makes. If ``out_keys`` are ``in_keys``, a transform in
        front of this one must therefore make single frames of other entries of the samples; for a CatFrames that is in
        no environment, these entries are taken for single frames, and are stored.

        Args:
            batch_size: stacks in a sample; sample ``batch_size * N`` frames of the buffer.
            sampler: sampler class with an argument ``slice_len``. Default: ``SliceSampler`` of steppe-replay, which
                then marks no ends of slices (``truncated_key=None``), because each slice becomes one step.
            **sampler_kwargs: arguments of the sampler.

        Returns:
            The transform for the buffer, and the sampler of slices of ``N`` steps.

        Raises:
            CollectorNotFound: no ``sampler`` was passed, and steppe-replay is not installed.

        Examples:
            >>> from steppe.transforms import CatFrames
            >>> from steppe_replay import LazyTensorStorage, ReplayBuffer
            >>> transform, sampler = CatFrames(4, -3).make_rb_transform_and_sampler(32)
            >>> buffer = ReplayBuffer(
            ...     storage=LazyTensorStorage(1000), sampler=sampler, transform=transform, batch_size=32 * 4
            ... )
        """
        if sampler is None:
            sampler = steppe.SliceSampler
            sampler_kwargs.setdefault("truncated_key", None)
        keys, out_keys = list(self.in_keys), list(self.out_keys)
        stacked = type(self)(
            self.N,
            self.dim,
            [*keys, *(("next", *names_of(key)) for key in keys)],
            [*out_keys, *(("next", *names_of(key)) for key in out_keys)],
            self.padding,
            self.padding_value,
            reset_key=self._reset_key,
            done_key=self.done_key,
            future=self.future,
            mask_key=self.mask_key,
        )
        slices = sampler(slice_len=self.N, **sampler_kwargs)
        single = set() if self.parent is not None else set(stacked.in_keys)
        transform = Compose(
            _Rows(self.N),
            stacked,
            _Last(),
            _NotStored([key for key in stacked.out_keys if key not in single]),
        )
        return transform, slices

    def _repr_keys(self) -> Any:
        return ("N", "dim", "in_keys", "out_keys")


class _Rows(Transform):
    """Reshape slices one after the other, ``[n * length]``, to ``[n, length]``.

    Args:
        length: steps of a slice.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the rows."""
        return tensordict.reshape(-1, self.length)


class _Last(Transform):
    """Take the last step of each slice ``[n, length]``."""

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the steps ``[n]``."""
        return tensordict[:, -1]


class _NotStored(Transform):
    """Drop entries of data that is added to a replay buffer; samples stay unchanged.

    Args:
        keys: the entries.
    """

    def __init__(self, keys: list[Any]) -> None:
        super().__init__()
        self.keys = keys

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict.exclude(*self.keys)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the data unchanged."""
        return tensordict


def _keys_of(tensordict: TensorDictBase) -> list[str]:
    return sorted(map(str, tensordict.keys(include_nested=True, leaves_only=True)))
