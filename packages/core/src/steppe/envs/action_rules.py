"""What an action must be: one rule, whoever acts and however.

* Its shape is that of its spec.
* Its dtype is the spec's, or another one that holds the same values: what loses something is refused, except that
  floating-point numbers are rounded to the precision of the spec.
* What chooses among categories chooses one that there is: a one-hot row has a single 1, a number lies in its range.
  Bounds of continuous actions are left to the environment, because many clip. So are the choices of agents that end on
  their own, as what one does that has ended means nothing, and values on a GPU, which are not waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs.action_hints import as_tensor_hint, choice_hint, dtype_hint, shape_hint, spec_of
from steppe.envs.done import done_groups
from steppe.errors import ActionError
from steppe.specs import Binary, Categorical, Composite, MultiCategorical, MultiOneHot, OneHot, Spec, Stacked
from steppe.storage import entries

__all__ = ["ActionRule", "action_rules", "missing_action", "put_action"]

Allows = Callable[[Any], bool]

_NO_LEAD = torch.Size(())

#: The same as ``to(dtype)``, in two thirds of the time.
_CASTS: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
    torch.float32: torch.Tensor.float,
    torch.float64: torch.Tensor.double,
    torch.int64: torch.Tensor.long,
}

#: numpy checks arrays of more numbers than this faster than Python does.
_PYTHON_LIMIT = 32


class ActionRule:
    """The rule for the action at one key.

    Args:
        key: where the action is, for errors.
        leaf: its spec.
        batch_dims: how many leading dimensions of the spec's shape are those of a batch.
        judge: whether to ask for a choice that there is.

    Attributes:
        shape: of one action, without the batch; None where a size is known only at run time, or there is no tensor.
        dtype: None for what is no tensor.
        allows: tells of an array ``[..., *shape]`` whether each of its choices is there; None where all values are
            welcome.
        allows_one: the same of one action as Python has it, ``value.tolist()``; None where that would not be faster.
    """

    __slots__ = ("_batch_dims", "_leaf", "allows", "allows_one", "dtype", "key", "shape")

    def __init__(self, key: Any, leaf: Spec | None, *, batch_dims: int = 0, judge: bool = True) -> None:
        self.key = key
        self.dtype: torch.dtype | None = None
        self.shape: torch.Size | None = None
        self.allows: Allows | None = None
        self.allows_one: Allows | None = None
        if leaf is not None and leaf.dtype is not None:
            self.dtype = leaf.dtype
            if not any(size < 0 for size in leaf.shape):
                self.shape = leaf.shape[batch_dims:]
                self.allows = _allows(leaf) if judge else None
                self.allows_one = _allows_one(leaf) if judge and not batch_dims else None
        self._leaf: Any = leaf
        self._batch_dims = batch_dims

    def fit(
        self,
        value: Any,
        lead: torch.Size = _NO_LEAD,
        *,
        acting: Any = None,
        rows: Sequence[int] | None = None,
    ) -> Any:
        """Return an action as its spec has it: ``value`` itself unless its dtype is another.

        Args:
            value: ``[*lead, *shape]``.
            lead: leading dimensions.
            acting: ``[*lead]`` bool, which of them act; the values of the others are not looked at.
            rows: ``[k]``, which rows of the batch these are, where they are not all of it; ``lead`` then begins with k.

        Raises:
            ActionError: naming the key, what is expected, what was found, and how to write it.
        """
        if self.dtype is None:
            return value
        # One test after another, because this is part of each step.
        if (
            type(value) is torch.Tensor
            and value.dtype is self.dtype
            and (self.shape is None or value.shape == (lead + self.shape if lead else self.shape))
            and (self.allows is None or (rows is None and self._is_there(value, lead)))
        ):
            return value
        return self._refit(value, lead, acting, rows)

    def _is_there(self, value: torch.Tensor, lead: torch.Size) -> bool:
        assert self.allows is not None
        if not value.is_cpu:
            return True
        try:
            if self.allows_one is not None and not lead:
                return self.allows_one(value.tolist())  # a third of the time that an array takes
            return self.allows((value.detach() if value.requires_grad else value).numpy())
        except (RuntimeError, TypeError):  # a tensor of a trace, or of a dtype that numpy lacks
            return True

    def _refit(self, value: Any, lead: torch.Size, acting: Any, rows: Sequence[int] | None) -> Any:
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
            cast = _CASTS.get(dtype)
            real = value.real if value.dtype.is_complex and not dtype.is_complex else value  # torch would warn
            converted = real.to(dtype) if cast is None else cast(real)
            if acting is None:
                self._check_lossless(value, converted, rows)
            else:
                self._check_lossless(value[acting], converted[acting], rows)
            value = converted
        if self.allows is not None and (self._is_of_rows(rows) or not self._is_there(value, lead)):
            self._check_choices(value, lead, acting, rows)
        return value

    def _is_of_rows(self, rows: Sequence[int] | None) -> bool:
        """Whether values are to be held against the specs of some rows, which differ."""
        return rows is not None and isinstance(self._leaf, Stacked)

    def _check_lossless(self, value: torch.Tensor, converted: torch.Tensor, rows: Sequence[int] | None) -> None:
        """Refuse values that are others in the spec's dtype."""
        dtype = self.dtype
        assert dtype is not None
        if not value.numel() or dtype.is_complex or _surely_lossless(value, converted):
            return
        held = value.detach()
        if held.dtype.is_complex:
            lost = torch.ones(held.shape, dtype=torch.bool, device=held.device)
        elif held.dtype.is_floating_point and dtype.is_floating_point:
            lost = held.to(dtype).isinf() & ~held.isinf()  # the precision of the spec is all that is asked for
        else:
            lost = held.to(dtype).to(held.dtype) != held
        if bool(lost.any()):
            found = held[lost].flatten()[0].item()
            fix = dtype_hint(self._leaf, held, dtype, spec_of(self.key, rows))
            raise ActionError(
                f"The action {self.key!r} must have dtype {dtype}, found {held.dtype} with the value {found!r}, which "
                f"{dtype} does not hold.{fix}"
            )

    def _check_choices(self, value: torch.Tensor, lead: torch.Size, acting: Any, rows: Sequence[int] | None) -> None:
        """Refuse the first leading position that acts and whose choice is not there."""
        if not lead:
            raise ActionError(self._not_there(self._leaf, value, "", choice_hint(self._leaf, value, spec_of(self.key))))
        for at in np.ndindex(*lead):
            if acting is not None and not bool(acting[at]):
                continue
            row = at if rows is None else (int(rows[at[0]]), *at[1:])
            leaf = self._leaf[row] if self._batch_dims else self._leaf
            allows = _allows(leaf)
            if allows is not None and not allows(value[at].detach().cpu().numpy()):
                where = f" of row {row[0] if len(row) == 1 else row}"
                hint = choice_hint(leaf, value if acting is None else value[at], spec_of(self.key, rows))
                raise ActionError(self._not_there(leaf, value[at], where, hint if acting is None else ""))

    def _not_there(self, leaf: Spec, value: torch.Tensor, where: str, hint: str) -> str:
        found = value.tolist() if value.numel() <= 32 else f"a tensor of shape {tuple(value.shape)} that is not"
        return f"The action {self.key!r}{where} must be {_choices_of(leaf)}, found {found}.{hint}"


def _choices_of(leaf: Spec) -> str:
    """What an action can be, after "must be"."""
    if isinstance(leaf, MultiOneHot):
        return f"one-hot rows of {leaf.nvec} entries, with a single 1 in each"
    if isinstance(leaf, OneHot):
        return f"one-hot, a single 1 among {leaf.space.n} entries"
    if isinstance(leaf, Binary):
        return "0 or 1"
    if isinstance(leaf, MultiCategorical):
        return f"whole numbers from 0 to {(leaf.nvec - 1).tolist()}"
    if isinstance(leaf, Categorical):
        return f"a whole number from 0 to {leaf.n - 1}"
    return f"in {leaf!r}"


def _surely_lossless(value: torch.Tensor, converted: torch.Tensor) -> bool:
    """Whether a quick look tells that no value became another one: part of each step that is given another dtype."""
    if value.dtype.is_complex:
        return False
    if not (value.dtype.is_floating_point and converted.dtype.is_floating_point):
        return torch.equal(converted.to(value.dtype), value)
    # What became infinite makes the sum infinite; precision is not asked for.
    few = converted.ndim == 1 and converted.numel() <= _PYTHON_LIMIT
    return math.isfinite(sum(converted.tolist()) if few else converted.sum().item())


def action_rules(action: Composite, done: Composite, *, batch_dims: int = 0) -> list[ActionRule]:
    """The rules for all actions of an environment.

    Args:
        action: its full action spec.
        done: its full done spec, whose groups say which agents end on their own.
        batch_dims: how many dimensions its batch has.
    """
    alone = [group.prefix for group in done_groups(done) if group.prefix]

    def counts(key: Any) -> bool:
        return isinstance(key, str) or not any(key[: len(prefix)] == prefix for prefix in alone)

    return [
        ActionRule(key, leaf, batch_dims=batch_dims, judge=counts(key))
        for key, leaf in action.items(include_nested=True, leaves_only=True)
    ]


def put_action(tensordict: TensorDictBase, key: Any, value: Any) -> None:
    """Write an action that was converted in place of the caller's, whose shape and device it has."""
    if type(tensordict) is TensorDict and type(key) is str and not tensordict.is_locked:
        entries(tensordict)[key] = value  # a tenth of the time that set takes
    else:
        tensordict.set(key, value)


def missing_action(tensordict: TensorDictBase, key: Any) -> ActionError:
    """The error of a step whose data has no action."""
    return ActionError(
        f"There is no action at {key!r} in the data given to step. Found {sorted(map(str, tensordict.keys()))}. "
        f"Write one first: env.rand_action(td), policy(td), or td[{key!r}] = ..."
    )


# -- which choices there are, told as fast as possible --------------------------------------------------------------


def _allows(leaf: Spec) -> Allows | None:
    """What tells of an array ``[..., *shape]`` whether its choices are there; None where every value is one."""
    if isinstance(leaf, Stacked):
        return _stacked(leaf)
    if isinstance(leaf, MultiOneHot):
        return _multi_one_hot([box.n for box in leaf.space])
    if isinstance(leaf, OneHot):
        return _one_hot(leaf.n)
    if isinstance(leaf, Binary):
        return None if leaf.dtype is torch.bool else _below(2)
    if isinstance(leaf, MultiCategorical):
        counts = leaf.nvec.numpy()
        while counts.ndim > 1 and (counts == counts[:1]).all():
            counts = counts[0]  # the same in each row: then any number of rows may be looked at
        return _multi_below(counts)
    if isinstance(leaf, Categorical):
        return None if leaf.space.n < 0 or leaf.dtype is torch.bool else _below(leaf.space.n)
    return None


def _allows_one(leaf: Spec) -> Allows | None:
    """The same of one action as Python has it; None where that would not be faster."""
    if type(leaf) is OneHot and leaf.ndim == 1 and leaf.n <= _PYTHON_LIMIT:
        others = leaf.n - 1
        return lambda row: row.count(0) == others and 1 in row
    if type(leaf) is Categorical and leaf.ndim == 0 and leaf.space.n > 0 and leaf.dtype is not torch.bool:
        last = leaf.n - 1
        return lambda number: 0 <= number <= last and number == int(number)
    if type(leaf) is MultiCategorical and leaf.ndim == 1 and leaf.nvec.ndim == 1 and len(leaf.nvec) <= _PYTHON_LIMIT:
        return _each_below((leaf.nvec - 1).tolist())
    return None


def _each_below(lasts: list[int]) -> Allows:
    def allows(row: Any) -> bool:
        # A generator in all() takes half as long again.
        for number, last in zip(row, lasts, strict=True):
            if not 0 <= number <= last or number != int(number):
                return False
        return True

    return allows


def _one_hot(n: int) -> Allows:
    rows_of: dict[Any, Any] = {}

    def allows(array: Any) -> bool:
        rows = rows_of.get(array.dtype)
        if rows is None:
            rows = rows_of[array.dtype] = np.eye(n, dtype=array.dtype)
        if rows.take(array.argmax(-1), 0).tobytes() == array.tobytes():
            return True
        # A zero may have a sign, where numbers are floating-point ones.
        return bool(array.dtype.kind == "f" and np.array_equal(rows.take(array.argmax(-1), 0), array))

    return allows


def _multi_one_hot(counts: list[int]) -> Allows:
    ends = [0, *np.cumsum(counts).tolist()]
    parts = [(slice(first, end), _one_hot(n)) for first, end, n in zip(ends, ends[1:], counts, strict=False)]
    return lambda array: all(allows(array[..., part]) for part, allows in parts)


def _below(n: int) -> Allows:
    def allows(array: Any) -> bool:
        if array.size > _PYTHON_LIMIT:
            return bool(array.min() >= 0 and array.max() < n) and _whole(array)
        numbers = array.ravel().tolist()
        return not numbers or (max(numbers) < n and min(numbers) >= 0 and _whole(array))

    return allows


def _multi_below(counts: Any) -> Allows:
    return lambda array: bool(((array >= 0) & (array < counts)).all()) and _whole(array)


def _whole(array: Any) -> bool:
    return array.dtype.kind != "f" or bool((array == np.floor(array)).all())


def _stacked(leaf: Stacked) -> Allows | None:
    parts = [_allows(part) for part in leaf.specs]
    if not any(parts):
        return None
    after = len(leaf.shape) - leaf.dim  # counted from the end, as rows may come in front

    def allows(array: Any) -> bool:
        rows = np.moveaxis(array, array.ndim - after, 0)
        return all(part is None or part(np.ascontiguousarray(row)) for part, row in zip(parts, rows, strict=True))

    return allows
