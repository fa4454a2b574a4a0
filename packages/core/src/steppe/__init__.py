"""One torch and tensordict interface to every reinforcement-learning environment library.

Importing steppe imports nothing else: a public name is imported from its subpackage at its first use, so that
``steppe plugins`` and the module of a plugin start without torch. Transforms, collectors, agents and classes of
environments of other packages are found by their names too, as in :mod:`steppe.transforms`: if the package is missing,
the error says how to install it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers treat it like typing.TYPE_CHECKING, whose import would take time
if TYPE_CHECKING:
    from typing import Any

    from .batched import EnvCreator as EnvCreator
    from .batched import ParallelEnv as ParallelEnv
    from .batched import SerialEnv as SerialEnv
    from .collectors import AsyncCollector as AsyncCollector
    from .collectors import BaseCollector as BaseCollector
    from .collectors import Collector as Collector
    from .collectors import DataCollectorBase as DataCollectorBase
    from .collectors import MultiAsyncCollector as MultiAsyncCollector
    from .collectors import MultiaSyncDataCollector as MultiaSyncDataCollector
    from .collectors import MultiSyncCollector as MultiSyncCollector
    from .collectors import MultiSyncDataCollector as MultiSyncDataCollector
    from .collectors import SyncDataCollector as SyncDataCollector
    from .collectors import aSyncDataCollector as aSyncDataCollector
    from .collectors import split_trajectories as split_trajectories
    from .envs import ArrayEnv as ArrayEnv
    from .envs import EnvBase as EnvBase
    from .envs import ExplorationType as ExplorationType
    from .envs import RandomPolicy as RandomPolicy
    from .envs import check_env_specs as check_env_specs
    from .envs import exploration_type as exploration_type
    from .envs import make_composite_from_td as make_composite_from_td
    from .envs import set_exploration_type as set_exploration_type
    from .envs import step_mdp as step_mdp
    from .envs import write_row as write_row
    from .errors import SteppeError as SteppeError
    from .registry import LibraryInfo as LibraryInfo
    from .registry import env_factory as env_factory
    from .registry import env_not_found as env_not_found
    from .registry import get_available_libraries as get_available_libraries
    from .registry import hookimpl as hookimpl
    from .registry import list_envs as list_envs
    from .registry import list_plugins as list_plugins
    from .registry import make_env as make_env
    from .registry import register_env as register_env
    from .specs import Binary as Binary
    from .specs import Bounded as Bounded
    from .specs import BoundedContinuous as BoundedContinuous
    from .specs import BoundedDiscrete as BoundedDiscrete
    from .specs import Categorical as Categorical
    from .specs import Composite as Composite
    from .specs import MultiCategorical as MultiCategorical
    from .specs import MultiOneHot as MultiOneHot
    from .specs import NonTensor as NonTensor
    from .specs import OneHot as OneHot
    from .specs import Spec as Spec
    from .specs import Stacked as Stacked
    from .specs import StackedComposite as StackedComposite
    from .specs import TensorSpec as TensorSpec
    from .specs import Unbounded as Unbounded
    from .specs import UnboundedContinuous as UnboundedContinuous
    from .specs import UnboundedDiscrete as UnboundedDiscrete
    from .transforms import AutoResetEnv as AutoResetEnv
    from .transforms import Compose as Compose
    from .transforms import InitTracker as InitTracker
    from .transforms import ObservationTransform as ObservationTransform
    from .transforms import StepCounter as StepCounter
    from .transforms import Transform as Transform
    from .transforms import TransformedEnv as TransformedEnv
    from .versions import gym_backend as gym_backend
    from .versions import implement_for as implement_for
    from .versions import set_gym_backend as set_gym_backend

    __version__: str

_EXPORTS: dict[str, str] = {
    name: subpackage
    for subpackage, names in {
        "errors": ("SteppeError",),
        "registry": (
            "env_not_found",
            "LibraryInfo",
            "env_factory",
            "get_available_libraries",
            "hookimpl",
            "list_envs",
            "list_plugins",
            "make_env",
            "register_env",
        ),
        "versions": ("gym_backend", "implement_for", "set_gym_backend"),
        "specs": (
            "Binary",
            "Bounded",
            "BoundedContinuous",
            "BoundedDiscrete",
            "Categorical",
            "Composite",
            "MultiCategorical",
            "MultiOneHot",
            "NonTensor",
            "OneHot",
            "Spec",
            "Stacked",
            "StackedComposite",
            "TensorSpec",
            "Unbounded",
            "UnboundedContinuous",
            "UnboundedDiscrete",
        ),
        "envs": (
            "ArrayEnv",
            "EnvBase",
            "ExplorationType",
            "RandomPolicy",
            "check_env_specs",
            "exploration_type",
            "make_composite_from_td",
            "set_exploration_type",
            "step_mdp",
            "write_row",
        ),
        "transforms": (
            "AutoResetEnv",
            "Compose",
            "InitTracker",
            "ObservationTransform",
            "StepCounter",
            "Transform",
            "TransformedEnv",
        ),
        "batched": (
            "EnvCreator",
            "ParallelEnv",
            "SerialEnv",
        ),
        "collectors": (
            "AsyncCollector",
            "BaseCollector",
            "Collector",
            "DataCollectorBase",
            "MultiAsyncCollector",
            "MultiSyncCollector",
            "MultiSyncDataCollector",
            "MultiaSyncDataCollector",
            "SyncDataCollector",
            "aSyncDataCollector",
            "split_trajectories",
        ),
    }.items()
    for name in names
}

_SUBPACKAGES = (
    "batched",
    "collectors",
    "envs",
    "errors",
    "loggers",
    "registry",
    "specs",
    "storage",
    "transforms",
    "versions",
)
_KINDS_OF_NAMES: tuple[Any, ...] = ("transform", "collector", "env class", "function")

#: Whether workers hide warnings that match no filter of the caller.
filter_warnings_subprocess: bool = True


def __getattr__(name: str) -> Any:
    # importlib is imported here because `import steppe` should be fast.
    from importlib import import_module

    if name in _EXPORTS:
        value = getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    elif name in _SUBPACKAGES:
        return import_module(f"{__name__}.{name}")
    elif name == "__all__":  # for `from steppe import *`, which leaves out classes that cannot be imported
        return ["__version__", *_EXPORTS, *(each for each in _classes_of_packages() if _can_be_imported(each))]
    elif name == "__version__":
        from .registry.discovery import steppe_version

        value = steppe_version()
    else:
        return _class_of_a_package(name)
    globals()[name] = value
    return value


def _class_of_a_package(name: str) -> Any:
    """Return a class of another package: the transform `steppe.DoubleToFloat` is in steppe-tensor.

    Raises:
        ClassNotFound: the package is not installed; the text says how to install it.
        AttributeError: no package is known to provide the name.
    """
    hint = ""
    if not name.startswith("_"):
        from .registry import find_class
        from .registry.messages import did_you_mean

        for kind in _KINDS_OF_NAMES:
            try:
                return find_class(kind, name)
            except AttributeError:
                continue  # its text names the subpackage
        hint = did_you_mean(name, __dir__())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{'.' if hint else ''}{hint}")


def _classes_of_packages() -> list[str]:
    from .registry import list_classes

    return [name for kind in _KINDS_OF_NAMES for name in list_classes(kind)]


def _can_be_imported(name: str) -> bool:
    try:
        return _class_of_a_package(name) is not None
    except Exception:
        return False


def __dir__() -> list[str]:
    return sorted({"__version__", *_EXPORTS, *_SUBPACKAGES, *_classes_of_packages()})
