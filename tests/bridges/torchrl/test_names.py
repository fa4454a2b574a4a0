"""Public names of TorchRL's classes exist in steppe, or are on the migration page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from torch import nn

import steppe
import steppe_gym
import steppe_multi_agent
from steppe_testing import CountingEnv
from tools.workspace import ROOT

envs = pytest.importorskip("torchrl.envs")
data = pytest.importorskip("torchrl.data")
collectors = pytest.importorskip("torchrl.collectors")
utils = pytest.importorskip("torchrl.envs.utils")
bridge = pytest.importorskip("steppe_torchrl")

PAGE = set(re.findall(r"\w+", (ROOT / "docs" / "migrating-from-torchrl.md").read_text(encoding="utf-8")))

CLASSES = {
    envs: [
        *("EnvBase", "GymLikeEnv", "ModelBasedEnvBase", "EnvCreator", "EnvMetaData", "TransformedEnv", "AutoResetEnv"),
        *("SerialEnv", "ParallelEnv", "AsyncEnvPool", "ProcessorAsyncEnvPool", "ThreadingAsyncEnvPool"),
        *("Transform", "Compose", "StepCounter", "RewardSum", "InitTracker", "RenameTransform", "SelectTransform"),
        *("ExcludeTransform", "DoubleToFloat", "DTypeCastTransform", "DeviceCastTransform", "TensorDictPrimer"),
        *("UnaryTransform", "ObservationTransform", "ConditionalSkip", "BatchSizeTransform", "AutoResetTransform"),
        "RemoveEmptySpecs",
    ],
    data: [
        *("Composite", "Bounded", "Unbounded", "Categorical", "OneHot", "MultiCategorical", "MultiOneHot", "Binary"),
        *("NonTensor", "Choice", "Stacked", "StackedComposite"),
    ],
    collectors: ["Collector"],
}
PAIRS = {name: (getattr(module, name), getattr(steppe, name)) for module, names in CLASSES.items() for name in names}
PAIRS |= {name: (getattr(envs, name), getattr(steppe_gym, name)) for name in ("GymEnv", "GymWrapper")}
# Specs are given by position.
BY_POSITION = re.compile("transform_.*_spec|get|update|is_in")

# Those of our classes whose objects have attributes that the class does not show.
OBJECTS = {
    "Collector": lambda: steppe.Collector(CountingEnv(3), None, frames_per_batch=1, total_frames=1),
    **dict.fromkeys(("GymLikeEnv", "GymEnv", "GymWrapper"), lambda: steppe_gym.GymEnv("CartPole-v1")),
}

each = pytest.mark.parametrize("name", PAIRS)


def public(cls: type) -> list[str]:
    return [name for name in dir(cls) if not name.startswith("_") and not hasattr(nn.Module, name) and name.islower()]


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


def functions(theirs: type, ours: type) -> Iterator[tuple[str, Any, Any]]:
    for name in ["__init__", *public(theirs)]:
        found = getattr(theirs, name, None), getattr(ours, name, None)
        if all(inspect.isroutine(each) for each in found):
            yield name, *found


@each
def test_methods_and_properties_are_there_or_on_the_page(name):
    theirs, ours = PAIRS[name]
    ours = OBJECTS[name]() if name in OBJECTS else ours

    assert [each for each in public(theirs) if not hasattr(ours, each) and each not in PAGE] == []


@each
def test_arguments_are_taken_or_on_the_page(name):
    theirs, ours = PAIRS[name]
    missing = []
    for method, function, own in functions(theirs, ours):
        taken = parameters(own)
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values()):
            if method != "__init__":
                continue  # handed on
            for base in ours.__mro__:
                taken.update(parameters(base.__init__))
        if not BY_POSITION.fullmatch(method):
            named = [key for key, each in parameters(function).items() if each.kind not in (2, 4)]
            missing += [f"{method}({key})" for key in named if key not in taken and key not in PAGE]

    assert missing == []


@each
def test_arguments_have_the_same_order(name):
    differing = []
    for method, theirs, ours in functions(*PAIRS[name]):
        first, second = (
            [key for key, each in parameters(function).items() if each.kind in (0, 1)] for function in (theirs, ours)
        )
        shared = [key for key in first if key in second]
        if shared != [key for key in second if key in shared]:
            differing.append(f"{method}: {first}, here {second}")

    assert differing == []


def test_functions_of_environments_take_the_same_arguments():
    names = [
        *("step_mdp", "check_env_specs", "make_composite_from_td", "terminated_or_truncated", "check_marl_grouping"),
        *("set_exploration_type", "exploration_type", "get_available_libraries", "RandomPolicy"),
    ]
    homes = (steppe, steppe.envs, steppe_multi_agent, bridge)
    ours = {name: next(getattr(home, name) for home in homes if hasattr(home, name)) for name in names}
    pairs = {name: (getattr(utils, name, None) or getattr(envs, name), ours[name]) for name in names}

    assert {name: set(parameters(pair[0])) - set(parameters(pair[1])) for name, pair in pairs.items()} == {
        name: set() for name in names
    }
