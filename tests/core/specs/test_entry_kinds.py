"""The kinds of entries that an environment has specs for."""

from __future__ import annotations

from steppe.specs import INPUT_KINDS, OUTPUT_KINDS, SPEC_KINDS
from steppe_testing import CountingEnv


def test_an_environment_has_a_spec_of_each_kind():
    env = CountingEnv()

    assert {f"full_{kind}_spec" for kind in OUTPUT_KINDS} == set(env.output_spec.keys())
    assert {f"full_{kind}_spec" for kind in INPUT_KINDS} == set(env.input_spec.keys())
    assert all(hasattr(env, f"{kind}_spec") and hasattr(env, f"{kind}_keys") for kind in SPEC_KINDS)
