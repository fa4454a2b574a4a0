"""Affine functions of blocks of rows, in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from steppe.transforms import EnvSpecs, RowHooks

__all__ = ["affine_rows"]


def affine_rows(specs: EnvSpecs, pairs: list[tuple[Any, Any]], numbers: Callable[[], Any]) -> RowHooks | None:
    """Return the row hooks of an affine transform.

    Returns None if numpy would compute other results than torch.

    Args:
        specs: specs of the environment before the transform.
        pairs: keys to read and to write.
        numbers: function that returns the tensors ``loc``, ``scale`` and ``standard_normal``, which may change in
            place.
    """
    leaves = [
        spec[key] for key, _ in pairs for spec in (specs.observation, specs.reward) if spec.get(key, None) is not None
    ]
    loc, scale, standard_normal = numbers()
    # numpy and torch promote different dtypes differently.
    if len(leaves) != len(pairs) or any(tensor.device.type != "cpu" for tensor in (loc, scale)):
        return None
    for leaf in leaves:
        shape = torch.broadcast_shapes(leaf.shape, loc.shape, scale.shape)  # type: ignore[no-untyped-call]
        if shape != leaf.shape or not leaf.dtype == loc.dtype == scale.dtype or not leaf.dtype.is_floating_point:
            return None

    def bind(root: Any, following: Any) -> Any:
        # Views, so that values that are loaded later apply.
        minus, by, standard = loc.detach().numpy(), scale.detach().numpy(), standard_normal.numpy()
        after = [(following.before[key], following[out_key]) for key, out_key in pairs]
        fresh = [(root.before[key], root[out_key]) for key, out_key in pairs if key in root.before]

        def step() -> bool:
            for source, target in after:
                target[...] = (source - minus) / by if standard else source * by + minus
            return False

        def reset(at: Any) -> None:
            for source, target in fresh:
                for row in at:
                    value = source[row]
                    target[row] = (value - minus) / by if standard else value * by + minus

        return step, reset

    return RowHooks(bind, reads=[key for key, _ in pairs], writes=[out_key for _, out_key in pairs])
