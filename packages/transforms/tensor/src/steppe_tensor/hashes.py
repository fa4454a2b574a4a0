"""Hash: hash values, and look up the values of hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, NonTensorData, NonTensorStack, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import Bounded, Composite, Spec, Unbounded
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform, RowHooks, as_keys, set_beside

__all__ = ["Hash"]


class Hash(PlannedTransform):
    """Hash tensors, text and objects to tensors of a fixed size.

    The default hash is SHA-256, ``[*B, 32]`` uint8: of the UTF-8 text, of the bytes of a tensor, or of ``str(object)``.
    Each row of a batch is hashed separately.

    The inverse looks up the value of a hash in ``repertoire``, which holds all values that were hashed.

    >>> from steppe import Hash, TransformedEnv
    >>> from steppe_testing import TextCountingEnv
    >>> env = TransformedEnv(TextCountingEnv(), Hash(["text"], ["text_hash"]))
    >>> root = env.reset()
    >>> root["text"], root["text_hash"].shape, root["text_hash"][:4]
    ('0', torch.Size([32]), tensor([ 95, 236, 235, 102], dtype=torch.uint8))

    Args:
        in_keys: observations to hash.
        out_keys: keys to write, as many as ``in_keys``.
        in_keys_inv: actions and states that the environment reads.
        out_keys_inv: keys of the hashes that the caller writes instead.
        hash_fn: function of a value (and of ``seed`` if it is set) that returns a tensor, of the same shape and dtype
            for all values. Default: SHA-256.
        seed: second argument of ``hash_fn``. The default hash function hashes the seed followed by the value.
        use_raw_nontensor: pass the TensorDict entry (NonTensorData) to ``hash_fn`` instead of its object.
        repertoire: dict from hashes, as tuples of numbers (or a number), to values. It is filled in place. Default: an
            empty one if ``in_keys_inv`` are passed, else None.

    Raises:
        SpecError: the numbers of ``in_keys`` and ``out_keys`` differ, the environment has no such entry, or ``hash_fn``
            returns no tensor.
    """

    invertible = True

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None,
        out_keys: NestedKey | Sequence[NestedKey] | None,
        in_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        *,
        hash_fn: Callable[..., torch.Tensor] | None = None,
        seed: object = None,
        use_raw_nontensor: bool = False,
        repertoire: dict[object, object] | None = None,
    ) -> None:
        super().__init__()
        self.read, self.written = as_keys(in_keys), as_keys(out_keys)
        self.given_inv = as_keys(in_keys_inv)
        self.asked_inv = self.given_inv if out_keys_inv is None else as_keys(out_keys_inv)
        for names, first, second in (
            ("in_keys and out_keys", self.read, self.written),
            ("in_keys_inv and out_keys_inv", self.given_inv, self.asked_inv),
        ):
            if len(first) != len(second):
                raise SpecError(f"Hash: {names} must have the same length, found {first} and {second}.")
        self.hash_fn, self.seed, self.use_raw_nontensor = hash_fn, seed, use_raw_nontensor
        self.repertoire = {} if repertoire is None and self.given_inv else repertoire

    in_keys = property(lambda self: list(self.read), doc="The entries to hash.")
    out_keys = property(lambda self: list(self.written), doc="The keys of the hashes.")
    in_keys_inv = property(lambda self: list(self.given_inv), doc="The entries that the environment reads.")
    out_keys_inv = property(lambda self: list(self.asked_inv), doc="The keys of the hashes that the caller writes.")

    # -- one value ------------------------------------------------------------------------------------------------

    @classmethod
    def reproducible_hash(cls, value: Any, seed: Any = None) -> torch.Tensor:
        """Return the SHA-256 of a value, ``[32]`` uint8: the same in every process.

        Args:
            value: text, a tensor or array, None (hashed as empty text), or an object (hashed as its ``str``).
            seed: prefix of the value.
        """
        digest = hashlib.sha256()
        if seed is not None:
            digest.update(_bytes(seed))
        digest.update(_bytes(value))
        return torch.from_numpy(np.frombuffer(digest.digest(), np.uint8).copy())

    def call_hash_fn(self, value: Any) -> torch.Tensor:
        """Hash one value, and add it to the repertoire if there is one."""
        function = self.reproducible_hash if self.hash_fn is None else self.hash_fn
        result = function(value) if self.seed is None else function(value, self.seed)
        if not isinstance(result, torch.Tensor):
            raise SpecError(
                f"Hash: hash_fn must return a tensor, found {type(result).__name__}. Use torch.tensor(...)."
            )
        if self.repertoire is not None:
            self.repertoire[self.hash_to_repertoire_key(result)] = (
                value.clone() if isinstance(value, torch.Tensor) else copy(value)
            )
        return result

    @classmethod
    def hash_to_repertoire_key(cls, hash_tensor: Any) -> Any:
        """Return a hash as tuples of numbers: its key in the repertoire."""
        values = hash_tensor.tolist() if isinstance(hash_tensor, torch.Tensor) else hash_tensor
        return tuple(cls.hash_to_repertoire_key(value) for value in values) if isinstance(values, list) else values

    def get_input_from_hash(self, hash_tensor: torch.Tensor) -> Any:
        """Return the value of a hash.

        Raises:
            SpecError: there is no repertoire, or the hash is not in it.
        """
        if self.repertoire is None:
            raise SpecError(
                "Hash: without a repertoire, hashes cannot be looked up. Pass repertoire={}, or in_keys_inv."
            )
        key = self.hash_to_repertoire_key(hash_tensor)
        if key not in self.repertoire:
            raise SpecError(
                f"Hash: the hash {str(key)[:60]} is not in the repertoire of {len(self.repertoire)} values. Pass all "
                "values that may occur as repertoire={...}."
            )
        return self.repertoire[key]

    # -- data -----------------------------------------------------------------------------------------------------

    def _hashed(self, value: Any, lead: torch.Size) -> torch.Tensor:
        """Return the hashes of an entry with the leading dimensions ``lead``."""
        hashes = [self.call_hash_fn(datum) for datum in self._each(value, lead)]
        if not lead:
            return hashes[0]
        return torch.stack(hashes).reshape(*lead, *hashes[0].shape)

    def _each(self, value: Any, lead: torch.Size) -> list[Any]:
        if isinstance(value, torch.Tensor):
            return [value] if not lead else list(value.flatten(0, len(lead) - 1).unbind(0))
        if isinstance(value, (NonTensorData, NonTensorStack)):
            raw: list[Any] = [value] if not lead else list(value.reshape(-1).unbind(0))
            return raw if self.use_raw_nontensor else [entry.tolist() for entry in raw]
        return [value]

    def _forward(self, data: TensorDictBase) -> TensorDictBase:
        for key, out_key in zip(self.read, self.written, strict=True):
            value = data.get(key, None)
            if value is not None:
                data.set(out_key, self._hashed(value, data.batch_size))
            elif not self.missing_tolerance:
                keys = sorted(map(str, data.keys(include_nested=True)))
                raise KeyError(f"Hash: the data has no entry {key!r}. It has {keys}.")
        return data

    def _backward(self, data: TensorDictBase) -> TensorDictBase:
        for key, out_key in zip(self.given_inv, self.asked_inv, strict=True):
            hashes = data.get(out_key, None)
            if hashes is None:
                continue
            lead = data.batch_size
            rows = [hashes] if not lead else list(hashes.flatten(0, len(lead) - 1).unbind(0))
            values = [self.get_input_from_hash(row) for row in rows]
            if out_key != key:
                data = data.exclude(out_key)
            if all(isinstance(value, torch.Tensor) for value in values):
                stacked = values[0] if not lead else torch.stack(values).reshape(*lead, *values[0].shape)
                data.set(key, stacked)
            elif not lead:
                data.set_non_tensor(key, values[0])
            else:
                stack = NonTensorStack(*(NonTensorData(value) for value in values))
                data.set(key, stack.reshape(*lead) if len(lead) > 1 else stack)
        return data

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Hash entries of data that comes from no environment.

        Args:
            tensordict: data of any batch size. Its entries are replaced; tensors are not changed.

        Raises:
            KeyError: an entry is missing.
        """
        return self._forward(tensordict)

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        return self._backward(tensordict)

    # -- environments ---------------------------------------------------------------------------------------------

    def _leaf(self, leaf: Spec, specs: EnvSpecs) -> Spec:
        """Return the spec of hashes, from the hash of an example.

        The example is not added to the repertoire.
        """
        kept, self.repertoire = self.repertoire, None
        try:
            example = self._hashed(leaf.zero(), specs.batch_size)
        finally:
            self.repertoire = kept
        if self.hash_fn is None:
            return Bounded(0, 255, shape=example.shape, device=leaf.device, dtype=example.dtype)
        return Unbounded(example.shape, device=leaf.device, dtype=example.dtype)

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        for key, out_key in zip(self.read, self.written, strict=True):
            leaf = specs.observation.get(key, None)
            if leaf is None and self.missing_tolerance:
                continue
            if leaf is None or isinstance(leaf, Composite):
                keys = list(specs.observation.keys(include_nested=True, leaves_only=True))
                raise SpecError(f"Hash: the environment has no observation {key!r}. It has {keys}.")
            set_beside(specs.observation, out_key, self._leaf(leaf, specs), specs.observation)
        for key, out_key in zip(self.given_inv, self.asked_inv, strict=True):
            for spec in (specs.action, specs.state):
                leaf = spec.get(key, None)
                if leaf is not None:
                    spec.pop(key)
                    set_beside(spec, out_key, self._leaf(leaf, specs), spec)
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        hooks = Hooks(
            step=lambda _, following: self._forward(following),
            reset=lambda _, fresh: self._forward(fresh),
            reads_root=False,
        )
        if self.given_inv:
            hooks.inverse = self._backward
        leaves = [specs.observation.get(key, None) for key in self.read]
        tensors = all(leaf is not None and leaf.dtype is not None for leaf in leaves)
        if tensors and self.hash_fn is None and self.repertoire is None and set(self.read).isdisjoint(self.written):
            hooks.rows = RowHooks(_Kernel(list(zip(self.read, self.written, strict=True)), self.seed), reads=self.read)
        return hooks

    def shared_key(self) -> Any:
        # The repertoire and a function of the user belong to one environment.
        if self.repertoire is not None or self.hash_fn is not None:
            return None
        return (type(self), tuple(self.read), tuple(self.written), repr(self.seed))

    def get_extra_state(self) -> Any:
        """Return the repertoire, for ``state_dict``."""
        return {"repertoire": self.repertoire}

    def set_extra_state(self, state: Any) -> None:
        """Set the repertoire."""
        self.repertoire = state["repertoire"]

    def _repr_keys(self) -> Any:
        return ("read", "written", "given_inv", "asked_inv")


def _bytes(value: Any) -> bytes:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        return value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, bytes):
        return value
    return ("" if value is None else str(value)).encode("utf-8")


class _Kernel:
    """Hash blocks of rows with SHA-256."""

    def __init__(self, pairs: list[tuple[Any, Any]], seed: Any) -> None:
        self.pairs = pairs
        self.start = hashlib.sha256() if seed is None else hashlib.sha256(_bytes(seed))

    def _hash(self, value: Any) -> Any:
        digest = self.start.copy()
        digest.update(value.tobytes())
        return np.frombuffer(digest.digest(), np.uint8)

    def __call__(self, root: Any, following: Any) -> Any:
        after = [(following.before[key], following[out_key]) for key, out_key in self.pairs]
        at_root = [(root.before[key], root[out_key]) for key, out_key in self.pairs]

        def step() -> bool:
            for values, hashes in after:
                for row in range(len(values)):
                    hashes[row] = self._hash(values[row])
            return False

        def reset(at: Any) -> None:
            for values, hashes in at_root:
                for row in at:
                    hashes[row] = self._hash(values[row])

        return step, reset
