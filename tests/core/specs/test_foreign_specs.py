"""NonTensor, and the functions on specs."""

from __future__ import annotations

import torch

from steppe.specs import (
    Binary,
    Composite,
    NonTensor,
    Stacked,
    StackedComposite,
    Unbounded,
    check_no_exclusive_keys,
    contains_lazy_spec,
)


def exclusive() -> StackedComposite:
    return torch.stack(
        [
            Composite({"obs": Unbounded((3,)), "lidar": Unbounded((8, 2)), ("n", "a"): Binary(2)}),
            Composite({"obs": Unbounded((4,)), ("n", "b"): NonTensor(example_data="x")}),
        ]
    )


def test_exclusive_keys_are_found() -> None:
    assert not check_no_exclusive_keys(exclusive())
    assert not check_no_exclusive_keys(Composite(agents=exclusive()))
    assert check_no_exclusive_keys(Composite(a=Unbounded(), n=Composite(b=None)))
    nested = torch.stack([Composite({("n", "a"): Binary(2)}), Composite({("n", "b"): Binary(2)})])
    assert not check_no_exclusive_keys(nested)
    assert check_no_exclusive_keys(nested, recurse=False)


def test_lazy_specs_are_found_at_any_depth() -> None:
    assert contains_lazy_spec(exclusive())
    assert contains_lazy_spec(Composite(n=Composite(agents=exclusive())))
    assert contains_lazy_spec(Composite(a=Stacked(Unbounded((2,)), Unbounded((3,)))))
    assert not contains_lazy_spec(Composite(n=Composite(a=Unbounded(), b=None)))
