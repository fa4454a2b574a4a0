"""Spec: the base class of all specs."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

import torch

from steppe.arguments import ignored_argument
from steppe.errors import NotSupported, SpecError

from . import shapes
from .action_checks import ArrayCheck, NumberCheck
from .action_decoders import ActionDecoder, Refuse, decode_arrays
from .shapes import Change, ShapeLike
from .spec_meta import SpecMeta

if TYPE_CHECKING:
    from typing_extensions import Self

    from .masked_choice import MaskedChoice

__all__ = ["ChoiceForm", "DeviceLike", "Key", "Rows", "Spec", "named"]

Key: TypeAlias = "str | tuple[str, ...] | None"
ChoiceForm: TypeAlias = Literal["one_hot", "categorical", "several"] | None
DeviceLike: TypeAlias = "torch.device | str | int | None"
Rows: TypeAlias = "tuple[int, ...] | None"

_Result = TypeVar("_Result")

_NO_ROWS: Rows = ()

CHECKED = os.environ.get("CHECK_SPEC_ENCODE", "").lower() in ("1", "true", "yes")
"""Whether ``encode`` and ``to_numpy`` check their data: the environment variable CHECK_SPEC_ENCODE, read once."""

# Longer lists of faults are cut.
_MOST_FAULTS = 10

# A list of more data does not fit into memory.
_MOST_LISTED = 2**24


def named(key: Key, spec: Spec) -> str:
    """Return the name of a spec in errors: its key if there is one, otherwise its class."""
    return type(spec).__name__ if key is None or key == () else repr(key)


class Spec(metaclass=SpecMeta):
    """A description of data: its shape, its dtype and the values it may take.

    The shape includes the batch dimensions of the environment. A size of -1 is dynamic: every size is valid, and
    ``zero`` and ``rand`` return 1. With ``device=None``, new data is made on the CPU, and encoded data stays on its
    device.

    Shape operations work as for tensors and return a new spec. ``make_neg_dim`` and methods whose name ends with an
    underscore change the spec itself.
    """

    _torch_functions: ClassVar[dict[object, Callable[..., Any]]] = {}
    """Implementations of torch functions for specs, such as ``torch.stack``."""

    # Attributes --------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def shape(self) -> torch.Size:
        """Shape of the data, batch dimensions included; -1 where a size is dynamic."""

    @property
    @abstractmethod
    def device(self) -> torch.device | None:
        """Device of the data; None for any."""

    @property
    def dtype(self) -> torch.dtype | None:
        """Dtype of the data; None for a TensorDict, mixed dtypes and data that is not a tensor."""
        return None

    @property
    def space(self) -> Any:
        """The set of valid values, as one of the boxes; None if unknown."""
        return None

    @property
    def domain(self) -> str | None:
        """``"continuous"``, ``"discrete"``, or None."""
        return None

    @property
    def ndim(self) -> int:
        """Number of dimensions of the shape."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of elements, a dynamic size counted as 1."""
        out = 1
        for n in self.shape:
            out *= 1 if n < 0 else n
        return out

    # Making data -------------------------------------------------------------------------------------------------

    @abstractmethod
    def rand(self, shape: ShapeLike = (), *, generator: torch.Generator | None = None) -> Any:
        """Draw data from the spec, uniformly where it is bounded.

        Args:
            shape: leading dimensions to draw at once, in one vectorised call.
            generator: source of randomness; torch's global one by default.

        Returns:
            Data of shape ``[*shape, *spec.shape]``.
        """

    @abstractmethod
    def _filled(self, lead: torch.Size, value: int) -> Any:
        """Return data ``[*lead, *spec.shape]`` that holds one number everywhere."""

    def zero(self, shape: ShapeLike = ()) -> Any:
        """Return zeros of shape ``[*shape, *spec.shape]``. They may lie outside the domain.

        Data that is not a tensor is the example of its spec.
        """
        return self._filled(shapes.size(shape), 0)

    def one(self, shape: ShapeLike = ()) -> Any:
        """Return ones of shape ``[*shape, *spec.shape]``; see :meth:`zero`."""
        return self._filled(shapes.size(shape), 1)

    def sample(self, shape: ShapeLike = (), *, generator: torch.Generator | None = None) -> Any:
        """Same as :meth:`rand`."""
        return self.rand(shape, generator=generator)

    def zeros(self, shape: ShapeLike = ()) -> Any:
        """Same as :meth:`zero`."""
        return self.zero(shape)

    def ones(self, shape: ShapeLike = ()) -> Any:
        """Same as :meth:`one`."""
        return self.one(shape)

    # Checking and converting data --------------------------------------------------------------------------------

    @abstractmethod
    def _faults(self, val: object, key: Key, rows: Rows, exact: bool) -> Iterator[str]:
        """Yield a sentence for each way in which ``val`` does not match the spec.

        Args:
            val: anything.
            key: name of the data in the sentences.
            rows: leading dimensions in front of the spec's shape; None for any.
            exact: report entries that are not in the spec.
        """

    def faults(self, val: object, key: Key = None, *, exact: bool = False) -> Iterator[str]:
        """Yield a sentence for each way in which ``val`` does not match the spec.

        Args:
            val: anything.
            key: name of the data in the sentences.
            exact: see :meth:`is_in`.
        """
        return self._faults(val, key, _NO_ROWS if exact else None, exact)

    def is_in(self, val: object, *, exact: bool = False) -> bool:
        """Whether ``val`` matches the shape, dtype and domain of the spec.

        Additional leading dimensions are valid, such as the time dimension of ``rollout["action"]``, but not
        for a dict, which has no batch size. Entries that are not in the spec are valid. This method never raises.

        Args:
            val: anything.
            exact: refuse additional leading dimensions and entries, as for the data of one step.
        """
        return next(self.faults(val, exact=exact), None) is None

    def contains(self, item: object, *, exact: bool = False) -> bool:
        """Same as :meth:`is_in`."""
        return self.is_in(item, exact=exact)

    def assert_is_in(self, value: object, *, key: Key = None, exact: bool = False) -> None:
        """Raise unless ``value`` is in the spec.

        Args:
            value: anything.
            key: name of the data in the error.
            exact: see :meth:`is_in`.

        Raises:
            SpecError: it is not; the text says what was expected and found, for each wrong entry.
        """
        faults = list(self.faults(value, key, exact=exact))
        if faults:
            more = [f"... and {len(faults) - _MOST_FAULTS} more."] if len(faults) > _MOST_FAULTS else []
            raise SpecError("\n".join(faults[:_MOST_FAULTS] + more))

    @abstractmethod
    def project(self, val: object, *, key: Key = None) -> Any:
        """Return the valid data nearest to ``val``; ``val`` itself if it is valid.

        Args:
            val: data of the spec's shape, with any leading dimensions.
            key: name of the data in errors.

        Raises:
            SpecError: the shape does not match the spec.
        """

    @abstractmethod
    def encode(self, val: object, *, ignore_device: bool = False, key: Key = None, lead: Rows = None) -> Any:
        """Turn a library's value into data of the spec: a tensor of its dtype, on its device.

        Values are cast but not reshaped, except that one element fits every shape of one element, such as ``(1,)``, and
        a list of one value is that value. The domain is checked only if the environment variable CHECK_SPEC_ENCODE is
        1.

        Args:
            val: array, tensor, number or nested list of the spec's shape, with any leading dimensions.
            ignore_device: leave the data on its device.
            key: name of the data in errors.
            lead: the leading dimensions that ``val`` must have. None: any for one tensor; the data's own for a
                TensorDict or a stacked tensor; none for a dict, or a list with the value of each part of a stack.

        Raises:
            SpecError: the shape does not match, the value is not numeric, or an integer or bool dtype cannot hold it.
        """

    def memoize_encode(self, mode: bool = True) -> None:
        """Ignored, with a warning: :meth:`encode` needs no preparation. Programs for TorchRL call it."""
        ignored_argument("memoize_encode", "mode", "encode has nothing to prepare")

    def erase_memoize_cache(self) -> None:
        """Do nothing; see :meth:`memoize_encode`."""
        return None

    @abstractmethod
    def to_numpy(self, val: object, safe: bool | None = None, *, key: Key = None) -> Any:
        """Convert data for a library: to an array, one-hot data to categories.

        Args:
            val: data of the spec, with any leading dimensions.
            safe: validate first; None: only if the environment variable CHECK_SPEC_ENCODE is 1.
            key: name of the data in errors.
        """

    def _check_if(self, safe: bool | None, val: object, key: Key = None) -> None:
        if CHECKED if safe is None else safe:
            self.assert_is_in(val, key=key)

    def type_check(self, value: object, key: Key = None) -> None:
        """Raise a SpecError unless ``value`` has the dtype of the spec.

        Args:
            value: data.
            key: name of the data in the error.
        """
        self._type_check(value, key)

    def _type_check(self, value: object, key: Key) -> None:
        # Composites call this for an entry, because the second argument of their type_check selects entries.
        actual = value.dtype if isinstance(value, torch.Tensor) else None
        if actual is not self.dtype:
            expected = "non-tensor data" if self.dtype is None else f"dtype {self.dtype}"
            found = type(value).__name__ if actual is None or self.dtype is None else actual
            raise SpecError(f"{named(key, self)}: expected {expected}, found {found}.")

    def index(self, index: Any, tensor_to_index: Any) -> Any:
        """Select from ``tensor_to_index``, which has an entry per category, the entries of the categories ``index``.

        Raises:
            NotSupported: the spec has no categories.
            SpecError: the shapes do not fit each other.
        """
        raise self._unsupported("index", "it has no categories to choose among")

    def cardinality(self) -> int | float:
        """Return the number of different values of one row; ``inf`` if they are not countable."""
        return float("inf")

    def _check_countable(self, n: int | float) -> None:
        """Raise NotSupported if the list would be too long."""
        if n > _MOST_LISTED:
            raise self._unsupported("enumerate", f"it has more than {_MOST_LISTED} data")

    def enumerate(self, use_mask: bool = False) -> Any:
        """Return all values along a new first dimension, repeated along batch dimensions.

        Args:
            use_mask: leave out values that the mask excludes.

        Raises:
            NotSupported: there are more than 2**24 values, or rows have different masks.
        """
        raise self._unsupported("enumerate", "its values are not countable")

    def bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the smallest and the largest value that each element of the data may have.

        Returns:
            Two tensors of the spec's shape (1 where a size is dynamic) and dtype. Without bounds they are infinities,
            or the limits of an integer dtype.

        Raises:
            SpecError: the data is not one tensor of numbers.
        """
        raise SpecError(f"Expected a spec of numbers, found {type(self).__name__}, which has no bounds: {self}.")

    # Actions -----------------------------------------------------------------------------------------------------

    # Environments call these methods once, when their specs are known. Only the functions that they return run at each
    # step. A kind of spec overrides those whose defaults do not fit it; no other code distinguishes kinds of actions.

    choice_form: ClassVar[ChoiceForm] = None
    """How data encodes choices: one of ``space.n`` categories (one-hot or as a number), several choices, or None.

    Actors compare it with their actions.
    """

    rows_differ: ClassVar[bool] = False
    """Whether rows have different specs, as in a stack of unequal specs."""

    @property
    def one_hot_sizes(self) -> list[int] | None:
        """Sizes of the one-hot vectors that lie end to end in the last dimension; None if data is not one-hot."""
        return None

    def array_check(self) -> ArrayCheck | None:
        """Return a function that checks whether all actions in an array ``[..., *shape]`` are valid choices.

        The default, None, accepts every value: environments clip numbers themselves.
        """
        return None

    def number_check(self) -> NumberCheck | None:
        """Return the same check for one action as Python numbers, ``action.tolist()``; None if it is not faster."""
        return None

    def action_decoder(self, refuse: Refuse) -> ActionDecoder:
        """Return the functions that convert actions for a library. By default, a library takes arrays.

        Args:
            refuse: call it with an invalid action; it raises the error.
        """
        return decode_arrays(self.shape, self.dtype)

    def masked_choice(self, shape: torch.Size) -> MaskedChoice | None:
        """Return an object that draws random actions under masks of a shape; None, the default, without choices.

        Raises:
            SpecError: the shape of the masks does not fit.
        """
        return None

    def action_text(self) -> str:
        """Describe the valid actions; error texts put it after "must be"."""
        return f"in {self!r}"

    def action_hint(self, value: torch.Tensor, expected: tuple[int, ...], name: str) -> str:
        """Suggest how to convert an invalid action; empty by default.

        Args:
            value: the action, of a wrong shape or no valid choice.
            expected: the shape that it must have.
            name: an expression for this spec, such as ``env.action_spec``.

        Returns:
            A sentence that begins with a space, or nothing.
        """
        return ""

    # Shapes ------------------------------------------------------------------------------------------------------

    def _apply(self, change: Callable[[Any], Any], doing: str) -> Any:
        """Return the spec of ``change(data)``. Classes may override the operations below instead.

        Args:
            change: a shape operation that tensors and specs have.
            doing: name of the operation in errors.
        """
        raise NotImplementedError

    def _changed(self, method: str, *arguments: object) -> Any:
        return self._apply(methodcaller(method, *arguments), " ".join([method, *map(str, arguments)]))

    def expand(self, *sizes: ShapeLike) -> Self:
        """Return the spec of data expanded to a larger shape; -1 keeps a size."""
        target = shapes.flat_sizes(sizes)
        return self._apply(lambda data: shapes.expanded(data, target), f"expand to {tuple(target)}")  # type: ignore[no-any-return]

    def squeeze(self, dim: int | None = None) -> Spec:
        """Return the spec without a dimension of size 1, or without any of them."""
        # A tensor without dimensions can be squeezed along 0 or -1, a TensorDict cannot.
        every = dim is None or (self.ndim == 0 and dim in (0, -1))
        return self._changed("squeeze", *([] if every else [dim]))  # type: ignore[no-any-return]

    def unsqueeze(self, dim: int) -> Self:
        """Return the spec with a new dimension of size 1 at ``dim``."""
        return self._changed("unsqueeze", dim)  # type: ignore[no-any-return]

    def reshape(self, *sizes: ShapeLike) -> Spec:
        """Return the spec of reshaped data; one size may be -1."""
        return self._changed("reshape", tuple(shapes.flat_sizes(sizes)))  # type: ignore[no-any-return]

    def view(self, *sizes: ShapeLike) -> Spec:
        """Same as :meth:`reshape`."""
        return self.reshape(*sizes)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Spec:
        """Return the spec with the dimensions from ``start_dim`` to ``end_dim`` joined."""
        return self._changed("flatten", start_dim, end_dim)  # type: ignore[no-any-return]

    def unflatten(self, dim: int, sizes: ShapeLike) -> Spec:
        """Return the spec with the dimension ``dim`` split into ``sizes``."""
        return self._changed("unflatten", dim, tuple(shapes.size(sizes)))  # type: ignore[no-any-return]

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        """Return the specs along a dimension.

        Raises:
            SpecError: the dimension is dynamic.
        """
        at = shapes.normal_dim(dim, self.ndim, what=f"a {type(self).__name__} of shape {tuple(self.shape)}")
        if self.shape[at] < 0:
            raise SpecError(f"{type(self).__name__} of shape {tuple(self.shape)}: cannot unbind dimension {dim}.")
        return tuple(self[(*[slice(None)] * at, i)] for i in range(self.shape[at]))

    @abstractmethod
    def _index(self, index: object) -> Any:
        """Return the spec of ``data[index]``."""

    def __getitem__(self, index: object) -> Any:
        """Index as data of this shape is indexed: with ints, slices, None, ``...``, lists, arrays and tensors.

        The batch dimensions of a Composite are indexed. An int along the stacked dimension of a stack gives the part
        itself, any other index a new spec; an empty selection along it raises NotSupported.
        """
        return self._index(index)

    @abstractmethod
    def make_neg_dim(self, dim: int) -> Self:
        """Make the size at ``dim`` dynamic, in place; return the spec."""

    # Copies and devices ------------------------------------------------------------------------------------------

    @abstractmethod
    def clone(self) -> Self:
        """Return an independent, unlocked copy."""

    @abstractmethod
    def to(self, dest: torch.device | str | int | torch.dtype | None) -> Self:
        """Return the spec on another device, or of another dtype; itself if nothing changes."""

    def cpu(self) -> Self:
        """Return the spec on the CPU."""
        return self.to("cpu")

    def cuda(self, device: torch.device | str | int | None = None) -> Self:
        """Return the spec on a CUDA device, the current one by default."""
        return self.to("cuda" if device is None else device)

    @abstractmethod
    def clear_device_(self) -> Self:
        """Make the device None, in place; return the spec."""

    @abstractmethod
    def __eq__(self, other: object) -> bool:
        """Whether class, shape, dtype, device and domain are equal (bounds up to rounding)."""

    # Specs are mutable and compare by value.
    __hash__ = None  # type: ignore[assignment]

    # Shared by the classes ---------------------------------------------------------------------------------------

    def _shape_after(self, doing: str, change: Change) -> torch.Size:
        """Return the shape of ``change(data)``.

        Raises:
            SpecError: data of this shape cannot be changed so.
        """
        return self._attempt(doing, lambda: shapes.shape_after(self.shape, change))

    def _attempt(self, doing: str, change: Callable[[], _Result]) -> _Result:
        """Return the result of a shape operation; its RuntimeError becomes a SpecError."""
        try:
            return change()
        except RuntimeError as error:
            reason = str(error).replace(str(shapes.stand_in(self.shape)), "-1")
            raise SpecError(f"{type(self).__name__} of shape {tuple(self.shape)}: cannot {doing}: {reason}") from None

    def _unsupported(self, what: str, why: str) -> Exception:
        return NotSupported(f"{type(self).__name__}.{what} is not possible: {why}.")

    def _check_choices(self, index: torch.Tensor, choices: torch.Tensor, rows: tuple[int, ...], n: int) -> None:
        """Raise unless ``found`` has an entry for each of ``n`` categories, per row or for all rows."""
        lead = tuple(choices.shape[:-1])
        fits = choices.ndim > 0 and choices.shape[-1] == n and len(lead) <= len(rows)
        if not fits or any(a not in (1, b) for a, b in zip(reversed(lead), reversed(rows), strict=False)):
            raise SpecError(
                f"{type(self).__name__}.index: data of shape {tuple(index.shape)} picks from a tensor of shape "
                f"{(*rows, n)}, with an entry for each of {n} categories; found {tuple(choices.shape)}."
            )

    @classmethod
    def __torch_function__(
        cls, func: object, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        function = cls._torch_functions.get(func)
        return NotImplemented if function is None else function(*args, **(kwargs or {}))
