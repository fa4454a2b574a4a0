"""The bridge between steppe and TorchRL.

Data needs no conversion: both use the same TensorDict layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .choice import Choice as Choice
    from .conversion import from_torchrl as from_torchrl
    from .env_metadata import EnvMetaData as EnvMetaData
    from .env_metadata import get_env_metadata as get_env_metadata
    from .exported_env import ExportedEnv as ExportedEnv
    from .exported_env import as_torchrl as as_torchrl
    from .imported_env import ImportedEnv as ImportedEnv
    from .specs import to_torchrl as to_torchrl

_EXPORTS = {
    "Choice": "choice",
    "EnvMetaData": "env_metadata",
    "ExportedEnv": "exported_env",
    "ImportedEnv": "imported_env",
    "as_torchrl": "exported_env",
    "from_torchrl": "conversion",
    "get_env_metadata": "env_metadata",
    "to_torchrl": "specs",
}

__all__ = [*_EXPORTS]


def __getattr__(name: str) -> Any:
    # The import of TorchRL takes seconds: only names that need it import it.
    from importlib import import_module

    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
