"""Names of environments: list and look up ids without making an environment.

This module does not import torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from steppe.systems import render_without_display
from steppe.versions import gym_backend, gym_backend_name

__all__ = ["available_names", "known_names", "provider_of", "register_provider", "renamed"]


class Provider(NamedTuple):
    """A package that registers environments with gymnasium when it is imported."""

    module: str
    install: str
    names: re.Pattern[str]


# Atari games by name, because an id such as Pong-v4 does not contain "Atari" or "ALE".
_ATARI = (
    "Adventure|AirRaid|Alien|Amidar|Assault|Asterix|Asteroids|Atlantis|BankHeist|BattleZone|BeamRider|Berzerk|"
    "Bowling|Boxing|Breakout|Carnival|Centipede|ChopperCommand|CrazyClimber|Defender|DemonAttack|DoubleDunk|"
    "ElevatorAction|Enduro|FishingDerby|Freeway|Frostbite|Gopher|Gravitar|Hero|IceHockey|Jamesbond|JourneyEscape|"
    "Kangaroo|Krull|KungFuMaster|MontezumaRevenge|MsPacman|NameThisGame|Phoenix|Pitfall|Pong|Pooyan|PrivateEye|Qbert|"
    "Riverraid|RoadRunner|Robotank|Seaquest|Skiing|Solaris|SpaceInvaders|StarGunner|Tennis|TimePilot|Tutankham|"
    "UpNDown|Venture|VideoPinball|WizardOfWor|YarsRevenge|Zaxxon"
)
_ATARI_NAMES = rf"ALE/|[A-Za-z]+(-ram)?(NoFrameskip|Deterministic)-v|({_ATARI})(-ram)?-v"

PROVIDERS = (
    Provider("ale_py", "ale-py", re.compile(_ATARI_NAMES)),
    Provider("minigrid", "minigrid", re.compile(r"MiniGrid-|BabyAI-")),
    Provider("miniworld", "miniworld", re.compile(r"MiniWorld-")),
    Provider("metaworld", "metaworld", re.compile(r"Meta-World/")),
    Provider(
        "gymnasium_robotics", "gymnasium-robotics", re.compile(r"Fetch|Hand|Adroit|PointMaze|AntMaze|FrankaKitchen")
    ),
)


_VERSION = re.compile(r"^(?P<base>.+)-v(?P<version>\d+)$")


def available_names() -> list[str]:
    """Return the ids of the current backend, sorted.

    The ids of installed packages that extend the backend are included.
    """
    if gym_backend_name() == "gymnasium":
        for provider in PROVIDERS:
            register_provider(provider)
    return sorted(known_names(gym_backend()))


def known_names(library: ModuleType) -> list[str]:
    """Return the ids in the registry of a library.

    Packages that extend the library are not imported.
    """
    registry: Any = importlib.import_module(f"{library.__name__}.envs.registration").registry
    # A dict since gym 0.24. Before, an object that holds a dict or a tree.
    specs: Any = registry if isinstance(registry, Mapping) else registry.env_specs
    return [str(name) for name in _iterate(specs)]


def provider_of(name: str) -> Provider | None:
    """Return the package that registers a name, whether it is installed or not."""
    return next((provider for provider in PROVIDERS if provider.names.match(name)), None)


def register_provider(provider: Provider) -> str | None:
    """Import a package that registers environments.

    Returns None, or why its environments are not registered.
    """
    if importlib.util.find_spec(provider.module) is None:
        return f"which is not installed: pip install {provider.install}"
    render_without_display()  # MiniWorld opens a window when it is imported
    try:
        importlib.import_module(provider.module)
    # One broken extension must not hide the library's own environments.
    except Exception as error:
        return f"which cannot be imported: {type(error).__name__}: {error}"
    return None


def renamed(name: str, names: Iterable[str]) -> str | None:
    """Return the id of the newest version of an environment, from any version.

    Returns None if there is none.
    """
    requested = _VERSION.match(name)
    if requested is None:
        return None
    versions = [
        (int(match["version"]), candidate)
        for candidate in names
        if (match := _VERSION.match(candidate)) is not None and match["base"] == requested["base"]
    ]
    return max(versions)[1] if versions else None


def _iterate(specs: Any) -> Iterable[Any]:
    return list(specs.keys()) if hasattr(specs, "keys") else list(specs)
