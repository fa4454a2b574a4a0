"""The bridge between steppe and TorchRL.

Data needs no conversion: both use the same TensorDict layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .choice import Choice as Choice
    from .conversion import from_torchrl as from_torchrl
    from .done_masks import terminated_or_truncated as terminated_or_truncated
    from .env_metadata import EnvMetaData as EnvMetaData
    from .env_metadata import get_env_metadata as get_env_metadata
    from .exported_env import ExportedEnv as ExportedEnv
    from .exported_env import as_torchrl as as_torchrl
    from .imported_env import ImportedEnv as ImportedEnv
    from .specs import to_torchrl as to_torchrl
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "choice": ["Choice"],
            "conversion": ["from_torchrl"],
            "done_masks": ["terminated_or_truncated"],
            "env_metadata": ["EnvMetaData", "get_env_metadata"],
            "exported_env": ["ExportedEnv", "as_torchrl"],
            "imported_env": ["ImportedEnv"],
            "specs": ["to_torchrl"],
        },
    )
