"""Which environments there are: ids are listed and looked up without building anything. Torch-free."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from steppe.versions import backend_name, gym_backend

__all__ = ["available_names", "known_names", "provider_of", "register_provider", "renamed"]


class Provider(NamedTuple):
    """A package that registers environments with gymnasium when it is imported."""

    module: str
    install: str
    names: re.Pattern[str]


# The games whose names say nothing of Atari: Pong-v4 is looked for like an environment of the library's own.
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
    Provider(
        "gymnasium_robotics", "gymnasium-robotics", re.compile(r"Fetch|Hand|Adroit|PointMaze|AntMaze|FrankaKitchen")
    ),
)


_VERSION = re.compile(r"^(?P<base>.+)-v(?P<version>\d+)$")


def available_names() -> list[str]:
    """The ids of the library that answers now, sorted, with those of the installed packages that extend it."""
    if backend_name("gym") == "gymnasium":
        for provider in PROVIDERS:
            register_provider(provider)
    return sorted(known_names(gym_backend()))


def known_names(library: ModuleType) -> list[str]:
    """The ids in the registry of a library as it is; nothing is imported but the library."""
    registry: Any = importlib.import_module(f"{library.__name__}.envs.registration").registry
    # A plain dict since gym 0.24; an object with a dict, or with a tree, before.
    specs: Any = registry if isinstance(registry, Mapping) else registry.env_specs
    return [str(name) for name in _iterate(specs)]


def provider_of(name: str) -> Provider | None:
    """The package that is known to register a name, installed or not."""
    return next((provider for provider in PROVIDERS if provider.names.match(name)), None)


def register_provider(provider: Provider) -> bool:
    """Import a package that registers environments; False where it is not installed or fails."""
    if importlib.util.find_spec(provider.module) is None:
        return False
    try:
        importlib.import_module(provider.module)
    # One broken extension must not hide the library's own environments.
    except Exception:
        return False
    return True


def renamed(name: str, names: Iterable[str]) -> str | None:
    """The newest version that the library has of an environment asked for in another version, or None."""
    asked = _VERSION.match(name)
    if asked is None:
        return None
    versions = [
        (int(found["version"]), candidate)
        for candidate in names
        if (found := _VERSION.match(candidate)) is not None and found["base"] == asked["base"]
    ]
    return max(versions)[1] if versions else None


def _iterate(specs: Any) -> Iterable[Any]:
    return list(specs.keys()) if hasattr(specs, "keys") else list(specs)
