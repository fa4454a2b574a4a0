"""step: refused, completed and unchanged data."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe.envs import EnvBase
from steppe.errors import ActionError, ClosedError, SpecError
from steppe.specs import Composite, OneHot, Unbounded
from steppe_testing import ArrayCountingEnv, CountingEnv, MultiKeyCountingEnv, ScalarActionEnv, StatelessCountingEnv
from tests.core.envs.counting import BOTH


class Given(EnvBase):
    """An environment whose ``_step`` returns the argument of its constructor."""

    def __init__(self, outcome, **kwargs):
        super().__init__(**kwargs)
        self.outcome = outcome
        self.observation_spec = Composite(observation=Unbounded((2,)))
        self.action_spec = OneHot(2)
        self.reward_spec = Unbounded((1,))

    def _reset(self, tensordict=None, **kwargs):
        return TensorDict({"observation": torch.zeros(2)})

    def _step(self, tensordict):
        return TensorDict(dict(self.outcome)) if isinstance(self.outcome, dict) else self.outcome

    def _set_seed(self, seed):
        pass


def outcome(**entries):
    whole = {"observation": torch.zeros(2), "reward": torch.zeros(1), **entries}
    return Given({key: value for key, value in whole.items() if value is not None}).rand_step()["next"]


T, F = torch.tensor([True]), torch.tensor([False])


@BOTH
def test_a_step_writes_next_into_the_data_and_returns_it(make):
    env = make()
    td = env.rand_action(env.reset())

    assert env.step(td) is td
    assert td["next", "observation"].item() == 1.0
    assert td["observation"].item() == 0.0
    assert set(td["next"].keys()) == {"observation", "reward", "done", "terminated", "truncated"}


@BOTH
def test_a_step_without_action_is_an_error(make):
    env = make()

    with pytest.raises(ActionError, match=r"no action at 'action'.*env.rand_action"):
        env.step(env.reset())


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ([0.0, 0.5, 0.5], "'action' must have dtype torch.bool, found torch.float32 with the value 0.5"),
        ([True, False], r"'action' must have shape \(3,\), found \(2,\)"),
        ([False, False, False], "must be one-hot, a single 1 among 3 entries"),
    ],
)
@BOTH
def test_an_action_outside_its_spec_is_an_error(make, action, text):
    env = make()

    with pytest.raises(ActionError, match=text):
        env.step(env.reset().set("action", torch.tensor(action)))


def test_a_missing_nested_action_is_named():
    env = MultiKeyCountingEnv()
    td = env.rand_action(env.reset())
    del td["left", "action"]

    with pytest.raises(ActionError, match=r"\('left', 'action'\)"):
        env.step(td)


def test_a_scalar_action_has_the_shape_of_the_batch():
    assert ScalarActionEnv(batch_size=(2,)).rand_step()["action"].shape == (2,)
    assert ScalarActionEnv().rand_step()["action"].shape == ()


def test_data_of_another_batch_size_is_refused():
    env = CountingEnv(batch_size=(4,))

    with pytest.raises(SpecError, match=r"batch size \(4,\), found \(3,\)"):
        env.step(TensorDict({"action": torch.zeros(3, 3, dtype=torch.bool)}, [3]))


def test_an_unlocked_environment_takes_any_batch_size():
    env = StatelessCountingEnv()

    assert env.rand_step(env.reset(TensorDict({}, [2, 5])))["next", "count"].shape == (2, 5, 1)
    assert not env.batch_locked


def test_an_unlocked_environment_with_a_batch_takes_that_one():
    env = StatelessCountingEnv(batch_size=(2,))

    with pytest.raises(SpecError, match=r"\(2,\)"):
        env.reset(TensorDict({}, [3]))


def test_unwritten_entries_of_next_are_kept():
    """A step keeps the entries of next that the environment does not write."""
    env = CountingEnv()
    td = env.rand_action(env.reset())
    td["next"] = TensorDict({"hidden": torch.ones(3), "observation": torch.full((1,), 7.0)})
    env.step(td)

    assert td["next", "hidden"].sum() == 3
    assert td["next", "observation"].item() == 1.0


@BOTH
def test_later_steps_do_not_change_what_was_returned(make):
    env = make()
    first = env.rand_step(env.reset())
    env.rand_step(env.step_mdp(first))

    assert first["next", "observation"].item() == 1.0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"done": T}, (True, True, False)),
        ({"terminated": T}, (True, True, False)),
        ({"truncated": T}, (True, False, True)),
        ({"terminated": F, "truncated": T}, (True, False, True)),
        ({"terminated": F}, (False, False, False)),
        ({}, (False, False, False)),
    ],
)
def test_done_entries_that_are_left_out_are_completed(given, expected):
    found = outcome(**given)

    assert tuple(bool(found[name]) for name in ("done", "terminated", "truncated")) == expected


def test_done_with_truncated_alone_is_ambiguous():
    with pytest.raises(SpecError, match="ambiguous"):
        outcome(done=T, truncated=F)


def test_completed_done_entries_share_no_memory():
    found = outcome(terminated=T)
    found["done"].fill_(False)

    assert found["terminated"].item()


def test_a_missing_reward_is_named():
    with pytest.raises(SpecError, match="no reward at 'reward'"):
        outcome(reward=None)


def test_a_reset_may_return_a_done_entry_without_dimensions():
    class Short(Given):
        def _reset(self, tensordict=None):
            return super()._reset().update({"done": torch.tensor(False)})

    env = Short({"observation": torch.zeros(2), "reward": torch.zeros(1), "done": torch.tensor(True)})
    data = env.rollout(3, break_when_any_done=False)

    assert data["done"].shape == data["next", "done"].shape == (3, 1)


def test_undeclared_results_stay_out_of_the_next_root():
    """An entry without a spec is in the data of a step, and not in the next root."""
    env = Given({"observation": torch.zeros(2), "reward": torch.zeros(1), "extra": torch.ones(3)})
    data = env.rollout(3)

    assert type(data) is TensorDict
    assert data["next", "extra"].shape == (3, 3)
    assert "extra" not in data.keys()


def test_step_must_return_a_tensordict_that_is_not_its_argument():
    with pytest.raises(SpecError, match="must return a TensorDict, found list"):
        Given([1]).rand_step()

    env = Given({})
    env._step = lambda tensordict: tensordict
    with pytest.raises(SpecError, match="not the one it was given"):
        env.rand_step()


@BOTH
def test_a_closed_environment_raises_closed_error(make):
    env = make()
    td = env.rand_action(env.reset())
    env.close()

    with pytest.raises(ClosedError, match="step was called after close"):
        env.step(td)
    with pytest.raises(ClosedError, match="reset was called after close"):
        env.reset()


def test_a_batch_of_one_keeps_its_dimension():
    env = CountingEnv(batch_size=(1,))

    assert env.rand_step(env.reset())["next", "reward"].shape == (1, 1)


@pytest.mark.parametrize("action", [1, None, torch.tensor([0, 1])])
def test_an_action_without_a_tensordict_is_refused(action):
    """The error for an action alone, as in gymnasium, shows the line to write."""
    for env in (CountingEnv(), CountingEnv(batch_size=(2,)), ArrayCountingEnv()):
        for what in (env.step, env.step_and_maybe_reset):
            with pytest.raises(SpecError, match=r"takes a TensorDict with the action, found .*td\['action'\] = action"):
                what(action)
        with pytest.raises(SpecError, match="reset takes a TensorDict, found int"):
            env.reset(3)
