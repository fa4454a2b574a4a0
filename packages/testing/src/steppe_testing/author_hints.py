"""Hints for authors of plugins, in the errors of the conformance kit and of ``steppe check``.

The module imports torch for none of them.
"""

from __future__ import annotations

from importlib.metadata import distributions
from typing import Any

__all__ = ["action_hint", "misspelt_groups"]

#: The groups of entry points in which plugins are found, after ``"steppe."``.
_GROUPS = ("envs", "env_classes", "transforms", "collectors", "functions", "datasets", "loggers", "commands")


def misspelt_groups() -> str:
    """Name installed packages whose entry-point group misspells one of steppe's; "" if no package does."""
    from difflib import get_close_matches

    hints = []
    for dist in distributions():
        for group in sorted({entry.group for entry in dist.entry_points}):
            prefix, _, rest = group.partition(".")
            close = get_close_matches(rest, _GROUPS, 1, 0.75) if prefix == "steppe" and rest not in _GROUPS else []
            if close:
                hints.append(
                    f". {dist.metadata['Name']} has entry points in the group {group!r}, which does not exist: write "
                    f'[project.entry-points."steppe.{close[0]}"] in its pyproject.toml, and install it again'
                )
    return "".join(hints)


def action_hint(env: Any) -> str:
    """Say which actions a step may get, for an error that a simulator raises in a random step."""
    specs = env.full_action_spec.items(include_nested=True, leaves_only=True)
    allowed = "; ".join(f"{key!r} is {leaf.action_text()}" for key, leaf in specs)
    return f"The actions are drawn from the action spec, by which {allowed}: let the spec allow only what step takes"
