"""Build the site without the libraries whose plugins are tested apart: autodoc gets empty modules instead."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["LIBRARIES", "accept_missing_libraries"]

_ALL = (
    *("brax", "chex", "craftax", "flax", "gymnax", "jax", "jaxlib", "jumanji", "mujoco_playground", "pgx"),
    *("gym3", "meltingpot", "minari", "procgen", "ray", "sb3_contrib", "stable_baselines3", "torchrl", "torchvision"),
    *("dmlab2d", "ml_collections", "mlagents_envs", "openml", "pyspiel", "safety_gymnasium", "sklearn"),
)
LIBRARIES = [name for name in _ALL if find_spec(name) is None]


def accept_missing_libraries() -> None:
    """Let plugins be imported in this process though their libraries are mocks, which have no version to check."""
    from steppe.registry import requirements

    requirements.check = lambda record, **arguments: None  # type: ignore[assignment, misc]
