"""One torch and tensordict interface to every reinforcement-learning environment library.

Importing steppe imports nothing else: a public name is fetched from its subpackage when it is first touched, so that
``steppe plugins`` and a plugin's own module start without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batched import (
        AsyncEnvPool,
        EnvCreator,
        ParallelEnv,
        ProcessorAsyncEnvPool,
        SerialEnv,
        ThreadingAsyncEnvPool,
        filter_warnings_subprocess,
    )
    from .collectors import (
        Agent,
        Batcher,
        Collector,
        DataCollectorBase,
        EpisodeBatcher,
        MonoThreadEpisodeBatcher,
        MultiaSyncDataCollector,
        MultiSyncDataCollector,
        SyncDataCollector,
        aSyncDataCollector,
        split_trajectories,
    )
    from .envs import (
        ArrayEnv,
        ArrayPlan,
        EnvBase,
        EnvMetaData,
        ExplorationType,
        GymLikeEnv,
        ModelBasedEnvBase,
        RandomPolicy,
        check_env_specs,
        exploration_type,
        make_composite_from_td,
        set_exploration_type,
        step_mdp,
        terminated_or_truncated,
    )
    from .errors import SteppeError
    from .registry import (
        LibraryInfo,
        env_factory,
        get_available_libraries,
        hookimpl,
        list_envs,
        list_plugins,
        make_env,
        refresh,
        register_env,
    )
    from .specs import (
        Binary,
        Bounded,
        Categorical,
        Choice,
        Composite,
        MultiCategorical,
        MultiOneHot,
        NonTensor,
        OneHot,
        Spec,
        Stacked,
        StackedComposite,
        Unbounded,
    )
    from .storage import Storage
    from .transforms import (
        AutoResetTransform,
        BatchSizeTransform,
        Compose,
        ConditionalSkip,
        DeviceCastTransform,
        DoubleToFloat,
        DTypeCastTransform,
        ExcludeTransform,
        InitTracker,
        ObservationTransform,
        RenameTransform,
        RewardSum,
        SelectTransform,
        StepCounter,
        TensorDictPrimer,
        Transform,
        TransformedEnv,
        UnaryTransform,
    )
    from .versions import gym_backend, implement_for, set_backend, set_gym_backend

    __version__: str

_EXPORTS: dict[str, str] = {
    name: subpackage
    for subpackage, names in {
        "errors": ("SteppeError",),
        "registry": (
            "LibraryInfo",
            "env_factory",
            "get_available_libraries",
            "hookimpl",
            "list_envs",
            "list_plugins",
            "make_env",
            "refresh",
            "register_env",
        ),
        "versions": ("gym_backend", "implement_for", "set_backend", "set_gym_backend"),
        "specs": (
            "Binary",
            "Bounded",
            "Categorical",
            "Choice",
            "Composite",
            "MultiCategorical",
            "MultiOneHot",
            "NonTensor",
            "OneHot",
            "Spec",
            "Stacked",
            "StackedComposite",
            "Unbounded",
        ),
        "storage": ("Storage",),
        "envs": (
            "ArrayEnv",
            "ArrayPlan",
            "EnvBase",
            "EnvMetaData",
            "ExplorationType",
            "GymLikeEnv",
            "ModelBasedEnvBase",
            "RandomPolicy",
            "check_env_specs",
            "exploration_type",
            "make_composite_from_td",
            "set_exploration_type",
            "step_mdp",
            "terminated_or_truncated",
        ),
        "transforms": (
            "AutoResetTransform",
            "BatchSizeTransform",
            "Compose",
            "ConditionalSkip",
            "DTypeCastTransform",
            "DeviceCastTransform",
            "DoubleToFloat",
            "ExcludeTransform",
            "InitTracker",
            "ObservationTransform",
            "RenameTransform",
            "RewardSum",
            "SelectTransform",
            "StepCounter",
            "TensorDictPrimer",
            "Transform",
            "TransformedEnv",
            "UnaryTransform",
        ),
        "batched": (
            "AsyncEnvPool",
            "EnvCreator",
            "ParallelEnv",
            "ProcessorAsyncEnvPool",
            "SerialEnv",
            "ThreadingAsyncEnvPool",
            "filter_warnings_subprocess",
        ),
        "collectors": (
            "Agent",
            "Batcher",
            "Collector",
            "DataCollectorBase",
            "EpisodeBatcher",
            "MonoThreadEpisodeBatcher",
            "MultiSyncDataCollector",
            "MultiaSyncDataCollector",
            "SyncDataCollector",
            "aSyncDataCollector",
            "split_trajectories",
        ),
    }.items()
    for name in names
}

_SUBPACKAGES = ("batched", "collectors", "envs", "errors", "registry", "specs", "storage", "transforms", "versions")

__all__ = ["__version__", *_EXPORTS]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    # importlib is imported here because `import steppe` should cost nothing.
    from importlib import import_module

    if name in _EXPORTS:
        value = getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    elif name in _SUBPACKAGES:
        return import_module(f"{__name__}.{name}")
    elif name == "__version__":
        from .registry.discovery import steppe_version

        value = steppe_version()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBPACKAGES})
