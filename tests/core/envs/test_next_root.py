"""step_mdp, terminated_or_truncated, and other small functions on data."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict, lazy_stack, tensorclass

from steppe import SerialEnv
from steppe.envs import step_mdp
from steppe.specs import Composite, NonTensor, Unbounded
from steppe_testing import CountingEnv, HeterogeneousCountingEnv, MultiKeyCountingEnv


def frame(**root):
    return TensorDict(
        {
            "observation": torch.zeros(1),
            "action": torch.ones(1),
            "hidden": torch.ones(1),
            "done": torch.tensor([False]),
            "next": {
                "observation": torch.ones(1),
                "reward": torch.full((1,), 5.0),
                "done": torch.tensor([True]),
                "terminated": torch.tensor([True]),
            },
            **root,
        }
    )


def keys(**kwargs):
    return set(step_mdp(frame(), **kwargs).keys())


def test_next_becomes_the_root():
    td = frame(reward=torch.zeros(1))
    root = step_mdp(td)

    assert root["observation"] is td["next", "observation"]
    assert root["done"].item()
    assert set(root.keys()) == {"observation", "done", "terminated", "hidden"}
    assert step_mdp(td, exclude_reward=False)["reward"].item() == 5
    root["observation"] = torch.full((1,), 9.0)
    assert td["next", "observation"].item() == 1


def test_step_mdp_keeps_entries_that_come_and_go():
    """Each root has the additional entries of its own step."""
    env = CountingEnv(max_steps=9)
    td = env.reset()
    found = []
    for step in range(6):
        td = env.rand_action(td)
        if step % 2:
            td["hidden"] = torch.full((1,), float(step))
        elif "hidden" in td:
            del td["hidden"]
        extra = {"note": torch.zeros(1)} if step == 3 else {}
        stepped = env.step(td)
        stepped["next"].update(extra)
        td = env.step_mdp(stepped)
        found.append({"hidden", "note"} & set(td.keys()))
        assert {"observation", "action", "done", "terminated"} <= set(td.keys())
        assert "reward" not in td

    assert found == [set(), {"hidden"}, set(), {"hidden", "note"}, {"note"}, {"hidden", "note"}]


def test_step_mdp_copies_groups():
    """Entries written into a group of the root do not change the step before it."""
    group = TensorDict({"observation": torch.zeros(2, 1), "action": torch.ones(2), "hidden": torch.ones(2)}, [2])
    after = TensorDict(
        {"observation": torch.ones(2, 1), "reward": torch.ones(2, 1), "inner": {"x": torch.ones(2)}}, [2]
    )
    for following, names in ((after.exclude("inner"), {"hidden"}), (after, {"hidden", "inner"})):
        td = TensorDict({"agents": group, "next": {"agents": following}})
        root = step_mdp(td, reward_keys=("agents", "reward"), action_keys=("agents", "action"))
        root["agents", "hidden"] = torch.zeros(2)

        assert set(root["agents"].keys()) == {"observation"} | names
        assert root["agents", "observation"].all()
        assert root["agents"].batch_size == (2,)
        assert group["hidden"].all()


@pytest.mark.parametrize(
    ("arguments", "added", "removed"),
    [
        ({"exclude_reward": False}, {"reward"}, set()),
        ({"exclude_done": True}, set(), {"done", "terminated"}),
        ({"exclude_action": False}, {"action"}, set()),
        ({"keep_other": False}, set(), {"hidden"}),
        ({"keep_other": False, "exclude_action": False}, {"action"}, {"hidden"}),
        ({"reward_keys": "other"}, {"reward"}, set()),
        ({"reward_keys": ["reward", "other"]}, set(), set()),
    ],
)
def test_step_mdp_arguments_select_the_kept_entries(arguments, added, removed):
    assert keys(**arguments) == ({"observation", "done", "terminated", "hidden"} | added) - removed


def test_the_result_can_be_written_into_given_data():
    out = TensorDict({"mine": torch.zeros(1)})

    assert step_mdp(frame(), out) is out
    assert set(out.keys()) == {"mine", "observation", "done", "terminated", "hidden"}


def test_data_without_next_is_an_error():
    with pytest.raises(KeyError, match=r"call env.step\(td\) first"):
        step_mdp(TensorDict({"observation": torch.zeros(1)}))


def test_names_of_dimensions_are_kept():
    data = CountingEnv().rollout(3)

    assert step_mdp(data).names == ["time"]


def test_groups_lose_their_rewards_and_actions():
    env = MultiKeyCountingEnv()
    root = env.step_mdp(env.rand_step(env.reset()))

    assert ("left", "reward") not in root.keys(True)
    assert root["left", "observation"].item() == 1
    assert ("left", "action") in root.keys(True)  # env.step_mdp keeps what a policy writes anew
    general = step_mdp(
        env.rand_step(env.reset()),
        reward_keys=env.reward_keys,
        action_keys=env.action_keys,
        done_keys=env.done_keys,
    )
    assert ("left", "action") not in general.keys(True)


@tensorclass
class Seen:
    number: torch.Tensor
    caption: str


class Captioned(CountingEnv):
    """Counts in a tensorclass."""

    def __init__(self):
        super().__init__(max_steps=2)
        self.observation_spec = Composite(
            seen=Composite(number=Unbounded((1,)), caption=NonTensor(example_data="x"), data_cls=Seen)
        )

    def _seen(self, data):
        number = data.pop("observation").float()
        return data.set("seen", Seen(number=number, caption=f"{int(number)}"))

    def _reset(self, tensordict=None, **kwargs):
        return self._seen(super()._reset(tensordict, **kwargs))

    def _step(self, tensordict):
        return self._seen(super()._step(tensordict))


@pytest.mark.parametrize("make", [Captioned, lambda: SerialEnv(2, Captioned)])
def test_the_last_tensorclass_observation_outlives_the_reset(make):
    rollout = make().rollout(4, break_when_any_done=False)
    assert type(rollout["next", "seen"]) is Seen
    first = rollout if rollout.ndim == 1 else rollout[0]
    assert first["next", "seen"].number.flatten().tolist() == [1, 2, 1, 2]
    assert list(first["next", "seen"].caption) == ["1", "2", "1", "2"]
    assert list(first["seen"].caption) == ["0", "1", "0", "1"]


def test_lazy_stacks_of_frames_become_the_next_root():
    data = lazy_stack([frame(), frame()])

    assert step_mdp(data)["observation"].tolist() == [[1], [1]]


GROUPS = {"reward_keys": [("agents", "reward")], "action_keys": [("agents", "action"), ("only", "action")]}


def grouped(size=1):
    """A step with a group that has only an action, and an empty group."""
    done = torch.zeros(1, dtype=torch.bool)
    following = TensorDict(agents=TensorDict(obs=torch.ones(size), reward=torch.ones(1)), done=done)
    return TensorDict(
        agents=TensorDict(obs=torch.zeros(size), action=torch.ones(1)),
        only=TensorDict(action=torch.ones(1)),
        empty=TensorDict(),
        next=following,
    )


@pytest.mark.parametrize("keep_other", [True, False])
@pytest.mark.parametrize("lock", [False, True])
def test_groups_that_become_empty_are_left_out(keep_other, lock):
    rows = torch.stack([grouped(), grouped()])
    for data in (grouped(), rows, lazy_stack([grouped(), grouped()]), lazy_stack([grouped(1), grouped(2)])):
        root = step_mdp(data.lock_() if lock else data, keep_other=keep_other, **GROUPS)

        for row in root.unbind(0) if root.batch_dims else [root]:
            assert set(row.keys(True, True)) == {("agents", "obs"), "done"}
            assert set(row.keys()) == {"agents", "done"}


def test_a_group_whose_entries_are_all_rewards_is_left_out():
    data = grouped()
    del data["next", "agents", "obs"]

    root = step_mdp(data, keep_other=False, **GROUPS)
    assert set(root.keys()) == {"done"}


@pytest.mark.parametrize("lock", [False, True])
def test_the_next_root_of_a_lazy_stack_can_be_written(lock):
    data = lazy_stack([grouped(1), grouped(2)])
    root = step_mdp(data.lock_() if lock else data, **GROUPS)
    root.set(("agents", "new"), torch.ones(2, 1))

    assert not root.is_locked
    assert ("agents", "new") not in data.keys(True)


@pytest.mark.parametrize("lock", [False, True])
def test_environments_of_unequal_rows_step_from_locked_data(lock):
    env = HeterogeneousCountingEnv()
    td = env.rand_step(env.reset())
    root = env.step_mdp(td.lock_() if lock else td)

    assert not root.is_locked
    assert [row["observation"].shape for row in root["agents"].unbind(0)] == [(1,), (2,), (3,)]
    assert root["agents"][2]["own_2"].tolist() == [1, 1]
    assert "reward" not in root["agents"].keys()
    env.rand_step(root)
