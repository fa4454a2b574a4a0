"""Hints for authors of plugins, in the errors of the conformance kit and of ``steppe check``."""

from __future__ import annotations

from typing import Any

__all__ = ["action_hint"]


def action_hint(env: Any) -> str:
    """Say which actions a step may get, for an error that a simulator raises in a random step."""
    specs = env.full_action_spec.items(include_nested=True, leaves_only=True)
    allowed = "; ".join(f"{key!r} is {leaf.action_text()}" for key, leaf in specs)
    return f"The actions are drawn from the action spec, by which {allowed}: let the spec allow only what step takes"
