"""Conformance classes, fixtures and mock environments to test plugins.

Each module is imported at the first use of one of its names, so importing this package imports neither torch nor
steppe.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .auto_specs import auto_specs_ as auto_specs_
    from .compare import assert_equal_data as assert_equal_data
    from .compare import differences as differences
    from .data_env import ArrayDataEnv as ArrayDataEnv
    from .data_env import DataEnv as DataEnv
    from .env_conformance import EnvConformance as EnvConformance
    from .fake_dists import FakeDists as FakeDists
    from .mock_actions import ACTION_KINDS as ACTION_KINDS
    from .mock_actions import action_leaf as action_leaf
    from .mock_actions import action_number as action_number
    from .mock_envs import ArrayCountingEnv as ArrayCountingEnv
    from .mock_envs import CountingEnv as CountingEnv
    from .mock_envs import DoNothingEnv as DoNothingEnv
    from .mock_envs import IncrementingEnv as IncrementingEnv
    from .mock_envs import ScalarActionEnv as ScalarActionEnv
    from .mock_envs import StatelessCountingEnv as StatelessCountingEnv
    from .mock_faults import DyingEnv as DyingEnv
    from .mock_faults import FailingEnv as FailingEnv
    from .mock_faults import HangingEnv as HangingEnv
    from .mock_faults import ShapeShiftingEnv as ShapeShiftingEnv
    from .mock_faults import SlowEnv as SlowEnv
    from .mock_models import ConstantPolicy as ConstantPolicy
    from .mock_models import ModelCountingEnv as ModelCountingEnv
    from .mock_multi import HeterogeneousCountingEnv as HeterogeneousCountingEnv
    from .mock_multi import MultiAgentCountingEnv as MultiAgentCountingEnv
    from .mock_multi import MultiKeyCountingEnv as MultiKeyCountingEnv
    from .mock_multi import NestedCountingEnv as NestedCountingEnv
    from .mock_multi import NestedResetEnv as NestedResetEnv
    from .mock_special import AutoResettingCountingEnv as AutoResettingCountingEnv
    from .mock_special import AutoResettingHeterogeneousEnv as AutoResettingHeterogeneousEnv
    from .mock_special import DynamicSpecEnv as DynamicSpecEnv
    from .mock_special import EchoEnv as EchoEnv
    from .mock_special import MetadataEnv as MetadataEnv
    from .mock_special import PlaceEnv as PlaceEnv
    from .mock_special import TextCountingEnv as TextCountingEnv
    from .plugin_conformance import PluginConformance as PluginConformance
    from .pools import WorkerPools as WorkerPools
    from .transform_conformance import TransformConformance as TransformConformance
    from .written_rows import check_written_rows as check_written_rows

_EXPORTS = {
    name: module
    for module, names in {
        "auto_specs": ("auto_specs_",),
        "compare": ("assert_equal_data", "differences"),
        "data_env": ("ArrayDataEnv", "DataEnv"),
        "env_conformance": ("EnvConformance",),
        "fake_dists": ("FakeDists",),
        "mock_actions": ("ACTION_KINDS", "action_leaf", "action_number"),
        "mock_envs": (
            "ArrayCountingEnv",
            "CountingEnv",
            "DoNothingEnv",
            "IncrementingEnv",
            "ScalarActionEnv",
            "StatelessCountingEnv",
        ),
        "mock_faults": ("DyingEnv", "FailingEnv", "HangingEnv", "ShapeShiftingEnv", "SlowEnv"),
        "mock_models": ("ConstantPolicy", "ModelCountingEnv"),
        "mock_multi": (
            "HeterogeneousCountingEnv",
            "MultiAgentCountingEnv",
            "MultiKeyCountingEnv",
            "NestedCountingEnv",
            "NestedResetEnv",
        ),
        "mock_special": (
            "AutoResettingCountingEnv",
            "AutoResettingHeterogeneousEnv",
            "DynamicSpecEnv",
            "EchoEnv",
            "MetadataEnv",
            "PlaceEnv",
            "TextCountingEnv",
        ),
        "plugin_conformance": ("PluginConformance",),
        "pools": ("WorkerPools",),
        "transform_conformance": ("TransformConformance",),
        "written_rows": ("check_written_rows",),
    }.items()
    for name in names
}

__all__ = [*_EXPORTS]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
