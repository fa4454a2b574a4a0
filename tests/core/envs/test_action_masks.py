"""Random actions under declared masks: the same rule and the same data in every class, and errors."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase

from steppe import (
    AsyncEnvPool,
    Collector,
    EnvBase,
    ParallelEnv,
    SerialEnv,
    StepCounter,
    TransformedEnv,
    check_env_specs,
)
from steppe.errors import NotSupported, SpecError
from steppe.specs import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    OneHot,
    Spec,
    Unbounded,
)
from steppe_testing import CountingEnv, assert_equal_data

BATCHES: dict[str, Any] = {
    "serial": SerialEnv,
    "parallel": partial(ParallelEnv, num_processes=2),
    "threads": lambda n, make: AsyncEnvPool([make] * n if callable(make) else make, backend="threading"),
    "view": lambda n, make: SerialEnv(n, make)[:],
    "transformed": lambda n, make: TransformedEnv(SerialEnv(n, make), StepCounter()),
}


class Legal(EnvBase):
    """Allows two neighbours of five actions, others in each step, and refuses the rest; an episode has seven steps."""

    def __init__(self, first: int = 0, action: Spec | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.action_spec = Categorical(5) if action is None else action
        self.observation_spec = Composite(allowed=Binary(5, dtype=torch.bool))
        self.reward_spec = Unbounded((1,))
        self.action_masks = {"action": "allowed"}
        self.first, self.steps = first, 0

    def _data(self) -> TensorDict:
        return TensorDict({"allowed": (torch.arange(5) - self.first - self.steps) % 5 < 2})

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        self.steps = 0
        return self._data()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        action = tensordict["action"]
        number = int(action) if action.ndim == 0 else int(action.int().argmax())
        assert self._data()["allowed"][number], "not allowed"
        self.steps += 1
        return self._data().update({"reward": torch.ones(1), "done": torch.tensor([self.steps == 7])})

    def _set_seed(self, seed: int | None) -> None:
        pass


@pytest.mark.parametrize("action", [Categorical(5), OneHot(5), OneHot(5, dtype=torch.int64)])
def test_only_allowed_actions_are_drawn_and_all_of_them(action):
    env = Legal(action=action)
    env.set_seed(0)
    data = env.rollout(70, break_when_any_done=False)

    number = data["action"] if data["action"].ndim == 1 else data["action"].int().argmax(-1)
    assert data["action"].dtype is action.dtype
    assert set(((number - torch.arange(70) % 7) % 5).tolist()) == {0, 1}
    check_env_specs(env)


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
def test_one_seed_gives_one_data_set_in_every_class(batch):
    def collect(env):
        env.set_seed(3)
        data = env.rollout(20, break_when_any_done=False).select("action", "allowed", ("next", "done"))
        td = env.reset()
        steps = [env.rand_step(td)["action"]]
        steps.append(env.rand_action_at(td[[2, 0]], [2, 0])["action"])
        env.close()
        return data, torch.cat(steps)

    expected, steps = collect(SerialEnv(3, Legal))
    env = batch(3, Legal)
    assert env.action_masks == {"action": "allowed"}
    data, others = collect(env)

    assert_equal_data(data, expected)
    assert torch.equal(steps, others)


def test_a_batch_of_one_has_the_data_of_its_environment():
    alone, batch = Legal(), SerialEnv(1, Legal)
    alone.set_seed(5), batch.set_seed(5)

    assert torch.equal(batch.rollout(6)[0]["action"], alone.rollout(6)["action"])


@pytest.mark.parametrize("workers", [0, 1])
def test_collectors_keep_to_masks(workers):
    if workers == 0:
        collector = Collector(SerialEnv(2, Legal), frames_per_batch=40, total_frames=40, seed=1)
    else:
        collector = Collector(
            partial(SerialEnv, 2, Legal), frames_per_batch=40, total_frames=40, seed=1, num_workers=workers
        )
    with collector:
        batch = next(iter(collector))

    assert batch["allowed"].gather(-1, batch["action"].unsqueeze(-1)).all()


def test_unequal_environments_use_their_own_masks():
    class Wide(Legal):
        def __init__(self) -> None:
            super().__init__()
            self.action_spec = Categorical(9)
            self.observation_spec = Composite(allowed=Binary(9, dtype=torch.bool))
            self.action_masks = {"action": "allowed"}

        def _data(self) -> TensorDict:
            return TensorDict({"allowed": torch.arange(9) == self.steps + 2})

    env = SerialEnv(3, [Legal, Wide, partial(CountingEnv, action="categorical")])
    env.set_seed(0)
    td = env.reset()
    for step in range(3):
        td = env.rand_action(td)
        assert td[1]["action"] == step + 2
        assert td[0]["allowed"][td[0]["action"]]
        td = env.step_mdp(env.step(td))
    env.close()


def test_environments_that_disagree_about_a_mask_are_named():
    def unmasked() -> EnvBase:
        env = Legal()
        env.action_masks = {}
        return env

    with pytest.raises(NotSupported, match=r"Environment 1 declares action_masks=\{\}"):
        SerialEnv(2, [Legal, unmasked]).reset()


def test_an_empty_mask_allows_every_action():
    env = SerialEnv(2, Legal)
    env.set_seed(0)
    td = env.reset()
    td["allowed"][1] = False
    drawn = torch.stack([env.rand_action(td.clone())["action"] for _ in range(100)])

    assert td["allowed"][0][drawn[:, 0]].all()
    assert set(drawn[:, 1].tolist()) == set(range(5))


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (None, "has no entry 'allowed', the mask of 'action'"),
        (torch.ones(4, dtype=torch.bool), r"shape \(5,\) and the dtype torch.bool, found \(4,\)"),
        (torch.ones(5), r"found \(5,\) and torch.float32"),
    ],
)
def test_a_wrong_mask_is_named(mask, text):
    env = Legal()
    td = env.reset()
    td = td.exclude("allowed") if mask is None else td.set("allowed", mask)

    with pytest.raises(SpecError, match=text):
        env.rand_action(td)


def test_random_actions_without_data_say_what_to_pass():
    with pytest.raises(SpecError, match=r"env.rand_action\(env.reset\(\)\)"):
        Legal().rand_action()


@pytest.mark.parametrize(
    ("masks", "text"),
    [
        ({"move": "allowed"}, "the action 'move'"),
        ({"action": "legal"}, "the mask 'legal'"),
        ({"action": ("next", 3)}, "such as"),
        (["allowed"], "such as"),
    ],
)
def test_a_wrong_declaration_is_named(masks, text):
    class Wrong(Legal):
        def __init__(self) -> None:
            super().__init__()
            self.action_masks = masks

    with pytest.raises(SpecError, match=text):
        Wrong().rollout(1)


def test_a_mask_must_fit_a_discrete_action():
    """A mask of another size and a mask of a continuous action are refused."""
    with pytest.raises(SpecError, match=r"shape \(4,\), and its spec has \(5,\)"):
        Legal(action=Categorical(4)).rollout(1)
    with pytest.raises(SpecError, match="must be discrete"):
        Legal(action=Bounded(-1, 1, (5,))).rollout(1)


class Choices(EnvBase):
    """Masks of several choices: one for all in a row, one for each choice, or one for each combination."""

    def __init__(self, action: Spec, mask: torch.Tensor, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mask = mask.expand(*self.batch_size, *mask.shape)
        self.action_spec = action.expand(*self.batch_size, *action.shape)
        self.observation_spec = Composite(mask=Binary(shape=self.mask.shape, dtype=mask.dtype), shape=self.batch_size)
        self.action_masks = {"action": "mask"}

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        return TensorDict({"mask": self.mask}, self.batch_size)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        raise AssertionError

    def _set_seed(self, seed: int | None) -> None:
        pass


PAIRS = torch.tensor([[False, True, False], [True, False, False]])


@pytest.mark.parametrize("action", [MultiCategorical([2, 3]), MultiOneHot([2, 3])], ids=["numbers", "one_hot"])
@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (PAIRS, {(0, 1), (1, 0)}),
        (PAIRS.int(), {(0, 1), (1, 0)}),
        (torch.tensor([False, True, True, False, True]), {(1, 0), (1, 2)}),
        (torch.tensor([[True, True, False, True], [True, False, False, True]]), {(0, 0), (1, 0)}),
    ],
    ids=["combinations", "integers", "row", "choices"],
)
@pytest.mark.parametrize("size", [(), (40,)])
def test_several_choices_are_drawn_under_each_kind_of_mask(action, mask, expected, size):
    env = Choices(action, mask, batch_size=size)
    td = env.reset()
    drawn = torch.stack([env.rand_action(td)["action"].clone() for _ in range(40)])

    numbers = action.to_categorical(drawn) if isinstance(action, MultiOneHot) else drawn
    assert {tuple(pair) for pair in numbers.reshape(-1, 2).tolist()} == expected
    assert drawn.dtype is action.dtype


def test_a_batch_unlocked_env_draws_for_the_datas_batch_size():
    """Without batch_locked, rand_action draws as many actions as the data has rows."""
    env = Choices(MultiCategorical([2, 3]), PAIRS)
    env.batch_locked = False

    assert env.rand_action(env.reset().expand(4, 2).clone())["action"].shape == (4, 2, 2)


def test_other_actions_are_drawn_from_their_specs():
    class Both(Legal):
        def __init__(self) -> None:
            super().__init__()
            self.action_spec = Composite({"action": Categorical(5), ("more", "force"): Bounded(-1, 1, (2,))})
            self.action_masks = {"action": "allowed"}

    data = Both().rollout(7)

    assert data["more", "force"].unique().numel() == 14
    assert data["allowed"].gather(-1, data["action"].unsqueeze(-1)).all()
