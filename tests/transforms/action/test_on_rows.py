"""Actions that transforms make, on their way to an environment that writes rows."""

from __future__ import annotations

import pytest
import torch

from steppe import ArrayEnv, SerialEnv, TransformedEnv
from steppe.errors import ActionError
from steppe.specs import Bounded, Composite, OneHot, Unbounded
from steppe.transforms import Compose, StepCounter
from steppe_action import ActionDiscretizer, ActionScaling, DiscreteActionProjection, FlattenAction


class ShowsAction(ArrayEnv):
    """Its observation is the action that it was given; an episode has five steps."""

    def __init__(self, action, shape):
        super().__init__()
        self.observation_spec = Composite(observation=Unbounded(shape))
        self.reward_spec = Unbounded((1,))
        self.action_spec = action
        self.steps = 0

    def reset_into(self, out, seed, env_info):
        self.steps = 0
        out["observation"][...] = 0

    def step_into(self, action, out):
        self.steps += 1
        out["observation"][...] = action
        out["reward"][...] = 1
        return self.steps == 5, False


BOX = Bounded(-2.0, 2.0, (2, 3))
CHAINS = {
    "projection": (lambda: DiscreteActionProjection(3, 6), OneHot(3), ()),
    "scaling": (ActionScaling, BOX, (2, 3)),
    "flatten": (FlattenAction, BOX, (2, 3)),
    "discretizer": (lambda: ActionDiscretizer(4), Bounded(-1.0, 1.0, (3,)), (3,)),
    "numbers": (lambda: ActionDiscretizer(4, categorical=True), Bounded(-1.0, 1.0, (3,)), (3,)),
    "two": (lambda: Compose(FlattenAction(), ActionScaling(), StepCounter()), BOX, (2, 3)),
}


@pytest.fixture(params=CHAINS)
def make(request):
    transform, action, shape = CHAINS[request.param]

    def env(**kwargs):
        found = TransformedEnv(ShowsAction(action, shape), transform(), **kwargs)
        found.set_seed(3)
        return found

    return env


def stepped(env, actions):
    """What a loop of steps collects."""
    td, steps = env.reset(), []
    for action in actions.unbind(0):
        td["action"] = action
        done, td = env.step_and_maybe_reset(td)
        steps.append(done["next"])
    return torch.stack(steps)


def test_a_step_writes_rows_as_a_rollout_does(make):
    env = make()
    assert env.row_steps is not None  # no TensorDict between the transform and the environment
    actions = env.full_action_spec.rand((23,))
    whole = env.rollout(23, actions=actions, break_when_any_done=False)
    alone = stepped(make(), actions["action"])
    on_tensordicts = stepped(make(run_type_checks=True), actions["action"])
    for key in ("observation", "reward", "done"):
        assert torch.equal(alone[key], whole["next", key])
        assert torch.equal(alone[key], on_tensordicts[key])


def test_replaced_actions_are_drawn_alike_in_a_batch_and_alone():
    def make():
        return TransformedEnv(ShowsAction(OneHot(3), ()), DiscreteActionProjection(3, 6))

    alone, batch = make(), SerialEnv(1, make)
    actions = alone.full_action_spec.rand((20,))
    for env in (alone, batch):
        env.set_seed(5)
    whole = alone.rollout(20, actions=actions, break_when_any_done=False)["next", "observation"]
    inside = batch.rollout(20, actions=actions["action"].unsqueeze(1).unbind(0), break_when_any_done=False)
    assert torch.equal(inside["next", "observation"][0], whole)
    assert len(whole.unique()) == 3


def test_an_action_that_is_none_is_refused_before_the_environment_steps():
    env = TransformedEnv(ShowsAction(OneHot(3), ()), DiscreteActionProjection(3, 6))
    td = env.reset()
    for wrong, says in ((torch.ones(6), "single 1 among 6"), (torch.ones(3), r"shape \(6,\)")):
        with pytest.raises(ActionError, match=says):
            env.step(td.clone().set("action", wrong.to(torch.int64)))
    assert env.base_env.steps == 0


def test_what_an_inverse_makes_is_held_against_the_rule_of_the_environment():
    class Broken(ActionScaling):
        def _inv_apply_transform(self, value):
            return value[:1]

    env = TransformedEnv(ShowsAction(BOX, (2, 3)), Broken())
    with pytest.raises(ActionError, match=r"shape \(2, 3\), found \(1, 3\)"):
        env.step(env.rand_action(env.reset()))


def test_an_action_with_gradients_is_stepped():
    env = TransformedEnv(ShowsAction(BOX, (2, 3)), ActionScaling())
    td = env.step(env.reset().set("action", torch.zeros(2, 3, requires_grad=True)))
    assert not td["next", "observation"].requires_grad
