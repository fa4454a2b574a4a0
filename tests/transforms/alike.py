"""The same data from each way that steps of a transformed environment take."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDictBase

from steppe.envs import EnvBase


def stepped(env: EnvBase, actions: torch.Tensor) -> TensorDictBase:
    """Return the data of a step loop."""
    td, steps = env.reset(), []
    for action in actions.unbind(0):
        td["action"] = action
        done, td = env.step_and_maybe_reset(td)
        steps.append(done.exclude("next").update({"next": done["next"]}))
    return torch.stack(steps)


def alike(make: Callable[..., EnvBase], n: int = 17, way: str = "row_steps") -> TensorDictBase:
    """Whether rollouts on rows, steps on rows and steps on TensorDicts give the same data; returns it."""
    env = make()
    assert getattr(env, way) is not None  # no TensorDict between the transform and the environment
    actions = env.full_action_spec.rand((n,))
    whole = env.rollout(n, actions=actions, break_when_any_done=False)
    for data in (stepped(make(), actions["action"]), stepped(make(run_type_checks=True), actions["action"])):
        for key in whole.keys(include_nested=True, leaves_only=True):
            assert torch.equal(data[key], whole[key]), key
    return whole
