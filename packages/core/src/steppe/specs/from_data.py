"""make_composite_from_td: the spec of a TensorDict."""

from __future__ import annotations

from typing import Any

from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, is_tensor_collection, is_tensorclass

from steppe.errors import SpecError

from .composite import Composite
from .continuous import Unbounded
from .nontensor import NonTensor, flat_values
from .stacked import stack

__all__ = ["make_composite_from_td"]


def make_composite_from_td(data: Any, *, unsqueeze_null_shapes: bool = True, dynamic_shape: bool = False) -> Composite:
    """Make the Composite of unbounded specs that describes a TensorDict.

    Args:
        data: a TensorDict or tensorclass. Rows of a lazy stack that differ give a StackedComposite.
        unsqueeze_null_shapes: give entries without dimensions the shape ``[1]``, as environments have it.
        dynamic_shape: make the last dimension dynamic in every entry that has one after the batch dimensions.

    Returns:
        A Composite with the batch size, the device and, for a tensorclass, the class of ``data``; entries that are no
        tensors become NonTensor.

    Raises:
        SpecError: ``data`` is no TensorDict.
    """
    if not is_tensor_collection(data) or isinstance(data, (NonTensorData, NonTensorStack)):
        raise SpecError(f"make_composite_from_td: expected a TensorDict, found {type(data).__name__}.")
    how = {"unsqueeze_null_shapes": unsqueeze_null_shapes, "dynamic_shape": dynamic_shape}
    if isinstance(data, LazyStackedTensorDict):
        rows = [make_composite_from_td(row, **how) for row in data.tensordicts]
        stacked: Composite = stack(rows, data.stack_dim)
        return stacked
    out = Composite(shape=data.batch_size, device=data.device, data_cls=type(data) if is_tensorclass(data) else None)
    for key, value in data.items():
        if isinstance(value, (NonTensorData, NonTensorStack)):
            example = next(iter(flat_values(value)), None) if isinstance(value, NonTensorStack) else value.data
            out.set(key, NonTensor(value.batch_size, data.device, example_data=example))
        elif is_tensor_collection(value):
            out.set(key, make_composite_from_td(value, **how))
        else:
            shape = list(value.shape)
            if dynamic_shape and len(shape) > data.ndim:
                shape[-1] = -1
            if not shape and unsqueeze_null_shapes:
                shape = [1]
            out.set(key, Unbounded(shape, data.device, value.dtype))
    return out
