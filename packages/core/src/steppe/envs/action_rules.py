"""ActionRule: how actions are validated, the same in every code path.

* The shape must equal the spec's.
* The dtype must equal the spec's, or be another one that holds the same values. Conversions that change a value are
  refused, but floating-point numbers may be rounded to the precision of the spec.
* A choice must be valid: a one-hot vector has a single 1, a category is a whole number in its range.

Three kinds of values are not checked. Bounds of continuous actions are left to the environment, because many clip.
Choices of agents with done entries of their own are left alone, because an agent that is done has no valid action.
Values on a GPU are left alone, because reading them would wait for the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDict, TensorDictBase

from steppe.envs.action_hints import as_tensor_hint, choice_hint, dtype_hint, shape_hint, spec_of
from steppe.envs.done import done_groups
from steppe.errors import ActionError
from steppe.specs import ArrayCheck, Composite, NumberCheck, Spec
from steppe.storage import entries

__all__ = ["ActionRule", "action_rules", "missing_action", "put_action"]

_NO_LEAD = torch.Size(())

#: Error texts show the values of actions with up to this many numbers.
_SHOWN_VALUES = 32


class ActionRule:
    """The rule for the action at one key.

    Args:
        key: key of the action, for errors.
        leaf: its spec.
        batch_dims: number of batch dimensions at the front of the spec's shape.
        validate: whether to check that choices are valid.

    Attributes:
        shape: shape of one action, without batch dimensions; None for dynamic sizes and for data that is not a tensor.
        dtype: None for data that is not a tensor.
        allows: checks whether all choices in an array ``[..., *shape]`` are valid; None if every value is.
        allows_one: the same check for one action as Python numbers, ``value.tolist()``; None if that is not faster.
    """

    __slots__ = ("_batch_dims", "_leaf", "allows", "allows_one", "dtype", "key", "shape")

    def __init__(self, key: NestedKey, leaf: Spec | None, *, batch_dims: int = 0, validate: bool = True) -> None:
        self.key = key
        self.dtype: torch.dtype | None = None
        self.shape: torch.Size | None = None
        self.allows: ArrayCheck | None = None
        self.allows_one: NumberCheck | None = None
        if leaf is not None and leaf.dtype is not None:
            self.dtype = leaf.dtype
            if not any(size < 0 for size in leaf.shape):
                self.shape = leaf.shape[batch_dims:]
                self.allows = leaf.array_check() if validate else None
                self.allows_one = leaf.number_check() if validate and not batch_dims else None
        self._leaf: Any = leaf
        self._batch_dims = batch_dims

    def fit(
        self,
        value: Any,
        lead: torch.Size = _NO_LEAD,
        *,
        acting: torch.Tensor | None = None,
        rows: Sequence[int] | None = None,
    ) -> Any:
        """Return a valid action in the dtype of its spec: ``value`` itself unless it has another dtype.

        Args:
            value: ``[*lead, *shape]``.
            lead: leading dimensions.
            acting: ``[*lead]`` bool, the rows to check; values of other rows are ignored.
            rows: ``[k]``, indices of the batch rows in ``value``, if these are not all; ``lead`` then begins with k.

        Raises:
            ActionError: with the key, the expected value, the value found, and the fix.
        """
        if self.dtype is None:
            return value
        # One condition for all tests: this runs at each step.
        if (
            type(value) is torch.Tensor
            and value.dtype is self.dtype
            and (self.shape is None or value.shape == (lead + self.shape if lead else self.shape))
            and (self.allows is None or (rows is None and self._is_valid(value, lead)))
        ):
            return value
        return self._refit(value, lead, acting, rows)

    def _is_valid(self, value: torch.Tensor, lead: torch.Size) -> bool:
        assert self.allows is not None
        if not value.is_cpu:
            return True
        try:
            if self.allows_one is not None and not lead:
                return self.allows_one(value.tolist())  # a third of the time that an array takes
            return self.allows((value.detach() if value.requires_grad else value).numpy())
        except (RuntimeError, TypeError):  # a tensor that is being traced, or of a dtype that numpy lacks
            return True

    def _refit(
        self, value: object, lead: torch.Size, acting: torch.Tensor | None, rows: Sequence[int] | None
    ) -> torch.Tensor:
        if not isinstance(value, torch.Tensor):
            raise ActionError(
                f"The action {self.key!r} must be a tensor of dtype {self.dtype}, found {type(value).__name__}."
                f"{as_tensor_hint(value)}"
            )
        if self.shape is not None and value.shape != (lead + self.shape if lead else self.shape):
            expected = (*lead, *self.shape)
            raise ActionError(
                f"The action {self.key!r} must have shape {expected}, found {tuple(value.shape)}."
                f"{shape_hint(self._leaf, value.detach(), expected, spec_of(self.key, rows))}"
            )
        dtype = self.dtype
        if dtype is not None and value.dtype is not dtype:
            real = value.real if value.dtype.is_complex and not dtype.is_complex else value  # torch would warn
            converted = real.to(dtype)
            if acting is None:
                self._check_lossless(value, converted, rows)
            else:
                self._check_lossless(value[acting], converted[acting], rows)
            value = converted
        # The check of a stack is for all of its rows, so some of them are checked row by row.
        some_rows = rows is not None and self._leaf.rows_differ
        if self.allows is not None and (some_rows or not self._is_valid(value, lead)):
            self._check_choices(value, lead, acting, rows)
        return value

    def _check_lossless(self, value: torch.Tensor, converted: torch.Tensor, rows: Sequence[int] | None) -> None:
        """Refuse values that the spec's dtype cannot hold."""
        dtype = self.dtype
        assert dtype is not None
        if not value.numel() or dtype.is_complex:
            return
        if value.dtype.is_complex:
            lost = torch.ones(value.shape, dtype=torch.bool, device=value.device)
        elif value.dtype.is_floating_point and dtype.is_floating_point:
            lost = converted.isinf() != value.isinf()  # rounding is allowed
        else:
            lost = converted.to(value.dtype) != value
        if bool(lost.any()):
            first = value[lost].flatten()[0].item()
            fix = dtype_hint(self._leaf, value.detach(), dtype, spec_of(self.key, rows))
            raise ActionError(
                f"The action {self.key!r} must have dtype {dtype}, found {value.dtype} with the value {first!r}, which "
                f"{dtype} does not hold.{fix}"
            )

    def _check_choices(
        self, value: torch.Tensor, lead: torch.Size, acting: torch.Tensor | None, rows: Sequence[int] | None
    ) -> None:
        """Refuse the first acting row whose choice is invalid."""
        if not lead:
            raise ActionError(self._invalid(self._leaf, value, "", choice_hint(self._leaf, value, spec_of(self.key))))
        for at in np.ndindex(*lead):
            if acting is not None and not bool(acting[at]):
                continue
            row = at if rows is None else (int(rows[at[0]]), *at[1:])
            leaf: Spec = self._leaf[row] if self._batch_dims else self._leaf
            allows = leaf.array_check()
            if allows is not None and not allows(value[at].detach().cpu().numpy()):
                where = f" of environment {row[0] if len(row) == 1 else row}"
                hint = choice_hint(leaf, value if acting is None else value[at], spec_of(self.key, rows))
                raise ActionError(self._invalid(leaf, value[at], where, hint if acting is None else ""))

    def _invalid(self, leaf: Spec, value: torch.Tensor, where: str, hint: str) -> str:
        if value.numel() <= _SHOWN_VALUES:
            shown = str(value.tolist())
        else:
            shown = f"a tensor of shape {tuple(value.shape)} that is not"
        return f"The action {self.key!r}{where} must be {leaf.action_text()}, found {shown}.{hint}"


def action_rules(action: Composite, done: Composite, *, batch_dims: int = 0) -> list[ActionRule]:
    """Return the rules for all actions of an environment.

    Args:
        action: its full action spec.
        done: its full done spec. Choices of agents with done entries of their own are not validated.
        batch_dims: number of its batch dimensions.
    """
    own_done = [group.prefix for group in done_groups(done) if group.prefix]

    def validates(key: NestedKey) -> bool:
        return isinstance(key, str) or not any(key[: len(prefix)] == prefix for prefix in own_done)

    return [
        ActionRule(key, leaf, batch_dims=batch_dims, validate=validates(key))
        for key, leaf in action.items(include_nested=True, leaves_only=True)
    ]


def put_action(tensordict: TensorDictBase, key: NestedKey, value: torch.Tensor) -> None:
    """Replace an action by a converted one of the same shape and device."""
    if type(tensordict) is TensorDict and type(key) is str and not tensordict.is_locked:
        entries(tensordict)[key] = value  # a tenth of the time that set takes
    else:
        tensordict.set(key, value)


def missing_action(tensordict: TensorDictBase, key: NestedKey) -> ActionError:
    """Make the error for a step whose data has no action."""
    return ActionError(
        f"There is no action at {key!r} in the data given to step. Found {sorted(map(str, tensordict.keys()))}. "
        f"Write one first: env.rand_action(td), policy(td), or td[{key!r}] = ..."
    )
