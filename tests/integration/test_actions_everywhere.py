"""All code paths validate and convert actions by one rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDictBase

from steppe import (
    AsyncEnvPool,
    Bounded,
    Collector,
    Composite,
    EnvBase,
    ParallelEnv,
    RewardSum,
    SerialEnv,
    TransformedEnv,
)
from steppe.errors import ActionError
from steppe.transforms import Transform
from steppe_testing import ArrayCountingEnv, CountingEnv

Make = Callable[[], EnvBase]


def step(env: EnvBase, action: Any) -> TensorDictBase:
    return env.step(env.reset().set("action", action))


def second_step(env: EnvBase, action: Any) -> TensorDictBase:
    """Take a second step.

    The first step is validated separately, against the specs.
    """
    td = env.step_and_maybe_reset(env.rand_action(env.reset()))[1]
    return env.step_and_maybe_reset(td.set("action", action))[0]


def given(env: EnvBase, action: Any) -> TensorDictBase:
    return env.rollout(2, actions=[action, action])[..., 1]


def policy(env: EnvBase, action: Any) -> TensorDictBase:
    return env.rollout(2, lambda td: td.set("action", action))[..., 1]


def mixed(env: EnvBase, action: Any) -> TensorDictBase:
    first = env.rand_action()["action"]
    return env.rollout(2, actions=[first, action])[..., 1]


def collected(env: EnvBase, action: Any) -> TensorDictBase:
    frames = 3 * env.numel()
    collector = Collector(env, lambda td: td.set("action", action), frames_per_batch=frames, total_frames=frames)
    return collector.next()[..., 2]


def some_rows(env: EnvBase, action: Any) -> TensorDictBase:
    root = env.reset()[1:]
    return env.step_at(root.set("action", action[1:]), [1])


def pool(env: AsyncEnvPool, action: Any) -> TensorDictBase:
    env.reset()
    root = env.reset().set("action", action)
    env.async_step_send(root)
    return env.async_step_recv(min_get=2)


ALONE = {"step": step, "second step": second_step, "rollout(actions=)": given, "rollout(policy)": policy}
ALONE |= {"rollout of mixed dtypes": mixed, "Collector": collected}
BATCH = {**ALONE, "step_at": some_rows}


def transformed(make: Make) -> EnvBase:
    return TransformedEnv(make(), RewardSum())


def serial(make: Make) -> EnvBase:
    return SerialEnv(2, make)


def serial_inside(make: Make) -> EnvBase:
    return TransformedEnv(SerialEnv(2, make), RewardSum())


def parallel(make: Make) -> EnvBase:
    return ParallelEnv(2, make, num_processes=2)


def threads(make: Make) -> EnvBase:
    return AsyncEnvPool([make, make], backend="threading")


WAYS = {f"{how}, alone": (lambda make: make(), act) for how, act in ALONE.items()}
WAYS |= {f"{how}, transformed": (transformed, act) for how, act in ALONE.items()}
WAYS |= {f"{how}, SerialEnv": (serial, act) for how, act in BATCH.items()}
WAYS |= {f"{how}, TransformedEnv(SerialEnv)": (serial_inside, act) for how, act in BATCH.items()}
WAYS |= {f"{how}, ParallelEnv": (parallel, act) for how, act in BATCH.items() if how in ("step", "second step")}
WAYS |= {"async_step_send": (threads, pool), "step, AsyncEnvPool": (threads, step)}


class Acting:
    """Acts in one of the ways. An environment serves all tests: a refused action leaves it as it was."""

    def __init__(self) -> None:
        self.envs: dict[Any, EnvBase] = {}

    def __call__(self, way: str, kind: type, actions: str, action: torch.Tensor) -> TensorDictBase:
        """Act with one environment, or with two whose second acts so and whose first has a sound action."""
        wrap, go = WAYS[way]
        key = (wrap, kind, actions)
        env = self.envs.get(key)
        if env is None:
            env = self.envs[key] = wrap(lambda: kind(1000, action=actions))
        if not env.batch_size:
            return go(env, action)
        sound = kind(action=actions).full_action_spec["action"].rand()
        return go(env, torch.stack([sound.to(action.dtype), action]))[-1]


@pytest.fixture(scope="module")
def act() -> Iterator[Acting]:
    acting = Acting()
    yield acting
    for env in acting.envs.values():
        env.close(raise_if_closed=False)


KINDS = {"arrays": ArrayCountingEnv, "tensordicts": CountingEnv}
everywhere = pytest.mark.parametrize(
    ("way", "kind"), [pytest.param(way, kind, id=f"{way}, {name}") for way in WAYS for name, kind in KINDS.items()]
)


@everywhere
def test_a_one_hot_action_of_another_dtype_is_taken(act, way, kind):
    for dtype in (torch.int64, torch.float32):
        data = act(way, kind, "one_hot", torch.tensor([0, 0, 1]).to(dtype))

        assert data["action"].dtype is torch.bool
        assert data["action"].tolist() == [False, False, True]
        assert data["next", "reward"].item() == 2


@everywhere
def test_a_one_hot_action_without_a_single_1_is_an_error(act, way, kind):
    for row in ([0, 0, 0], [0, 1, 1]):
        with pytest.raises(ActionError, match=r"'action'.*must be one-hot, a single 1 among 3 entries, found"):
            act(way, kind, "one_hot", torch.tensor(row, dtype=torch.bool))


@everywhere
def test_an_invalid_category_is_an_error(act, way, kind):
    with pytest.raises(ActionError, match=r"'action'.*must be a whole number from 0 to 2, found 7"):
        act(way, kind, "categorical", torch.tensor(7))


@everywhere
def test_a_whole_float_is_an_action_and_a_fraction_is_refused(act, way, kind):
    with pytest.raises(ActionError, match=r"found torch.float32 with the value 1.5.*project\(action\)"):
        act(way, kind, "categorical", torch.tensor(1.5))
    data = act(way, kind, "categorical", torch.tensor(2.0))

    assert data["action"].dtype is torch.int64
    assert data["next", "reward"].item() == 2


@everywhere
def test_float64_actions_are_cast_to_float32(act, way, kind):
    data = act(way, kind, "continuous", torch.tensor([0.1, 0.2], dtype=torch.float64))

    assert data["action"].dtype is torch.float32
    assert data["next", "reward"].item() == pytest.approx(0.3)


class Halved(Transform):
    """Takes an action twice as large as the environment does, as a float."""

    def __init__(self) -> None:
        super().__init__(in_keys_inv=["action"], out_keys_inv=["action"])

    def _inv_apply_transform(self, action: torch.Tensor) -> torch.Tensor:
        return action / 2

    def transform_action_spec(self, action_spec: Composite) -> Composite:
        return Composite(action=Bounded(0.0, 4.0, action_spec.shape))


def halved(make: Make) -> EnvBase:
    return TransformedEnv(make(), Halved())


@pytest.mark.parametrize("way", ["step", "rollout(actions=)", "rollout(policy)"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_actions_of_an_inverse_are_validated(way, kind):
    go = ALONE[way]
    env = halved(lambda: kind(1000, action="categorical"))

    data = go(env, torch.tensor(4.0))
    assert data["action"].item() == 4
    assert data["next", "reward"].item() == 2
    with pytest.raises(ActionError, match=r"the value 1.5, which torch.int64 does not hold"):
        go(env, torch.tensor(3.0))
    with pytest.raises(ActionError, match="must be a whole number from 0 to 2, found 4"):
        go(env, torch.tensor(8.0))
