"""The kinds of entries that an environment has specs for."""

from __future__ import annotations

__all__ = ["INPUT_KINDS", "OUTPUT_KINDS", "SPEC_KINDS"]

#: Kinds of entries that an environment returns; each kind has a spec ``full_<kind>_spec``.
OUTPUT_KINDS = ("observation", "reward", "done")
#: Kinds of entries that an environment reads.
INPUT_KINDS = ("action", "state")
#: All kinds.
SPEC_KINDS = (*OUTPUT_KINDS, *INPUT_KINDS)
