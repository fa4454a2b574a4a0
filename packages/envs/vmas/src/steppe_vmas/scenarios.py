"""The scenarios that come with VMAS, by name."""

from __future__ import annotations

__all__ = ["scenario_names"]


def scenario_names() -> list[str]:
    """Names for ``make_env("vmas:...")``: those of VMAS' lists of scenarios."""
    import vmas

    return sorted({*vmas.scenarios, *vmas.mpe_scenarios, *vmas.debug_scenarios})
