"""Public methods that a subclass or an instance overrides: each way of stepping calls them."""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import Any

import pytest
import torch

from steppe import ParallelEnv, SerialEnv, StepCounter, SyncDataCollector, Transform, TransformedEnv
from steppe.errors import NotSupported
from steppe_testing import ArrayCountingEnv, CountingEnv
from tests.core.envs.counting import ones

STEPS, END = 11, 4


def step(env: Any, inherited: Any, td: Any) -> Any:
    td = inherited(td)
    td["next", "reward"] = td["next", "reward"] + 0.25
    return td


def step_and_maybe_reset(env: Any, inherited: Any, td: Any) -> Any:
    td, root = inherited(td)
    td["next", "reward"] = td["next", "reward"] - 0.5
    root["observation"] = root["observation"] + 0.125
    return td, root


def maybe_reset(env: Any, inherited: Any, td: Any) -> Any:
    ended = bool(td["done"].any())
    root = inherited(td)
    return root.set("observation", root["observation"] + 30) if ended else root


def any_done(env: Any, inherited: Any, td: Any) -> bool:
    td["done"] = td["done"] | (td["observation"] == 2)  # episodes are shorter at their roots
    return bool(inherited(td))


def step_mdp(env: Any, inherited: Any, td: Any) -> Any:
    root = inherited(td)
    return root.set("observation", root["observation"] + 100)


def reset(env: Any, inherited: Any, td: Any = None, **kwargs: Any) -> Any:
    root = inherited(td, **kwargs)
    return root.set("observation", root["observation"] + 7)


def rand_action(env: Any, inherited: Any, td: Any = None) -> Any:
    return ones(inherited(td))


OVERRIDES = {
    function.__name__: function
    for function in (step, step_and_maybe_reset, maybe_reset, any_done, step_mdp, reset, rand_action)
}


def make(base: type, name: str, how: str, **kwargs: Any) -> Any:
    """Return an environment whose method ``name`` is overridden, by a subclass or by assignment."""
    override = OVERRIDES[name]
    if how == "subclass":

        def method(self: Any, *args: Any, **options: Any) -> Any:
            return override(self, partial(getattr(base, name), self), *args, **options)

        return type(f"Own{base.__name__}", (base,), {name: method})(END, **kwargs)
    env = base(END, **kwargs)
    inherited = getattr(env, name)
    setattr(env, name, MethodType(lambda self, *args, **options: override(self, inherited, *args, **options), env))
    return env


def hand_loop(env: Any, name: str) -> Any:
    """Step with the methods that ``step_and_maybe_reset`` stands for, or with itself if that is overridden."""
    frames, root = [], env.reset()
    for _ in range(STEPS):
        root = env.rand_action(root) if name == "rand_action" else ones(root)
        if name == "step_and_maybe_reset":
            frame, root = env.step_and_maybe_reset(root)
        else:
            frame = env.step(root)
            root = env.maybe_reset(env.step_mdp(frame))
        frames.append(frame.clone())
    return torch.stack(frames, -1).select("observation", ("next", "observation"), ("next", "reward"), ("next", "done"))


def flat(data: Any) -> dict[Any, list[Any]]:
    keys = ("observation", ("next", "observation"), ("next", "reward"), ("next", "done"))
    return {key: data[key].reshape(-1, STEPS).tolist() for key in keys}


def collected(make_env: Any, policy: Any) -> Any:
    env = make_env()
    with_policy = SyncDataCollector(env, policy, frames_per_batch=STEPS * env.numel(), total_frames=-1)
    data = next(iter(with_policy))
    with_policy.shutdown()
    return data


def rolled(make_env: Any, policy: Any) -> Any:
    with make_env() as env:
        return env.rollout(STEPS, policy, break_when_any_done=False)


def stepped(make_env: Any, policy: Any) -> Any:
    frames = []
    with make_env() as env:
        root = env.reset()
        for _ in range(STEPS):
            root = env.rand_action(root) if policy is None else policy(root)
            frame, root = env.step_and_maybe_reset(root)
            frames.append(frame.clone())
    return torch.stack(frames, -1)


def nested(env: Any) -> Any:
    inner = TransformedEnv(env, StepCounter())
    return TransformedEnv(inner, COUNTER(step_count_key="n"), auto_unwrap=False)


WAYS = {"step loop": stepped, "rollout": rolled, "collector": collected}
COUNTER = partial(StepCounter, max_steps=50)
CLASSES = {
    "alone": lambda make_one: make_one,
    "SerialEnv": lambda make_one: partial(SerialEnv, 2, make_one),
    "ParallelEnv": lambda make_one: partial(ParallelEnv, 2, make_one, num_processes=1),
    "TransformedEnv": lambda make_one: lambda: TransformedEnv(make_one(), StepCounter()),
    "ending transform": lambda make_one: lambda: TransformedEnv(make_one(), COUNTER()),
    "transform around a batch": lambda make_one: lambda: TransformedEnv(SerialEnv(2, make_one), COUNTER()),
    "transform in a batch": lambda make_one: partial(SerialEnv, 2, lambda: TransformedEnv(make_one(), COUNTER())),
    "nested": lambda make_one: (
        lambda: TransformedEnv(
            TransformedEnv(make_one(), StepCounter()), COUNTER(step_count_key="n"), auto_unwrap=False
        )
    ),
}


SOME = ("alone", "SerialEnv", "TransformedEnv")
CASES = [
    *((kind, name, "subclass", ArrayCountingEnv) for kind in CLASSES for name in OVERRIDES),
    *((kind, name, "instance", ArrayCountingEnv) for kind in SOME for name in OVERRIDES),
    *((kind, name, "subclass", CountingEnv) for kind in (*SOME, "ending transform") for name in OVERRIDES),
]


@pytest.mark.parametrize(("kind", "name", "how", "base"), CASES)
def test_an_override_counts_in_each_way_of_stepping(kind: str, name: str, how: str, base: type) -> None:
    make_one = partial(make, base, name, how)
    expected = flat(hand_loop(make_one(), name))
    assert name == "rand_action" or expected != flat(hand_loop(base(END), "step"))
    ways = {"rollout": rolled} if kind == "ParallelEnv" else WAYS

    for way, take in ways.items():
        data = flat(take(CLASSES[kind](make_one), None if name == "rand_action" else ones))
        rows = len(data["observation"])
        assert data == {key: rows * column for key, column in expected.items()}, way


OWN_BATCHES: dict[str, Any] = {
    "SerialEnv": (SerialEnv, lambda: (2, partial(ArrayCountingEnv, END))),
    "TransformedEnv": (TransformedEnv, lambda: (SerialEnv(2, partial(ArrayCountingEnv, END)), StepCounter())),
}


@pytest.mark.parametrize("name", ["step", "step_and_maybe_reset", "maybe_reset", "step_mdp", "reset"])
@pytest.mark.parametrize("kind", OWN_BATCHES)
def test_an_override_in_a_class_of_batches_counts(kind: str, name: str) -> None:
    base, arguments = OWN_BATCHES[kind]
    override = OVERRIDES[name]

    def method(self: Any, *args: Any, **options: Any) -> Any:
        return override(self, partial(getattr(base, name), self), *args, **options)

    def make_own() -> Any:
        return type("Own", (base,), {name: method})(*arguments())

    with make_own() as env:
        expected = flat(hand_loop(env, name))
    for way, take in WAYS.items():
        assert flat(take(make_own, ones)) == expected, way


class Skips(Transform):
    """Leaves out steps, so that it steps the base environment alone and makes the roots itself."""

    writes_step = True


def test_an_override_that_transforms_cannot_call_is_refused() -> None:
    env = make(CountingEnv, "maybe_reset", "subclass", batch_size=(2,))

    with pytest.raises(NotSupported, match=r"OwnCountingEnv overrides maybe_reset, .* Override step or reset instead"):
        TransformedEnv(env, Skips()).reset()


def test_overridden_methods_of_environments_inside_are_listed() -> None:
    inside = partial(make, ArrayCountingEnv, "step_mdp", "subclass")
    with SerialEnv(2, [inside, partial(make, ArrayCountingEnv, "reset", "instance")]) as env:
        assert TransformedEnv(env, StepCounter()).overridden_methods == {"step_mdp", "reset"}

    assert SerialEnv(2, lambda: ArrayCountingEnv(END)).overridden_methods == frozenset()


def test_an_assigned_method_can_be_taken_away_again() -> None:
    env = ArrayCountingEnv(END)
    env.step_mdp = env.step_mdp
    assert env.no_row_writer_reason == "step_mdp is overridden."
    del env.step_mdp

    assert env.no_row_writer_reason is None
