"""Names that programs written for TorchRL use, and that steppe has under other names, elsewhere or not at all.

Import from this module what a program imports from ``torchrl.envs``, ``torchrl.envs.utils``, ``torchrl.envs.libs``,
``torchrl.data``, ``torchrl.collectors`` and ``torchrl.record``::

    from steppe_torchrl.names import Composite, GymEnv, MultiSyncCollector, StepCounter, TransformedEnv, check_env_specs

Names of this module come first, then those of steppe, then those of the installed packages of steppe. Importing it also
gives classes of steppe the methods and attributes that only TorchRL's have: see :mod:`steppe_torchrl.added_methods`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from tensordict import TensorDictBase
from torchrl.data import consolidate_spec as _consolidate

import steppe
from steppe import (
    AsyncCollector,
    BaseCollector,
    ExplorationType,
    MultiAsyncCollector,
    MultiSyncCollector,
    exploration_type,
    set_exploration_type,
)
from steppe.batched import env_creator
from steppe.envs import EnvBase
from steppe.specs import (
    Binary,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    NonTensor,
    OneHot,
    Stacked,
    StackedComposite,
    Unbounded,
    UnboundedContinuous,
    UnboundedDiscrete,
    check_no_exclusive_keys,
    contains_lazy_spec,
)
from steppe.specs import Bounded as BoundedTensorSpec

from .added_methods import add_methods
from .choice import Choice
from .done_masks import terminated_or_truncated
from .env_metadata import EnvMetaData, get_env_metadata
from .specs import spec_from_torchrl, to_torchrl
from .unwrapping import auto_unwrap_transformed_env, set_auto_unwrap_transformed_env

__all__ = [
    "AsyncCollector",
    "BaseCollector",
    "BinaryDiscreteTensorSpec",
    "BoundedTensorSpec",
    "Choice",
    "ChoiceSpec",
    "CompositeSpec",
    "DiscreteTensorSpec",
    "EnvMetaData",
    "LazyStackedCompositeSpec",
    "LazyStackedTensorSpec",
    "MultiAsyncCollector",
    "MultiDiscreteTensorSpec",
    "MultiOneHotDiscreteTensorSpec",
    "MultiSyncCollector",
    "NonTensorSpec",
    "OneHotDiscreteTensorSpec",
    "UnboundedContinuousTensorSpec",
    "UnboundedDiscreteTensorSpec",
    "UnboundedTensorSpec",
    "VecGymEnvTransform",
    "auto_specs_",
    "auto_unwrap_transformed_env",
    "check_no_exclusive_keys",
    "consolidate_spec",
    "contains_lazy_spec",
    "env_creator",
    "exploration_mode",
    "get_env_metadata",
    "make_tensordict",
    "set_auto_unwrap_transformed_env",
    "set_exploration_mode",
    "terminal_obs_reader",
    "terminated_or_truncated",
]

# Names of older versions.
BinaryDiscreteTensorSpec = Binary
ChoiceSpec = Choice
CompositeSpec = Composite
DiscreteTensorSpec = Categorical
LazyStackedCompositeSpec = StackedComposite
LazyStackedTensorSpec = Stacked
MultiDiscreteTensorSpec = MultiCategorical
MultiOneHotDiscreteTensorSpec = MultiOneHot
NonTensorSpec = NonTensor
OneHotDiscreteTensorSpec = OneHot
UnboundedContinuousTensorSpec = UnboundedContinuous
UnboundedDiscreteTensorSpec = UnboundedDiscrete
UnboundedTensorSpec = Unbounded

# Names that steppe has elsewhere: where each is looked up, and its name there.
_MOVED = {
    "DistributedCollector": ("steppe", "DistributedDataCollector"),
    "DistributedSyncCollector": ("steppe", "DistributedSyncDataCollector"),
    "RPCCollector": ("steppe", "RPCDataCollector"),
    "_EnvWrapper": ("steppe", "GymLikeEnv"),
    "_gym_to_torchrl_spec_transform": ("steppe_gym", "space_to_spec"),
    "_torchrl_to_gym_spec_transform": ("steppe_gym", "spec_to_space"),
    "check_marl_grouping": ("steppe_multi_agent", "check_marl_grouping"),
}

# Where other names are looked up: steppe, then the packages of libraries and tools.
_HOMES = (
    *("steppe", "steppe.envs", "steppe.specs", "steppe.batched", "steppe.collectors", "steppe.transforms"),
    *("steppe_gym", "steppe_mo_gym", "steppe_dm_control", "steppe_pettingzoo", "steppe_vmas", "steppe_brax"),
    *("steppe_jumanji", "steppe_envpool", "steppe_openml", "steppe_openspiel", "steppe_meltingpot", "steppe_record"),
    *("steppe_replay", "steppe.loggers"),
)

_set_missing_tolerance = steppe.Transform.set_missing_tolerance

add_methods()


def consolidate_spec(spec: Any, recurse_through_entries: bool = True, recurse_through_stack: bool = True) -> Any:
    """Return a spec whose stacks have the same entries in all rows: a row that lacks one gets an entry of size 0.

    steppe stacks rows with different entries as they are. Programs that write such empty entries need the spec.

    Args:
        spec: a Composite of steppe.
        recurse_through_entries: consolidate nested entries too.
        recurse_through_stack: consolidate the parts of a stack first.
    """
    return spec_from_torchrl(_consolidate(to_torchrl(spec), recurse_through_entries, recurse_through_stack))


def make_tensordict(env: EnvBase, policy: Any = None) -> TensorDictBase:
    """Return zeros for one step of an environment, root and ``next``, with the entries of a policy.

    Args:
        env: the environment. Without a policy it is not stepped.
        policy: called once, on the first data of an episode.
    """
    if policy is None:
        return env.fake_tensordict()
    with torch.no_grad():
        data: Any = env.rollout(1, policy)[..., 0]
    zeros: TensorDictBase = torch.zeros_like(data)  # type: ignore[assignment]
    return zeros


def auto_specs_(env: EnvBase, *args: Any, **kwargs: Any) -> EnvBase:
    """Infer the specs of an environment from two steps; see ``steppe_testing.auto_specs_`` (steppe-testing)."""
    made: EnvBase = env.auto_specs_(*args, **kwargs)
    return made


def set_exploration_mode(mode: str | None) -> AbstractContextManager[Any]:
    """Set the exploration type by the name that older versions use: ``"random"``, ``"mode"``, ``"mean"``, ``"median"``.

    Raises:
        ValueError: there is no type of that name.
    """
    names = [kind.name.lower() for kind in ExplorationType]
    if mode is not None and mode.lower() not in names:
        raise ValueError(f"set_exploration_mode: expected one of {names}, found {mode!r}.")
    kind = None if mode is None else ExplorationType[mode.upper()]
    context: AbstractContextManager[Any] = set_exploration_type(kind)
    return context


def exploration_mode() -> str | None:
    """Return the name of the exploration type, or None."""
    kind = exploration_type()
    return None if kind is None else str(kind.name).lower()


class VecGymEnvTransform(steppe.Transform):
    """Change nothing: ``GymEnv(num_envs=...)`` of steppe returns the true last observations itself.

    Args:
        *args: ignored.
        **kwargs: ignored.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()


class terminal_obs_reader:
    """Read nothing: ``GymEnv(num_envs=...)`` of steppe returns the true last observations itself.

    Args:
        *args: ignored.
        **kwargs: ignored.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.info_spec: dict[str, Any] = {}

    def __call__(self, info: Any, tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        home, theirs = _MOVED[name]
        return getattr(import_module(home), theirs)
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for home in _HOMES:
        if find_spec(home) is None:
            continue
        try:
            return getattr(import_module(home), name)
        except AttributeError:
            continue
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}. The page docs/migrating-from-torchrl.md lists names of "
        "TorchRL that steppe does not have, and what to use instead."
    )
