"""Rollouts on TensorDicts: each step is copied to the memory of the result if its entries have a fixed layout."""

from __future__ import annotations

import weakref

import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict

from steppe import Bounded, SerialEnv, Unbounded
from steppe.envs import EnvBase, RandomActions
from steppe_testing import ArrayDataEnv, DataEnv

STEPS = 30
#: More than is worth a copy of its own in each step, and in all of them more than the memory that is used again.
LARGE = (6, 100, 80)


def images(base=DataEnv):
    return base({"pixels": Bounded(0.0, 1.0, LARGE), "observation": Bounded(0.0, 1.0, (2,))})


def rollout(env, policy=None, **arguments):
    env.set_seed(0)
    torch.manual_seed(0)
    return env.rollout(STEPS, policy, break_when_any_done=False, **arguments)


def stacked_by_hand(env):
    """Return the frames of a loop that steps the environment with the same actions."""
    env.set_seed(0)
    torch.manual_seed(0)
    act, root, frames = RandomActions(env), env.reset(), []
    for _ in range(STEPS):
        frame, root = env.step_and_maybe_reset(act(root))
        frames.append(frame)
    return torch.stack(frames, env.batch_dims)


@pytest.mark.parametrize("base", [DataEnv, lambda specs: SerialEnv(2, lambda: ArrayDataEnv(specs))])
def test_frames_equal_steps_stacked_at_the_end(base):
    env = images(base)
    data, expected = rollout(env), stacked_by_hand(env)

    assert data["next", "done"].any()
    assert (data == expected).all()
    assert data["pixels"].data_ptr() != data["next", "pixels"].data_ptr()


def test_a_rollout_frees_the_memory_of_each_step():
    seen = []

    def policy(td):
        seen.append(weakref.ref(td["pixels"]))
        assert sum(one() is not None for one in seen) <= 4
        return td.set("action", env.full_action_spec.rand()["action"])

    env = images()
    rollout(env, policy)

    assert len(seen) == STEPS


def test_a_policy_may_write_into_an_observation():
    """What a policy writes into an observation in place is in the root, and not in ``next`` of the step before."""

    def policy(td):
        td["pixels"].mul_(2)
        return td.set("action", env.full_action_spec.zero()["action"])

    env = images()
    data = rollout(env, policy)

    within = ~data["next", "done"][:-1, 0]
    assert torch.equal(data["pixels"][1:][within], 2 * data["next", "pixels"][:-1][within])


class Changing(EnvBase):
    """Its images change in step 10: their size, their dtype, or whether they require a gradient; or it raises."""

    def __init__(self, what):
        super().__init__()
        self.what, self.count = what, 0
        self.full_observation_spec["pixels"] = Unbounded((-1, *LARGE[1:]) if what == "size" else LARGE)
        self.action_spec = Unbounded((1,))

    def _reset(self, tensordict=None):
        self.count = 0
        return TensorDict({"pixels": torch.zeros(LARGE)}, [])

    def _step(self, tensordict):
        self.count += 1
        pixels = torch.full(LARGE, float(self.count))
        if self.count >= 10:
            if self.what == "size":
                pixels = pixels[:1]
            elif self.what == "error":
                raise ArithmeticError("the tenth step")
            else:
                pixels.requires_grad_()
        return TensorDict({"pixels": pixels, "reward": torch.zeros(1), "done": torch.zeros(1, dtype=torch.bool)}, [])

    def _set_seed(self, seed):
        pass


def test_images_that_change_their_size_are_kept_as_they_are():
    data = Changing("size").rollout(STEPS, break_when_any_done=False, return_contiguous=False)

    assert isinstance(data, LazyStackedTensorDict)
    for t in range(STEPS):
        assert data[t]["next", "pixels"].shape == (LARGE if t < 9 else (1, *LARGE[1:]))
        assert (data[t]["next", "pixels"] == t + 1).all()
        assert (data[t]["pixels"] == t).all()


def test_gradients_pass_through_images():
    data = Changing("gradient").rollout(STEPS, break_when_any_done=False)

    assert data["next", "pixels"].requires_grad
    assert data["next", "pixels"][:, 0, 0, 0].tolist() == list(range(1, STEPS + 1))


def test_more_steps_than_memory_holds_can_be_begun():
    with pytest.raises(ArithmeticError, match="the tenth step"):
        Changing("error").rollout(10**12, break_when_any_done=False)
