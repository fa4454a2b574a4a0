"""Steps that are compiled for one row follow later changes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", minversion="1.0")

from steppe import SerialEnv, StepCounter, TransformedEnv  # noqa: E402
from steppe.errors import SpecError  # noqa: E402
from steppe_gym import GymWrapper  # noqa: E402


class Library(gymnasium.Env):
    """An environment that records its actions, and returns chosen values."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, start: int = 0) -> None:
        self.action_space = gymnasium.spaces.Discrete(3, start=start)
        self.given: list[Any] = []
        self.returned: tuple[Any, ...] = (np.ones(2, np.float32), 1.0, False, False, {})

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.given.append(action)
        return self.returned


def _steps(env: Any, root: Any, n: int) -> Any:
    for _ in range(n):
        td, root = env.step_and_maybe_reset(env.rand_action(root))
    return td, root


@pytest.mark.parametrize("categorical", [False, True])
def test_a_discrete_action_has_the_number_type_of_its_space(categorical: bool) -> None:
    """The environment gets an action of the type that its space samples."""
    library = Library(start=5)
    env = GymWrapper(library, categorical_action_encoding=categorical)
    env.rollout(30)
    _steps(env, env.reset(), 3)
    assert {type(action) for action in library.given} == {type(library.action_space.sample())}
    assert set(library.given) == {5, 6, 7}


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: TransformedEnv(env, StepCounter())])
def test_a_frame_skip_set_after_steps_counts_from_the_next(wrap: Any) -> None:
    library = Library()
    inner = GymWrapper(library)
    env = wrap(inner)
    _, root = _steps(env, env.reset(), 3)
    inner.frame_skip = 4
    library.given.clear()
    td, root = _steps(env, root, 1)
    assert len(library.given) == 4
    assert td["next", "reward"] == 4
    env.rollout(2)
    assert len(library.given) == 12


def test_a_frame_skip_set_later_counts_from_the_next_step() -> None:
    """A frame_skip may be set on an environment of a running batch."""
    libraries = [Library(), Library()]
    wrappers = [GymWrapper(library) for library in libraries]
    with SerialEnv(2, [lambda env=env: env for env in wrappers]) as batch:
        _, root = _steps(batch, batch.reset(), 3)
        wrappers[1].frame_skip = 4
        td, _ = _steps(batch, root, 1)
    assert td["next", "reward"].flatten().tolist() == [1, 4]


@pytest.mark.parametrize("make", [lambda make: make(), lambda make: SerialEnv(2, make)], ids=["alone", "batch"])
def test_a_subclass_that_overrides_step_into_is_asked(make: Any) -> None:
    class Doubling(GymWrapper):
        def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
            flags = super().step_into(action, out)
            out["reward"][...] *= 2
            return flags

    env = make(lambda: Doubling(Library()))
    td, _ = _steps(env, env.reset(), 3)
    assert td["next", "reward"].unique().tolist() == [2]
    assert env.rollout(3)["next", "reward"].unique().tolist() == [2]
    env.close()


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (np.float64(0.1), np.float32(0.1)),
        (np.float32(0.1), np.float32(0.1)),
        (2, 2.0),
        (True, 1.0),
        (np.array(0.5), 0.5),
        (np.array([0.5]), 0.5),
    ],
)
def test_a_reward_is_any_number_of_numpy(number: Any, expected: float) -> None:
    library = Library()
    library.returned = (np.ones(2, np.float32), number, False, False, {})
    assert GymWrapper(library).rollout(2)["next", "reward"].unique().item() == pytest.approx(expected)


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ((np.ones(3, np.float32), 1.0, False, False, {}), r"'observation' must have shape \(2,\).*\(3,\)"),
        ((np.ones(2, np.float32), [1.0, 2.0], False, False, {}), "reward"),
        ((np.ones(2, np.float32), "much", False, False, {}), "'reward' must be a number"),
        ((np.ones(2, np.float32), 1.0, False), "five"),
    ],
)
def test_later_steps_are_still_checked_against_the_row(batch: bool, returned: Any, said: str) -> None:
    library = Library()
    make = partial(GymWrapper, library)
    env = SerialEnv(1, make) if batch else make()
    _, root = _steps(env, env.reset(), 3)
    library.returned = returned
    with pytest.raises((SpecError, ValueError, TypeError), match=said):
        _steps(env, root, 1)
    env.close()
