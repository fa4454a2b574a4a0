"""Names of the scenarios of VMAS."""

from __future__ import annotations

__all__ = ["scenario_names"]


def scenario_names() -> list[str]:
    """Return the names of VMAS' scenarios, sorted, for ``make_env("vmas:...")``."""
    import vmas

    return sorted({*vmas.scenarios, *vmas.mpe_scenarios, *vmas.debug_scenarios})
