"""Flags of the rows of a batch."""

from __future__ import annotations

from steppe.batched.flags import Flags


def test_flags_begin_as_false():
    flags = Flags(3)

    assert not any(getattr(flags, name).any() for name in ("active", "was_reset", "has_info", "begun", "loose"))


def test_flags_lie_in_the_given_memory():
    memory = bytearray(Flags.nbytes(4))
    first, second = Flags(4, memory), Flags(4, memory)
    first.begun[2] = True

    assert second.begun.tolist() == [False, False, True, False]
    assert not second.loose.any()
