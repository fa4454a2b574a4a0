"""World models as environments, and the imagination of Dreamer."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn

from steppe.envs import check_env_specs
from steppe.errors import SpecError
from steppe.specs import Bounded, Composite, Unbounded
from steppe_models import DreamerEnv, ModelBasedEnvBase
from steppe_testing import CountingEnv


def linear_model(out_reward="reward"):
    return TensorDictSequential(
        TensorDictModule(nn.Linear(5, 3), in_keys=["joined"], out_keys=["observation"]),
        TensorDictModule(nn.Linear(3, 1), in_keys=["observation"], out_keys=[out_reward]),
    )


class Joined(nn.Module):
    """A small model that joins observation and action."""

    def __init__(self, reward="reward"):
        super().__init__()
        self.net = linear_model(reward)

    def forward(self, tensordict):
        tensordict["joined"] = torch.cat([tensordict["observation"], tensordict["action"]], -1)
        return self.net(tensordict)


class ModelEnv(ModelBasedEnvBase):
    def __init__(self, **kwargs):
        super().__init__(kwargs.pop("world_model", None) or Joined(), **kwargs)
        self.observation_spec = Composite(observation=Unbounded((*self.batch_size, 3)), shape=self.batch_size)
        self.state_spec = self.observation_spec
        self.action_spec = Bounded(-1.0, 1.0, shape=(*self.batch_size, 2))
        self.reward_spec = Unbounded((*self.batch_size, 1))

    def _reset(self, tensordict=None, **kwargs):
        size = self.batch_size if tensordict is None else tensordict.batch_size
        return TensorDict({"observation": torch.zeros(*size, 3)}, size, self.device)


def test_a_model_is_an_environment_of_any_batch_size():
    env = ModelEnv()
    check_env_specs(env)

    assert env.rollout(4, tensordict=TensorDict({}, [2, 3])).batch_size == (2, 3, 4)
    assert ModelEnv(batch_size=(5,)).rollout(4).batch_size == (5, 4)


def test_gradients_flow_through_a_rollout():
    env = ModelEnv()
    policy = TensorDictModule(nn.Linear(3, 2), in_keys=["observation"], out_keys=["action"])
    env.rollout(4, policy, tensordict=TensorDict({}, [2]))["next", "reward"].sum().backward()

    assert all(parameter.grad is not None for parameter in policy.parameters())


def test_other_parameters_can_be_used():
    env = ModelEnv()
    params = TensorDict.from_module(env.world_model).apply(torch.zeros_like)
    zeros = ModelEnv(world_model=env.world_model, params=params)

    assert zeros.rollout(3)["next", "observation"].abs().sum() == 0
    assert env.rollout(3)["next", "observation"].abs().sum() > 0


def test_other_buffers_can_be_used():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("shift", torch.zeros(()))

        def forward(self, count):
            return count + self.shift, self.shift.expand(count.shape)

    class Shift(ModelBasedEnvBase):
        def __init__(self, *args):
            model = TensorDictModule(Shifted(), in_keys=["count"], out_keys=["count", "reward"])
            super().__init__(model, *args)
            self.observation_spec = Composite(count=Unbounded((1,)))
            self.state_spec = Composite(count=Unbounded((1,)))
            self.action_spec = Unbounded((1,))

        def _reset(self, tensordict=None):
            return TensorDict(count=torch.zeros(1))

    shift = TensorDict(module=TensorDict(shift=torch.tensor(2.0)))
    env = Shift(None, shift, "cpu")

    assert env.device == torch.device("cpu")
    assert env.rollout(3)["next", "count"].flatten().tolist() == [2, 4, 6]
    assert Shift().rollout(3)["next", "count"].flatten().tolist() == [0, 0, 0]


def test_specs_can_be_taken_from_the_real_environment():
    real = CountingEnv(action="continuous")
    env = ModelEnv()
    env.set_specs_from_env(real)

    assert env.observation_keys == real.observation_keys
    assert env.action_spec == real.action_spec


def test_entries_that_the_model_omits_are_named():
    env = ModelEnv(world_model=Joined("prize"))

    with pytest.raises(SpecError, match=r"does not write \['reward'\]"):
        env.rollout(2)


def test_a_world_model_is_a_module():
    with pytest.raises(SpecError, match="found function"):
        ModelBasedEnvBase(lambda td: td)


class Latent(nn.Module):
    """A recurrent state-space model of toy size."""

    def __init__(self, state=4, belief=6, actions=2):
        super().__init__()
        self.cell = nn.GRUCell(state + actions, belief)
        self.prior = nn.Linear(belief, state)
        self.reward = nn.Linear(belief + state, 1)

    def forward(self, state, belief, action):
        flat = [value.reshape(-1, value.shape[-1]) for value in (state, belief, action)]
        belief_ = self.cell(torch.cat([flat[0], flat[2]], -1), flat[1]).reshape(belief.shape)
        state_ = self.prior(belief_)
        return state_, belief_, self.reward(torch.cat([belief_, state_], -1))


def dreamer(**kwargs):
    model = TensorDictModule(Latent(), in_keys=["state", "belief", "action"], out_keys=["state", "belief", "reward"])
    env = DreamerEnv(model, prior_shape=(4,), belief_shape=(6,), **kwargs)
    return env.set_specs_from_env(CountingEnv(action="continuous"))


def test_dreamer_imagines_from_zeros():
    env = dreamer()
    check_env_specs(env)

    assert env.observation_keys == ["belief", "state"]
    assert env.rollout(3)["belief"][0].abs().sum() == 0


def test_dreamer_imagines_from_latents_it_is_given():
    latents = TensorDict({"state": torch.ones(7, 4), "belief": torch.ones(7, 6)}, [7])
    data = dreamer().rollout(5, tensordict=latents)

    assert data.batch_size == (7, 5)
    assert data["belief"][:, 0].eq(1).all()
    assert torch.equal(data["belief"][:, 1:], data["next", "belief"][:, :-1])


def test_dreamer_backpropagates_through_its_imagination():
    env = dreamer()
    policy = TensorDictModule(nn.Linear(10, 2), in_keys=["latent"], out_keys=["action"])
    actor = TensorDictSequential(
        TensorDictModule(lambda s, b: torch.cat([s, b], -1), in_keys=["state", "belief"], out_keys=["latent"]), policy
    )
    env.rollout(5, actor, tensordict=TensorDict({}, [3]))["next", "reward"].sum().backward()

    assert policy.module.weight.grad.abs().sum() > 0


def test_dreamer_with_a_batch_takes_that_one():
    env = dreamer(batch_size=(3,))
    check_env_specs(env)

    assert env.rollout(2).batch_size == (3, 2)


def test_dreamer_decodes_observations():
    decoder = TensorDictModule(nn.Linear(4, 8), in_keys=["state"], out_keys=["pixels"])
    env = dreamer(obs_decoder=decoder)

    data = env.rollout(3)
    assert env.decode_obs(data.copy())["pixels"].shape == (3, 8)
    following = env.decode_obs(data.exclude("next"), compute_latents=True)
    assert torch.allclose(following["state"], data["next", "state"])
    assert torch.allclose(following["pixels"], decoder(data["next"].copy())["pixels"])
    with pytest.raises(SpecError, match="obs_decoder="):
        dreamer().decode_obs(TensorDict())


def test_the_names_are_found_in_steppe():
    import steppe

    assert steppe.ModelBasedEnvBase is steppe.envs.ModelBasedEnvBase is ModelBasedEnvBase
    assert steppe.DreamerEnv is DreamerEnv
