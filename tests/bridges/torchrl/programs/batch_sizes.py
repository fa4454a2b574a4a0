"""Environments without a fixed batch size get one; others get another one."""

import torch
from environments import BatchSizeTransform, Bounded, Collector, Composite, EnvBase, TransformedEnv, Unbounded
from tensordict import TensorDict


class Counter(EnvBase):
    batch_locked = False

    def __init__(self):
        super().__init__()
        self.observation_spec = Composite(observation=Unbounded(3))
        self.state_spec = Composite(observation=Unbounded(3))
        self.reward_spec = Unbounded(1)
        self.action_spec = Bounded(-1, 1, (1,))

    def _reset(self, tensordict, **kwargs):
        shape = tensordict.batch_size if tensordict is not None else torch.Size([])
        return self.observation_spec.zero(shape).update(self.full_done_spec.zero(shape))

    def _step(self, tensordict):
        observation = tensordict["observation"] + tensordict["action"]
        reward = observation.sum(-1, keepdim=True)
        out = TensorDict({"observation": observation, "reward": reward}, tensordict.batch_size)
        return out.update(self.full_done_spec.zero(tensordict.batch_size))

    def _set_seed(self, seed):
        pass


def steady(tensordict):
    return tensordict.set("action", torch.full((*tensordict.batch_size, 1), 0.5))


def ones(tensordict, tensordict_reset, env):
    result = env.observation_spec.one()
    result.update(env.full_done_spec.zero())
    assert result.batch_size == (5,)
    return result


def rest(data):
    return data.exclude("truncated", ("next", "truncated"), "collector")


def run():
    found = {}
    env = TransformedEnv(Counter(), BatchSizeTransform(batch_size=[5]))
    found["size"] = env.batch_size
    found["given"] = rest(env.rollout(4, steady))
    env = TransformedEnv(Counter(), BatchSizeTransform(batch_size=[5], reset_func=ones, env_kwarg=True))
    found["reset by a function"] = rest(env.rollout(4, steady))
    collector = Collector(env, steady, frames_per_batch=10, total_frames=20)
    found["collected"] = rest(torch.cat(list(collector), -1))
    collector.shutdown()
    env = TransformedEnv(Counter(), BatchSizeTransform(reshape_fn=lambda data: data.reshape(1, 1)))
    found["reshaped"] = rest(env.rollout(4, steady))
    return found
