"""Rollouts with each kind of policy."""

import torch
from environments import (
    Binary,
    Bounded,
    Composite,
    EnvBase,
    ExplorationType,
    InitTracker,
    RandomPolicy,
    SerialEnv,
    StepCounter,
    TransformedEnv,
    Unbounded,
    set_exploration_type,
)
from tensordict import TensorDict
from tensordict.nn import (
    NormalParamExtractor,
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictSequential,
)
from torch import nn


class Point(EnvBase):
    """A point in the plane."""

    def __init__(self, batch_size=()):
        super().__init__(batch_size=torch.Size(batch_size))
        self.observation_spec = Composite(observation=Unbounded((*batch_size, 3)), shape=batch_size)
        self.action_spec = Bounded(-1, 1, (*batch_size, 2))
        self.reward_spec = Unbounded((*batch_size, 1))
        flags = {name: Binary(1, (*batch_size, 1), dtype=torch.bool) for name in ("done", "terminated")}
        self.done_spec = Composite(flags, shape=batch_size)

    def _reset(self, tensordict, **kwargs):
        self.place = torch.ones(*self.batch_size, 3)
        return TensorDict({"observation": self.place}, self.batch_size)

    def _step(self, tensordict):
        moved = torch.nn.functional.pad(tensordict["action"], (0, 1), value=0.25)
        self.place = self.place + moved
        reward = -self.place.norm(dim=-1, keepdim=True)
        done = self.place[..., 2:] >= 3
        out = {"observation": self.place, "reward": reward, "done": done, "terminated": done.clone()}
        return TensorDict(out, self.batch_size)

    def _set_seed(self, seed):
        pass


def linear():
    torch.manual_seed(0)
    return nn.Linear(3, 2)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = linear()

    def forward(self, tensordict):
        tensordict["action"] = self.net(tensordict["observation"]).tanh()
        tensordict["seen", "norm"] = tensordict["observation"].norm(dim=-1, keepdim=True)
        return tensordict


class ReadsTheFirst:
    """A policy that is not a module."""

    def __call__(self, tensordict):
        return tensordict.set("action", -0.1 * tensordict["observation"][..., :2])


def of_its_own(tensordict):
    action = -0.1 * tensordict["observation"][..., :2]
    return TensorDict({"action": action, "note": action.sum(-1, keepdim=True)}, tensordict.batch_size)


def probabilistic():
    net = nn.Sequential(nn.Linear(3, 4), NormalParamExtractor())
    return ProbabilisticTensorDictSequential(
        TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        ProbabilisticTensorDictModule(
            in_keys=["loc", "scale"],
            out_keys=["action"],
            distribution_class=torch.distributions.Normal,
            return_log_prob=True,
        ),
    )


def policies(spec):
    module = TensorDictModule(linear(), in_keys=["observation"], out_keys=["action"])
    hidden = TensorDictModule(linear(), in_keys=["observation"], out_keys=["hidden"])
    squash = TensorDictModule(torch.tanh, in_keys=["hidden"], out_keys=["action"])
    yield "none", None
    yield "random", RandomPolicy(spec)
    yield "in place", InPlace()
    yield "a callable", ReadsTheFirst()
    yield "data of its own", of_its_own
    yield "module", module
    yield (
        "module, out of place",
        TensorDictModule(linear(), in_keys=["observation"], out_keys=["action"], inplace=False),
    )
    yield "sequence", TensorDictSequential(hidden, squash)
    yield "sequence, what is asked for", TensorDictSequential(hidden, squash, selected_out_keys=["action"])
    yield "plain module", linear()
    yield "function of a tensor", lambda observation: -0.2 * observation[..., :2]
    torch.manual_seed(0)
    yield "distribution", probabilistic()


def environments():
    yield "alone", lambda: Point()
    yield "rows", lambda: Point((2,))
    yield "transformed", lambda: TransformedEnv(Point(), StepCounter(max_steps=5))
    yield "batch", lambda: SerialEnv(2, lambda: Point())
    yield "transformed batch", lambda: TransformedEnv(SerialEnv(2, lambda: Point()), InitTracker())


def run():
    found = {}
    for where, make in environments():
        env = make()
        for name, policy in policies(env.action_spec):
            if "transformed" in where and name in ("plain module", "function of a tensor"):
                continue  # these take the observation alone
            torch.manual_seed(1)
            with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
                data = env.rollout(12, policy, break_when_any_done=False)
            if policy is None:
                # Each library draws in its own order.
                assert env.action_spec.is_in(data[..., 0]["action"])
                data = data.apply(torch.zeros_like)
            found[f"{name}, {where}"] = data
        torch.manual_seed(0)
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            found[f"deterministic, {where}"] = env.rollout(12, probabilistic())
        env.close()
    return found
