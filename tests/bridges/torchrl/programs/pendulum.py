"""A stateless pendulum: its state and parameters are in the data."""

import math

import torch
from environments import (
    Bounded,
    Compose,
    Composite,
    EnvBase,
    ObservationTransform,
    Transform,
    TransformedEnv,
    Unbounded,
    check_env_specs,
    step_mdp,
)
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule

SPEED, TORQUE = 8.0, 2.0


def wrapped(angle):
    return (angle + math.pi) % (2 * math.pi) - math.pi


def spec_like(td):
    leaves = {
        key: spec_like(value) if isinstance(value, TensorDictBase) else Unbounded(value.shape, dtype=value.dtype)
        for key, value in td.items()
    }
    return Composite(leaves, shape=td.shape)


class Pendulum(EnvBase):
    batch_locked = False

    def __init__(self, td_params=None, seed=None, device="cpu"):
        if td_params is None:
            td_params = self.gen_params()
        super().__init__(device=device, batch_size=[])
        self._make_spec(td_params)
        if seed is None:
            seed = torch.empty((), dtype=torch.int64).random_().item()
        self.set_seed(seed)

    @staticmethod
    def gen_params(g=10.0, batch_size=None):
        shape = torch.Size(batch_size or [])
        params = TensorDict({"mass": 1.0, "length": 1.0, "dt": 0.05, "g": g, "max_torque": TORQUE}, [])
        td = TensorDict({"params": params}, [])
        return td.expand(shape).contiguous() if shape else td

    def _make_spec(self, td_params):
        self.observation_spec = Composite(
            th=Bounded(low=-math.pi, high=math.pi, shape=(), dtype=torch.float32),
            thdot=Bounded(low=-SPEED, high=SPEED, shape=(), dtype=torch.float32),
            params=spec_like(td_params["params"]),
            shape=(),
        )
        self.state_spec = self.observation_spec.clone()
        self.action_spec = Bounded(low=-TORQUE, high=TORQUE, shape=(1,), dtype=torch.float32)
        self.reward_spec = Unbounded(shape=(*td_params.shape, 1))

    def _reset(self, tensordict):
        if tensordict is None or tensordict.is_empty():
            tensordict = self.gen_params(batch_size=self.batch_size)
        shape = tensordict.shape
        angle = (torch.rand(shape, generator=self.rng) * 2 - 1) * math.pi
        speed = (torch.rand(shape, generator=self.rng) * 2 - 1) * 1.0
        return TensorDict({"th": angle, "thdot": speed, "params": tensordict["params"]}, batch_size=shape)

    @staticmethod
    def _step(tensordict):
        angle, speed = tensordict["th"], tensordict["thdot"]
        params = tensordict["params"]
        push = tensordict["action"].squeeze(-1).clamp(-TORQUE, TORQUE)
        cost = wrapped(angle) ** 2 + 0.1 * speed**2 + 0.001 * push**2
        pull = 3 * params["g"] / (2 * params["length"]) * angle.sin()
        speed = speed + (pull + 3.0 / (params["mass"] * params["length"] ** 2) * push) * params["dt"]
        speed = speed.clamp(-SPEED, SPEED)
        angle = wrapped(angle + speed * params["dt"])
        reward = -cost.view(*tensordict.shape, 1)
        done = torch.zeros_like(reward, dtype=torch.bool)
        out = {"th": angle, "thdot": speed, "params": params, "reward": reward, "done": done}
        return TensorDict(out, tensordict.shape)

    def _set_seed(self, seed):
        self.rng = torch.manual_seed(seed) if seed is None else torch.Generator().manual_seed(seed)


class Angle(Transform):
    """Writes a function of the angle under another name."""

    def __init__(self, function, name):
        super().__init__(in_keys=["th"], out_keys=[name])
        self.function = function

    def _apply_transform(self, obs):
        return self.function(obs)

    def _reset(self, tensordict, tensordict_reset):
        return self._call(tensordict_reset)

    def transform_observation_spec(self, observation_spec):
        for in_key, out_key in zip(self.in_keys, self.out_keys, strict=True):
            leaf = observation_spec[in_key]
            observation_spec[out_key] = Bounded(low=-1, high=1, shape=leaf.shape, dtype=leaf.dtype)
        return observation_spec


class Trailing(ObservationTransform):
    """Gives entries a dimension at the end, and takes it away on the way back."""

    def __init__(self, keys, keys_inv=()):
        super().__init__(in_keys=keys, out_keys=keys, in_keys_inv=list(keys_inv), out_keys_inv=list(keys_inv))

    def _apply_transform(self, value):
        return value.unsqueeze(-1)

    def _inv_apply_transform(self, value):
        return value.squeeze(-1)

    def _reset(self, tensordict, tensordict_reset):
        return self._call(tensordict_reset)

    def _wider(self, spec, keys):
        for key in keys:
            spec[key] = spec[key].unsqueeze(-1)
        return spec

    def transform_observation_spec(self, observation_spec):
        return self._wider(observation_spec, self.in_keys)

    def transform_state_spec(self, state_spec):
        return self._wider(state_spec, self.in_keys_inv)


class Together(Transform):
    """Puts entries side by side."""

    def __init__(self, keys, name):
        super().__init__(in_keys=keys, out_keys=[name])

    def _call(self, next_tensordict):
        next_tensordict[self.out_keys[0]] = torch.cat([next_tensordict[key] for key in self.in_keys], -1)
        return next_tensordict

    def _reset(self, tensordict, tensordict_reset):
        return self._call(tensordict_reset)

    def transform_observation_spec(self, observation_spec):
        width = sum(observation_spec[key].shape[-1] for key in self.in_keys)
        observation_spec[self.out_keys[0]] = Unbounded((*observation_spec.shape, width))
        return observation_spec


def simple_rollout(env, steps):
    data = TensorDict({}, [steps])
    torch.manual_seed(0)
    td = env.reset()
    for i in range(steps):
        td["action"] = torch.full((1,), -1.0 + 0.5 * (i % 5))
        td = env.step(td)
        data[i] = td
        td = step_mdp(td, keep_other=True)
    return data


def run():
    found = {}
    env = Pendulum(seed=3)
    check_env_specs(env)
    env.set_seed(1)
    found["reset"] = env.reset()
    found["one step"] = env.step(env.reset().set("action", torch.ones(1)))
    env.set_seed(1)
    found["a loop of one's own"] = simple_rollout(env, 12)

    chain = Compose(Angle(torch.sin, "sin"), Angle(torch.cos, "cos"), Trailing(["th", "thdot"], ["th", "thdot"]))
    env = TransformedEnv(Pendulum(seed=3), chain)
    env.append_transform(Trailing(["sin", "cos"]))
    env.append_transform(Together(["sin", "cos", "thdot"], "observation"))
    check_env_specs(env)
    env.set_seed(2)
    policy = TensorDictModule(lambda seen: -seen[..., 2:].clamp(-1, 1), in_keys=["observation"], out_keys=["action"])
    found["transformed"] = env.rollout(15, policy)

    env.set_seed(3)
    params = Pendulum.gen_params(g=9.0, batch_size=[4])
    found["many at once"] = env.rollout(10, policy, auto_reset=False, tensordict=env.reset(params))
    weights = torch.tensor(-0.5, requires_grad=True)
    steer = TensorDictModule(lambda seen: weights * seen[..., 2:], in_keys=["observation"], out_keys=["action"])
    env.set_seed(4)
    data = env.rollout(10, steer, auto_reset=False, tensordict=env.reset(Pendulum.gen_params(batch_size=[3])))
    data["next", "reward"].mean().backward()
    found["gradient"] = TensorDict({"gradient": weights.grad}, [])
    # The pendulum declares no ends: the one library adds a flag more than the other.
    return {name: data.exclude("truncated", ("next", "truncated")) for name, data in found.items()}
