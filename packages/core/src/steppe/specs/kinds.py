"""The kinds of specs that an environment has."""

from __future__ import annotations

__all__ = ["INPUT_KINDS", "OUTPUT_KINDS", "SPEC_KINDS"]

#: What an environment gives: the entries of ``full_observation_spec``, ``full_reward_spec``, ``full_done_spec``.
OUTPUT_KINDS = ("observation", "reward", "done")
#: What it takes: those of ``full_action_spec`` and ``full_state_spec``.
INPUT_KINDS = ("action", "state")
#: All of them.
SPEC_KINDS = (*OUTPUT_KINDS, *INPUT_KINDS)
