"""Types of entries."""

from __future__ import annotations

from typing import get_args

import numpy as np

from steppe.envs.data_types import Array, Flags, Key


def test_a_key_is_a_name_or_a_path_of_names() -> None:
    assert eval(Key) == str | tuple[str, ...]


def test_arrays_have_any_dtype_and_flags_are_truth_values() -> None:
    assert Array.__origin__ is np.ndarray
    assert get_args(get_args(Flags)[1]) == (np.bool_,)
