"""Agents in groups, with nested keys and an end for each agent: alone, transformed, in a batch, collected."""

import torch
from environments import (
    Bounded,
    Categorical,
    Collector,
    Composite,
    EnvBase,
    InitTracker,
    RewardSum,
    SerialEnv,
    TransformedEnv,
    Unbounded,
    check_env_specs,
)
from tensordict import TensorDict
from tensordict.nn import TensorDictModule


class Foragers(EnvBase):
    """Each agent walks on a line until it is out of strength; prey and hunters are groups of their own."""

    sizes = {"hunters": 2, "prey": 3}

    def __init__(self, strength=4.0, batch_size=(), device=None):
        super().__init__(device=device, batch_size=torch.Size(batch_size))
        self.strength = strength
        observation, action, reward, done = Composite(shape=batch_size), *(Composite(shape=batch_size) for _ in "123")
        for group, n in self.sizes.items():
            shape = torch.Size((*batch_size, n))
            observation[group] = Composite(
                place=Unbounded((*shape, 2)), strength=Unbounded((*shape, 1)), kind=Categorical(5, shape), shape=shape
            )
            action[group] = Composite(action=Bounded(-1, 1, (*shape, 2)), shape=shape)
            reward[group] = Composite(reward=Unbounded((*shape, 1)), shape=shape)
            flags = {name: Categorical(2, (*shape, 1), dtype=torch.bool) for name in ("done", "terminated")}
            done[group] = Composite(flags, shape=shape)
        self.observation_spec, self.action_spec, self.reward_spec, self.done_spec = observation, action, reward, done
        self.places, self.left = {}, {}

    def _observed(self, group):
        kind = torch.arange(self.sizes[group]).expand(*self.batch_size, self.sizes[group]).clone()
        place, strength = self.places[group].clone(), self.left[group].clone()
        return TensorDict({"place": place, "strength": strength, "kind": kind}, kind.shape)

    def _flags(self, group):
        over = self.left[group] <= 0
        return {"done": over, "terminated": over.clone()}

    def _reset(self, tensordict, **kwargs):
        out = TensorDict(batch_size=self.batch_size)
        for group, n in self.sizes.items():
            shape = (*self.batch_size, n)
            mask = None if tensordict is None else tensordict.get((group, "_reset"), None)
            begin = torch.ones(*shape, 1, dtype=torch.bool) if mask is None else mask.reshape(*shape, 1)
            full = self.strength + torch.arange(n).expand(shape).unsqueeze(-1)
            if mask is None or group not in self.places:
                self.places[group], self.left[group] = torch.zeros(*shape, 2), full
            self.places[group] = torch.where(begin, 0.0, self.places[group])
            self.left[group] = torch.where(begin, full, self.left[group])
            out[group] = self._observed(group).update(self._flags(group))
        return out

    def _step(self, tensordict):
        out = TensorDict(batch_size=self.batch_size)
        for group in self.sizes:
            move = tensordict[group, "action"]
            self.places[group] = self.places[group] + move
            self.left[group] = self.left[group] - 1 - move.abs().sum(-1, keepdim=True)
            reward = self.places[group].norm(dim=-1, keepdim=True)
            out[group] = self._observed(group).update({"reward": reward, **self._flags(group)})
        return out

    def _set_seed(self, seed):
        pass


def rewards():
    keys = [(group, "reward") for group in Foragers.sizes]
    return RewardSum(in_keys=keys, out_keys=[(group, "episode_reward") for group in Foragers.sizes])


def walk(*places):
    return tuple(0.3 * torch.cos(3 * place + torch.arange(2)) for place in places)


def run():
    policy = TensorDictModule(
        walk,
        in_keys=[(group, "place") for group in Foragers.sizes],
        out_keys=[(group, "action") for group in Foragers.sizes],
    )
    found = {}

    env = Foragers()
    check_env_specs(env)
    kinds = ("action", "reward", "done", "observation", "reset")
    found["keys"] = [sorted(map(str, getattr(env, f"{kind}_keys"))) for kind in kinds]
    found["until one ends"] = env.rollout(20, policy)
    found["on and on"] = env.rollout(20, policy, break_when_any_done=False)

    chained = TransformedEnv(Foragers(batch_size=(2,)), rewards())
    chained.append_transform(InitTracker())
    check_env_specs(chained)
    found["transformed"] = chained.rollout(15, policy, break_when_any_done=False)

    batch = SerialEnv(2, lambda: TransformedEnv(Foragers(), rewards()))
    found["batch"] = batch.rollout(15, policy, break_when_any_done=False)
    batch.close()

    batch = SerialEnv(2, lambda: Foragers())
    outside = TransformedEnv(batch, rewards())
    found["transformed batch"] = outside.rollout(15, policy, break_when_any_done=False)
    outside.close()

    collector = Collector(Foragers(), policy, frames_per_batch=12, total_frames=36)
    found["collected"] = torch.cat(list(collector), -1).exclude("collector")
    collector.shutdown()

    td = env.reset()
    td = env.step(policy(td))
    following = env.step_mdp(td)
    following = following.exclude(*env.action_keys)
    following["hunters", "_reset"] = torch.tensor([[True], [False]])
    following["prey", "_reset"] = torch.zeros(3, 1, dtype=torch.bool)
    found["one agent begins anew"] = env.reset(following)
    return found
