"""UnaryTransform: apply a function to entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensordict import NestedKey, NonTensorData, NonTensorStack

from steppe.errors import SpecError
from steppe.specs import Spec
from steppe.transforms import EnvSpecs, Transform, names_of, set_beside

from .callable_transform import spec_of_value

__all__ = ["UnaryTransform"]

_FLAGS = ("done", "terminated", "truncated")


class UnaryTransform(Transform):
    """Apply a function to entries of the data.

    The function is called once on zeros to find the specs of its results: Unbounded, with the shape and dtype of the
    result, or NonTensor for text and objects.

    >>> from steppe import TransformedEnv, UnaryTransform, make_env
    >>> chain = UnaryTransform(["observation"], ["doubled"], fn=lambda x: 2 * x)
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), chain)
    >>> env.reset()["doubled"].shape
    torch.Size([4])

    Args:
        in_keys: entries to read after a step or reset.
        out_keys: keys to write, as many as ``in_keys``.
        in_keys_inv: entries that the environment reads.
        out_keys_inv: keys that the caller writes instead. Default: ``in_keys_inv``.
        fn: function of a value of ``in_keys``: a tensor ``[*B, ...]``, or the object of a non-tensor entry.
        inv_fn: function of a value of ``out_keys_inv``. Default: ``fn``. ``fn`` must be the inverse of ``inv_fn``: the
            spec of the caller's entry is ``fn`` applied to the spec of the environment's entry. Without ``fn``, the
            spec stays unchanged.
        use_raw_nontensor: pass the TensorDict entry (NonTensorData, NonTensorStack) to ``fn`` instead of the object.

    Raises:
        SpecError: ``in_keys`` are passed without ``fn``, or ``in_keys_inv`` without a function.
    """

    enable_inv_on_reset = True
    writes_done = False

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        in_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        *,
        fn: Callable[..., object] | None = None,
        inv_fn: Callable[..., object] | None = None,
        use_raw_nontensor: bool = False,
    ) -> None:
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        if fn is None and (self.in_keys or (self.in_keys_inv and inv_fn is None)):
            raise SpecError("UnaryTransform: in_keys need fn, and in_keys_inv need inv_fn or fn.")
        self._fn: Any = fn
        self._inv_fn: Any = inv_fn
        self._raw = use_raw_nontensor
        self.writes_done = any(names_of(key)[-1] in _FLAGS for key in self.out_keys)

    def _run(self, fn: Any, value: Any) -> Any:
        if not self._raw and isinstance(value, NonTensorStack):
            value = value.tolist()
        elif not self._raw and isinstance(value, NonTensorData):
            value = value.tolist() if value.batch_dims else value.data
        return fn(value)

    def _apply_transform(self, value: Any) -> Any:
        return self._run(self._fn, value)

    def _inv_apply_transform(self, value: Any) -> Any:
        return self._run(self._fn if self._inv_fn is None else self._inv_fn, value)

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        for key, out_key in self.key_pairs:
            for spec in (specs.observation, specs.reward, specs.done):
                leaf = spec.get(key, None)
                if leaf is not None:
                    observed = spec is specs.done and names_of(out_key)[-1] not in _FLAGS
                    set_beside(
                        specs.observation if observed else spec, out_key, self._result(leaf, self._fn, specs), spec
                    )
                    break
            else:
                if not self.missing_tolerance:
                    raise KeyError(f"UnaryTransform: the environment has no entry {key!r} to read. {specs.output}")
        for out_key, key in self.inverse_key_pairs:
            for spec in (specs.action, specs.state):
                leaf = spec.get(key, None)
                if leaf is None:
                    continue
                if out_key != key:
                    spec.pop(key)
                set_beside(spec, out_key, leaf if self._fn is None else self._result(leaf, self._fn, specs), spec)
        return specs

    def _result(self, leaf: Spec, fn: Any, specs: EnvSpecs) -> Spec:
        value = self._run(fn, leaf.zero())
        return spec_of_value(value, specs.batch_size, leaf.device)
