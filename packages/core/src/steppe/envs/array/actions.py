"""From the action that a spec describes to the one that a library takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase, is_tensor_collection

from steppe.envs.action_rules import ActionRule, missing_action, put_action
from steppe.errors import ActionError
from steppe.specs import (
    Binary,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    NonTensor,
    OneHot,
    Spec,
    torch_to_numpy_dtype_dict,
)
from steppe.storage import TOLIST_LIMIT

__all__ = ["ActionCodec"]

_NO_BATCH = torch.Size([])

#: Actions of up to this many numbers are converted with `tolist`, which is faster than a numpy view.
_ACTION_TOLIST_LIMIT = 16

_new_array = np.array


class _Decoder:
    """One action key: ``one`` decodes a tensor, ``many`` decodes rows of an array, ``few`` rows that are lists.

    Attributes:
        one: holds what it decodes against the rule for choices, if ``judges`` says so.
        many: does not; see :meth:`ActionCodec.fit`.
        few: holds them against it as ``one`` does, and returns None where one does not fit. None where it would not be
            faster.
        takes_arrays: whether an action is an array, and stays as it is.
    """

    def __init__(
        self,
        one: Callable[[torch.Tensor], Any],
        many: Callable[[np.ndarray[Any, Any]], list[Any]],
        *,
        few: Callable[[list[Any]], list[Any] | None] | None = None,
        judges: bool = False,
        takes_arrays: bool = False,
    ) -> None:
        self.one = one
        self.many = many
        self.few = few
        self.judges = judges
        self.takes_arrays = takes_arrays


def _one_hot(leaf: OneHot, rule: ActionRule) -> _Decoder:
    others = leaf.n - 1

    def one(action: torch.Tensor) -> int:
        row: list[Any] = action.tolist()
        if row.count(0) != others or 1 not in row:
            rule.fit(action)
        return row.index(1)

    def many(rows: np.ndarray[Any, Any]) -> list[Any]:
        found: list[Any] = rows.argmax(-1).tolist()
        return found

    choices = {(*[0] * i, 1, *[0] * (others - i)): i for i in range(leaf.n if leaf.n <= TOLIST_LIMIT else 0)}

    def few(rows: list[Any]) -> list[Any] | None:
        try:
            return [choices[tuple(row)] for row in rows]
        except KeyError:
            return None

    return _Decoder(one, many, few=few, judges=True)


def _categorical(leaf: Categorical, rule: ActionRule) -> _Decoder:
    limit = leaf.space.n if leaf.space.n > 0 else float("inf")

    def one(action: torch.Tensor) -> Any:
        number = action.item()
        if not 0 <= number < limit:
            rule.fit(action)
        return number

    def many(rows: np.ndarray[Any, Any]) -> list[Any]:
        found: list[Any] = rows.reshape(len(rows)).tolist()
        return found

    def few(rows: list[Any]) -> list[Any] | None:
        return rows if min(rows) >= 0 and max(rows) < limit else None

    return _Decoder(one, many, few=None if leaf.ndim or leaf.dtype.is_floating_point else few, judges=True)


def _multi_one_hot(leaf: Spec) -> _Decoder:
    ends = np.cumsum([box.n for box in leaf.space])[:-1]

    def split(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.stack([part.argmax(-1) for part in np.split(rows, ends, axis=-1)], -1)

    return _Decoder(lambda action: split(action.detach().numpy()), lambda rows: list(split(rows)))


def _array(leaf: Spec) -> _Decoder:
    def one(action: torch.Tensor) -> np.ndarray[Any, Any]:
        # Detaching makes another tensor, which costs as much again.
        return action.detach().numpy() if action.requires_grad else action.numpy()

    dtype = None if leaf.dtype is None else torch_to_numpy_dtype_dict.get(leaf.dtype)
    if dtype is None or not 0 < leaf.shape.numel() <= _ACTION_TOLIST_LIMIT:
        return _Decoder(one, list, takes_arrays=dtype is not None)
    # A few numbers reach numpy sooner through Python than through a view, of which torch and numpy have to agree.
    return _Decoder(
        lambda action: _new_array(action.tolist(), dtype),
        list,
        few=lambda rows: list(_new_array(rows, dtype)),
        takes_arrays=True,
    )


def _non_tensor(leaf: Spec) -> _Decoder:
    return _Decoder(lambda action: action.data if is_tensor_collection(action) else action, list)


def _decoder(leaf: Spec, rule: ActionRule) -> _Decoder:
    if isinstance(leaf, NonTensor):
        return _non_tensor(leaf)
    if isinstance(leaf, MultiOneHot):
        return _multi_one_hot(leaf)
    if isinstance(leaf, OneHot) and leaf.ndim == 1:
        return _one_hot(leaf, rule)
    # Binary and MultiCategorical are Categoricals, and their actions are arrays.
    if isinstance(leaf, Categorical) and not isinstance(leaf, (Binary, MultiCategorical)) and leaf.shape.numel() == 1:
        return _categorical(leaf, rule)
    return _array(leaf)


class ActionCodec:
    """Decodes the actions of a spec: an int for one-hot and categorical ones, an array otherwise.

    Args:
        spec: the full action spec of one environment. With several keys the native action is a dict.
    """

    def __init__(self, spec: Composite) -> None:
        self.spec = spec
        self.keys = list(spec.keys(include_nested=True, leaves_only=True))
        self.rules = {key: ActionRule(key, spec[key]) for key in self.keys}
        self.decoders = {key: _decoder(spec[key], self.rules[key]) for key in self.keys}
        self._only = self.keys[0] if len(self.keys) == 1 else None

    def decode(self, arrays: dict[Any, np.ndarray[Any, Any]]) -> list[Any]:
        """Decode rows ``{key: [k, *shape]}`` into ``k`` native actions. They are taken to be right: see :meth:`fit`."""
        if self._only is not None:
            return self.decoders[self._only].many(arrays[self._only])
        columns = [self.decoders[key].many(arrays[key]) for key in self.keys]
        return [dict(zip(self.keys, row, strict=True)) for row in zip(*columns, strict=True)]

    def decoder_of_one(self) -> Callable[[torch.Tensor], Any] | None:
        """A function that holds one action ``[*shape]`` against its rule and decodes it; None for several keys."""
        if self._only is None:
            return None
        rule, decoder = self.rules[self._only], self.decoders[self._only]
        fit, one, dtype, shape = rule.fit, decoder.one, rule.dtype, rule.shape
        if not decoder.judges:
            return lambda action: one(fit(action))
        return lambda action: one(action if action.dtype is dtype and action.shape == shape else fit(action))

    def decoder_of_rows(self, n: int) -> Callable[[Any], list[Any] | None] | None:
        """A function that decodes the only action of ``n`` rows, a tensor ``[n, *shape]``, as :meth:`decode` does.

        The function returns None for what does not fit, and for what may, after a conversion. A tensor's few numbers
        are handed over in half the time that arrays of them take.

        Returns:
            None for several keys, and for actions of many numbers.
        """
        if self._only is None:
            return None
        rule, decoder = self.rules[self._only], self.decoders[self._only]
        few, dtype = decoder.few, rule.dtype
        if few is None or rule.shape is None or n * rule.shape.numel() > TOLIST_LIMIT:
            return None
        if rule.allows is not None and not decoder.judges:
            return None
        shape = torch.Size((n, *rule.shape))

        def decode(action: Any) -> list[Any] | None:
            if type(action) is not torch.Tensor or action.dtype is not dtype or action.shape != shape:
                return None
            return few(action.tolist())

        return decode

    def decoder_of_array(self) -> Callable[[np.ndarray[Any, Any]], Any] | None:
        """The same of one action as an array."""
        decode = self.decoder_of_one()
        if decode is None:
            return None
        rule, decoder = self.rules[self._only], self.decoders[self._only]
        if not decoder.takes_arrays or rule.allows is not None or rule.shape is None or rule.dtype is None:
            return lambda array: decode(torch.from_numpy(array))
        shape, dtype = tuple(rule.shape), np.dtype(torch_to_numpy_dtype_dict[rule.dtype])
        return lambda array: array if array.dtype == dtype and array.shape == shape else decode(torch.from_numpy(array))

    def from_one(self, decode: Callable[[np.ndarray[Any, Any]], Any]) -> Callable[[torch.Tensor], Any] | None:
        """A function that holds one action ``[*shape]`` against its rule, and gives it to ``decode`` as an array.

        None for several keys, and for dtypes that numpy lacks.
        """
        rule = None if self._only is None else self.rules[self._only]
        if rule is None or rule.shape is None or rule.dtype not in torch_to_numpy_dtype_dict:
            return None
        fit, dtype, shape = rule.fit, rule.dtype, rule.shape
        allows, allows_one, array_dtype = rule.allows, rule.allows_one, torch_to_numpy_dtype_dict[rule.dtype]
        if not 0 < shape.numel() <= _ACTION_TOLIST_LIMIT or (allows is not None and allows_one is None):

            def of_many(action: torch.Tensor) -> Any:
                action = fit(action)
                return decode((action.detach() if action.requires_grad else action).numpy())

            return of_many

        def of_few(action: torch.Tensor) -> Any:
            if action.dtype is not dtype or action.shape != shape:
                action = fit(action)
            numbers = action.tolist()
            if allows_one is not None and not allows_one(numbers):
                fit(action)
            return decode(_new_array(numbers, array_dtype))

        return of_few

    def fit(self, block: dict[Any, Any], batch_size: torch.Size = _NO_BATCH) -> dict[Any, Any]:
        """Return steps ``{key: [k, *batch_size, *shape]}`` as the spec has them, in its dtypes.

        Raises:
            ActionError: one does not fit; see :mod:`steppe.envs.action_rules`.
        """
        dims = 1 + len(batch_size)
        return {key: rule.fit(block[key], block[key].shape[:dims]) for key, rule in self.rules.items()}

    def fit_steps(
        self, steps: dict[Any, list[Any]], batch_size: torch.Size = _NO_BATCH, *, first: int = 0
    ) -> dict[Any, torch.Tensor]:
        """Put the actions of ``k`` steps, given one by one, together as :meth:`fit` returns them.

        Args:
            steps: for each key a list of actions ``[*batch_size, *shape]``, None where there is none.
            batch_size: of each action: none for one environment.
            first: what the first of these steps is called in errors.

        Raises:
            ActionError: one does not fit; the text says in which step.
        """
        try:
            return self.fit({key: torch.stack(values) for key, values in steps.items()}, batch_size)
        except (ActionError, RuntimeError, TypeError):
            each = {key: self._fit_each(key, values, batch_size, first) for key, values in steps.items()}
            return {key: torch.stack(values) for key, values in each.items()}

    def _fit_each(self, key: Any, values: list[Any], batch_size: torch.Size, first: int) -> list[torch.Tensor]:
        fitted = []
        for step, value in enumerate(values, first):
            if value is None:
                raise ActionError(f"Step {step}: there is no action at {key!r}. Write one for each step.")
            try:
                fitted.append(self.rules[key].fit(value, batch_size))
            except ActionError as error:
                raise ActionError(f"Step {step}: {error}") from None
        return fitted

    def rows_of(
        self, tensordict: TensorDictBase, batch_size: torch.Size = _NO_BATCH
    ) -> dict[Any, np.ndarray[Any, Any]]:
        """The actions in ``tensordict`` as rows ``{key: [n, *shape]}``, converted as :meth:`from_tensordict` does.

        Args:
            tensordict: data of one environment, which is one row, or of a batch of n.
            batch_size: of the actions in it: none, or ``(n,)``.

        Raises:
            ActionError: one is missing, or does not fit; see :mod:`steppe.envs.action_rules`.
        """
        fitted = self._fitted(tensordict, batch_size)
        if batch_size:
            return {key: action.detach().numpy() for key, action in fitted}
        return {key: action.detach()[None].numpy() for key, action in fitted}

    def _fitted(self, tensordict: TensorDictBase, batch_size: torch.Size = _NO_BATCH) -> Iterator[tuple[Any, Any]]:
        for key, rule in self.rules.items():
            action = tensordict.get(key, None)
            if action is None:
                raise missing_action(tensordict, key)
            fitted = rule.fit(action, batch_size)
            if fitted is not action:
                put_action(tensordict, key, fitted)
            yield key, fitted

    def from_tensordict(self, tensordict: TensorDictBase) -> Any:
        """Decode the actions of one environment. One whose dtype is another is converted in ``tensordict`` too.

        Raises:
            ActionError: one is missing, or does not fit; see :mod:`steppe.envs.action_rules`.
        """
        native = {key: self.decoders[key].one(action) for key, action in self._fitted(tensordict)}
        return native[self._only] if self._only is not None else native
