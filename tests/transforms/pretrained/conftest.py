"""Lets torchvision be imported where its operators, which no network here uses, do not fit the build of torch."""

from __future__ import annotations

import torch

_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")

try:
    import torchvision  # noqa: F401
except RuntimeError:
    # Wheels of torchvision are for CUDA builds of torch.
    for _name in ("nms", "qnms"):
        _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
except ImportError:
    pass
