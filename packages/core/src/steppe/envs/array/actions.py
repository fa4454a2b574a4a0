"""ActionCodec: decodes actions for a library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase

from steppe.envs.action_rules import action_rules, missing_action, put_action
from steppe.errors import ActionError
from steppe.specs import ACTION_TOLIST_LIMIT, ActionDecoder, Composite, torch_to_numpy_dtype_dict
from steppe.storage import TOLIST_LIMIT

__all__ = ["ActionCodec", "FastDecoder"]

_NO_BATCH = torch.Size([])

_new_array = np.array

#: Validates and decodes an action tensor of all rows, faster than ``decode``. Returns the library actions, or None for
#: an action that is invalid, or may be valid after a conversion: callers then use ``decode``.
FastDecoder: TypeAlias = "Callable[[torch.Tensor], Sequence[Any] | None]"


class ActionCodec:
    """Decode actions: an int for one-hot and categorical ones, an array for others, a dict for several keys.

    How one leaf is decoded is up to its spec, see ``Spec.action_decoder``.

    Args:
        spec: the full action spec of one environment.
        done: its full done spec. Choices of agents with done entries of their own are not validated.
    """

    def __init__(self, spec: Composite, done: Composite | None = None) -> None:
        self.spec = spec
        self.keys: list[Any] = list(spec.keys(include_nested=True, leaves_only=True))
        self.rules = {rule.key: rule for rule in action_rules(spec, done or Composite())}
        self.decoders: dict[Any, ActionDecoder] = {
            key: spec[key].action_decoder(rule.fit) for key, rule in self.rules.items()
        }
        self._only = self.keys[0] if len(self.keys) == 1 else None

    def decode(self, arrays: dict[Any, np.ndarray]) -> list[Any]:
        """Decode rows of valid actions ``{key: [k, *shape]}`` into ``k`` library actions. :meth:`fit` validates."""
        if self._only is not None:
            return self.decoders[self._only].many(arrays[self._only])
        columns = [self.decoders[key].many(arrays[key]) for key in self.keys]
        return [dict(zip(self.keys, row, strict=True)) for row in zip(*columns, strict=True)]

    def fast_decoder(self, batch_size: torch.Size = _NO_BATCH) -> FastDecoder | None:
        """Return a function that decodes an action tensor ``[*batch_size, *shape]`` of all rows.

        See :data:`FastDecoder`. It reads a few numbers through Python, in half the time of :meth:`decode`.

        Returns:
            None for several keys, for actions of many numbers, and for those whose decoder validates less than the rule
            of the action.
        """
        if self._only is None:
            return None
        rule, decoder = self.rules[self._only], self.decoders[self._only]
        if rule.shape is None or (rule.allows is not None and not decoder.validates):
            return None
        one, few, dtype, shape = decoder.one, decoder.few, rule.dtype, torch.Size((*batch_size, *rule.shape))

        def decode_one(action: torch.Tensor) -> tuple[Any] | None:
            return (one(action),) if action.dtype is dtype and action.shape == shape else None

        if not batch_size:
            return decode_one
        if few is None or shape.numel() > TOLIST_LIMIT:
            return None

        def decode_few(action: torch.Tensor) -> list[Any] | None:
            return few(action.tolist()) if action.dtype is dtype and action.shape == shape else None

        return decode_few

    def decoder_of_array(self) -> Callable[[np.ndarray], Any] | None:
        """Return a function that validates and decodes one action as an array; None for several keys."""
        if self._only is None:
            return None
        rule, decoder = self.rules[self._only], self.decoders[self._only]

        def decode(array: np.ndarray) -> Any:
            return decoder.one(rule.fit(torch.from_numpy(array)))

        if not decoder.takes_arrays or rule.allows is not None or rule.shape is None or rule.dtype is None:
            return decode
        shape, dtype = tuple(rule.shape), np.dtype(torch_to_numpy_dtype_dict[rule.dtype])

        def decode_array(array: np.ndarray) -> Any:
            if array.dtype == dtype and array.shape == shape:
                return array.copy()  # an inverse may return a row of a table, or its argument
            return decode(array)

        return decode_array

    def fast_decoder_with(self, decode: Callable[[np.ndarray], Any]) -> FastDecoder | None:
        """Return the fast decoder of one action ``[*shape]`` that passes it to ``decode`` as an array.

        None for several keys, and for dtypes that numpy lacks.
        """
        rule = None if self._only is None else self.rules[self._only]
        if rule is None or rule.shape is None or rule.dtype not in torch_to_numpy_dtype_dict:
            return None
        fit, dtype, shape = rule.fit, rule.dtype, rule.shape
        allows, allows_one, array_dtype = rule.allows, rule.allows_one, torch_to_numpy_dtype_dict[rule.dtype]
        if not 0 < shape.numel() <= ACTION_TOLIST_LIMIT or (allows is not None and allows_one is None):

            def of_many(action: torch.Tensor) -> tuple[Any] | None:
                if fit(action) is not action:
                    return None
                return (decode((action.detach() if action.requires_grad else action).numpy()),)

            return of_many

        def of_few(action: torch.Tensor) -> tuple[Any] | None:
            if action.dtype is not dtype or action.shape != shape:
                return None
            numbers = action.tolist()
            if allows_one is not None and not allows_one(numbers):
                return None
            return (decode(_new_array(numbers, array_dtype)),)

        return of_few

    def fit(self, block: dict[Any, torch.Tensor], batch_size: torch.Size = _NO_BATCH) -> dict[Any, torch.Tensor]:
        """Validate steps ``{key: [k, *batch_size, *shape]}`` and return them in the dtypes of the spec.

        Raises:
            ActionError: an action is invalid; see :mod:`steppe.envs.action_rules`.
        """
        dims = 1 + len(batch_size)
        return {key: rule.fit(block[key], block[key].shape[:dims]) for key, rule in self.rules.items()}

    def fit_steps(
        self, steps: dict[Any, list[Any]], batch_size: torch.Size = _NO_BATCH, *, first: int = 0
    ) -> dict[Any, torch.Tensor]:
        """Stack the actions of ``k`` steps, validated as :meth:`fit` does.

        Args:
            steps: for each key a list of actions ``[*batch_size, *shape]``, None for a missing one.
            batch_size: of each action; empty for one environment.
            first: number of the first step in errors.

        Raises:
            ActionError: an action is missing or invalid; the text names the step.
        """
        try:
            return self.fit({key: torch.stack(values) for key, values in steps.items()}, batch_size)
        except (ActionError, RuntimeError, TypeError):
            each = {key: self._fit_each(key, values, batch_size, first) for key, values in steps.items()}
            return {key: torch.stack(values) for key, values in each.items()}

    def _fit_each(self, key: NestedKey, values: list[Any], batch_size: torch.Size, first: int) -> list[torch.Tensor]:
        fitted: list[torch.Tensor] = []
        for step, value in enumerate(values, first):
            if value is None:
                raise ActionError(f"Step {step}: there is no action at {key!r}. Write one for each step.")
            try:
                fitted.append(self.rules[key].fit(value, batch_size))
            except ActionError as error:
                raise ActionError(f"Step {step}: {error}") from None
        return fitted

    def rows_of(self, tensordict: TensorDictBase, batch_size: torch.Size = _NO_BATCH) -> dict[Any, np.ndarray]:
        """Validate the actions in ``tensordict`` and return them as rows ``{key: [n, *shape]}``.

        An action of another dtype is converted in ``tensordict`` too.

        Args:
            tensordict: data of one environment, which is one row, or of a batch of n.
            batch_size: of the actions: empty, or ``(n,)``.

        Raises:
            ActionError: an action is missing or invalid; see :mod:`steppe.envs.action_rules`.
        """
        fitted = self._fitted(tensordict, batch_size)
        if batch_size:
            return {key: action.detach().numpy() for key, action in fitted}
        return {key: action.detach()[None].numpy() for key, action in fitted}

    def _fitted(
        self, tensordict: TensorDictBase, batch_size: torch.Size = _NO_BATCH
    ) -> Iterator[tuple[NestedKey, torch.Tensor]]:
        for key, rule in self.rules.items():
            action = tensordict.get(key, None)
            if action is None:
                raise missing_action(tensordict, key)
            fitted = rule.fit(action, batch_size)
            if fitted is not action:
                put_action(tensordict, key, fitted)
            yield key, fitted

    def from_tensordict(self, tensordict: TensorDictBase) -> Any:
        """Validate and decode the actions of one environment.

        An action of another dtype is converted in ``tensordict`` too.

        Raises:
            ActionError: an action is missing or invalid; see :mod:`steppe.envs.action_rules`.
        """
        decoded = {key: self.decoders[key].one(action) for key, action in self._fitted(tensordict)}
        return decoded[self._only] if self._only is not None else decoded
