"""From the action that a spec describes to the one that a library takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase, is_tensor_collection

from steppe.errors import ActionError
from steppe.specs import Binary, Categorical, Composite, MultiOneHot, NonTensor, OneHot, Spec

__all__ = ["ActionCodec"]


class _Decoder:
    """One action key: ``one`` decodes a tensor, ``many`` decodes rows of an array."""

    def __init__(self, one: Callable[[torch.Tensor], Any], many: Callable[[np.ndarray[Any, Any]], list[Any]]) -> None:
        self.one = one
        self.many = many


def _one_hot(leaf: Spec) -> _Decoder:
    def one(action: torch.Tensor) -> int:
        row: list[Any] = action.tolist()
        try:
            return row.index(1)
        except ValueError:
            raise ActionError(f"A one-hot action needs a 1 among its {len(row)} entries, found {row}.") from None

    def many(rows: np.ndarray[Any, Any]) -> list[Any]:
        found: list[Any] = rows.argmax(-1).tolist()
        return found

    return _Decoder(one, many)


def _categorical(leaf: Spec) -> _Decoder:
    def many(rows: np.ndarray[Any, Any]) -> list[Any]:
        found: list[Any] = rows.reshape(len(rows)).tolist()
        return found

    return _Decoder(lambda action: action.item(), many)


def _multi_one_hot(leaf: Spec) -> _Decoder:
    ends = np.cumsum([box.n for box in leaf.space])[:-1]  # type: ignore[attr-defined]

    def split(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.stack([part.argmax(-1) for part in np.split(rows, ends, axis=-1)], -1)

    return _Decoder(lambda action: split(action.detach().numpy()), lambda rows: list(split(rows)))


def _array(leaf: Spec) -> _Decoder:
    return _Decoder(lambda action: action.detach().numpy(), list)


def _non_tensor(leaf: Spec) -> _Decoder:
    return _Decoder(lambda action: action.data if is_tensor_collection(action) else action, list)


def _decoder(leaf: Spec) -> _Decoder:
    if isinstance(leaf, NonTensor):
        return _non_tensor(leaf)
    if isinstance(leaf, MultiOneHot):
        return _multi_one_hot(leaf)
    if isinstance(leaf, OneHot) and leaf.ndim == 1:
        return _one_hot(leaf)
    # Binary is a Categorical of two, and its actions are arrays.
    if isinstance(leaf, Categorical) and not isinstance(leaf, (OneHot, Binary)) and leaf.shape.numel() == 1:
        return _categorical(leaf)
    return _array(leaf)


class ActionCodec:
    """Decodes the actions of a spec: an int for one-hot and categorical ones, an array otherwise.

    Args:
        spec: the full action spec of one environment. With several keys the native action is a dict.
    """

    def __init__(self, spec: Composite) -> None:
        self.spec = spec
        self.keys = list(spec.keys(include_nested=True, leaves_only=True))
        self.decoders = {key: _decoder(spec[key]) for key in self.keys}
        self._only = self.keys[0] if len(self.keys) == 1 else None

    def decode(self, arrays: dict[Any, np.ndarray[Any, Any]]) -> list[Any]:
        """Decode rows ``{key: [k, *shape]}`` into ``k`` native actions."""
        if self._only is not None:
            return self.decoders[self._only].many(arrays[self._only])
        columns = [self.decoders[key].many(arrays[key]) for key in self.keys]
        return [dict(zip(self.keys, row, strict=True)) for row in zip(*columns, strict=True)]

    def check(self, block: dict[Any, torch.Tensor]) -> None:
        """Refuse rows ``{key: [k, *shape]}`` that do not fit the spec.

        Raises:
            ActionError: naming the key, what is expected and what was found.
        """
        for key in self.keys:
            leaf, rows = self.spec[key], block[key]
            if rows.shape[1:] != leaf.shape or rows.dtype is not leaf.dtype:
                raise ActionError(
                    f"The action {key!r} must have shape {tuple(leaf.shape)} and dtype {leaf.dtype}, "
                    f"found {tuple(rows.shape[1:])} and {rows.dtype}."
                )

    def from_tensordict(self, tensordict: TensorDictBase) -> Any:
        """Decode the actions of one environment.

        Raises:
            ActionError: one is missing, or of the wrong shape or dtype.
        """
        native = {}
        for key in self.keys:
            leaf, action = self.spec[key], tensordict.get(key, None)
            if action is None:
                raise ActionError(f"There is no action at {key!r}. Found {sorted(map(str, tensordict.keys(True)))}.")
            if not _fits(action, leaf):
                raise ActionError(
                    f"The action {key!r} must have shape {tuple(leaf.shape)} and dtype {leaf.dtype}, "
                    f"found {tuple(action.shape)} and {action.dtype}."
                )
            native[key] = self.decoders[key].one(action)
        return native[self._only] if self._only is not None else native


def _fits(action: Any, leaf: Spec) -> bool:
    """Whether an action has the shape and dtype of its leaf; a size of -1 stands for any, and text has neither."""
    if isinstance(leaf, NonTensor):
        return True
    if action.dtype is not leaf.dtype or action.ndim != leaf.ndim:
        return False
    return all(wanted in (-1, found) for wanted, found in zip(leaf.shape, action.shape, strict=True))
