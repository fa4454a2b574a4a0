"""Transforms of every family, in rollouts over the ends of episodes, alone and around a batch."""

import torch
from environments import (
    ActionDiscretizer,
    ActionScaling,
    BinarizeReward,
    Binary,
    Bounded,
    CatFrames,
    CatTensors,
    ClipTransform,
    Compose,
    Composite,
    DoubleToFloat,
    DTypeCastTransform,
    EnvBase,
    ExcludeTransform,
    FiniteTensorDictCheck,
    FlattenObservation,
    FrameSkipTransform,
    InitTracker,
    LineariseRewards,
    ObservationNorm,
    PermuteTransform,
    RenameTransform,
    RewardClipping,
    RewardScaling,
    RewardSum,
    SelectTransform,
    SerialEnv,
    SignTransform,
    SqueezeTransform,
    Stack,
    StepCounter,
    TargetReturn,
    TerminateTransform,
    TimeMaxPool,
    ToTensorImage,
    TrajCounter,
    TransformedEnv,
    Unbounded,
    UnsqueezeTransform,
    VecNorm,
    VecNormV2,
)
from tensordict import TensorDict

#: Steps of an episode.
LENGTH = 6


class Film(EnvBase):
    """Shows numbers and an image that tell how many steps were taken, and what was done in the last one."""

    def __init__(self):
        super().__init__()
        self.observation_spec = Composite(
            observation=Bounded(-20.0, 20.0, (4,)),
            precise=Bounded(-20.0, 20.0, (2,), dtype=torch.float64),
            column=Bounded(-20.0, 20.0, (3, 1)),
            table=Bounded(-20.0, 20.0, (2, 3)),
            pixels=Bounded(0, 255, (12, 10, 3), dtype=torch.uint8),
        )
        self.action_spec = Bounded(-1.0, 1.0, (2,))
        self.reward_spec = Unbounded(1)
        flags = {name: Binary(1, dtype=torch.bool) for name in ("done", "terminated", "truncated")}
        self.done_spec = Composite(flags)
        self.t = 0

    def _data(self, action):
        t, total = float(self.t), float(action.sum())
        image = (torch.arange(360).reshape(12, 10, 3) * 7 + 31 * self.t + int(100 * (total + 2))) % 256
        return {
            "observation": torch.tensor([t, -t, total, t * total]),
            "precise": torch.tensor([t / 3, total / 7], dtype=torch.float64),
            "column": torch.tensor([[t], [1 - t], [total]]),
            "table": torch.tensor([[t, 2.0, -t], [total, -1.0, 0.5]]),
            "pixels": image.to(torch.uint8),
        }

    def _flags(self):
        over = torch.tensor([self.t >= LENGTH])
        return {"done": over, "terminated": over.clone(), "truncated": torch.zeros(1, dtype=torch.bool)}

    def _reset(self, tensordict=None, **kwargs):
        self.t = 0
        return TensorDict({**self._data(torch.zeros(2)), **self._flags()}, [])

    def _step(self, tensordict):
        self.t += 1
        action = tensordict["action"]
        reward = (action[:1] + 0.3 * self.t).clamp(-5, 5)
        return TensorDict({**self._data(action), **self._flags(), "reward": reward}, [])

    def _set_seed(self, seed):
        pass


def steady(tensordict):
    """Actions that follow the count of steps."""
    t = tensordict["t"].float()
    return tensordict.set("action", torch.cat([(t * 0.7).sin(), (t * 1.3).cos()], -1))


def chosen(tensordict):
    """Intervals of actions that follow the count of steps."""
    return tensordict.set("action", torch.cat([tensordict["t"] % 3, (tensordict["t"] + 1) % 3], -1))


def counted(*transforms):
    """The transforms, and the count of steps that the policy reads."""
    return Compose(*transforms, StepCounter(step_count_key="t"))


def far(tensordict):
    return tensordict["observation"][..., :1] >= 3


OBSERVED = ["observation"]
IMAGE = ["pixels"]

#: What is behind an environment, by the name of the part.
CHAINS = {
    "frames in a row": lambda: [CatFrames(N=3, dim=-1, in_keys=OBSERVED)],
    "frames in a row, from a constant": lambda: [
        CatFrames(N=3, dim=-1, in_keys=OBSERVED, out_keys=["seen"], padding="constant", padding_value=-7.0)
    ],
    "in one vector": lambda: [
        SqueezeTransform(dim=-1, in_keys=["column"]),
        CatTensors(in_keys=["observation", "column"], out_key="vector", del_keys=False),
    ],
    "in one vector alone": lambda: [
        SqueezeTransform(dim=-1, in_keys=["column"]),
        CatTensors(in_keys=["observation", "column"], out_key="vector"),
    ],
    "clip": lambda: [ClipTransform(in_keys=OBSERVED, low=-1.5, high=2.5)],
    "cast": lambda: [DTypeCastTransform(torch.float64, torch.float32, in_keys=["precise"])],
    "floats": lambda: [DoubleToFloat(in_keys=["precise"])],
    "excluded": lambda: [ExcludeTransform("pixels", "table")],
    "selected": lambda: [SelectTransform("observation", "pixels")],
    "finite": lambda: [FiniteTensorDictCheck()],
    "flat": lambda: [FlattenObservation(first_dim=-2, last_dim=-1, in_keys=["table"])],
    "two steps at once": lambda: [FrameSkipTransform(frame_skip=2)],
    "first": lambda: [InitTracker()],
    "normal": lambda: [ObservationNorm(loc=0.5, scale=2.0, in_keys=OBSERVED, standard_normal=True)],
    "affine": lambda: [ObservationNorm(loc=0.5, scale=2.0, in_keys=OBSERVED)],
    "permuted": lambda: [PermuteTransform(dims=(-1, -2), in_keys=["table"])],
    "renamed": lambda: [RenameTransform(["observation"], ["seen"])],
    "clipped reward": lambda: [RewardClipping(clamp_min=-0.5, clamp_max=0.5)],
    "sign of the reward": lambda: [BinarizeReward()],
    "scaled reward": lambda: [RewardScaling(loc=1.0, scale=2.0)],
    "normal reward": lambda: [RewardScaling(loc=1.0, scale=2.0, standard_normal=True)],
    "sum": lambda: [RewardSum()],
    "reward as objectives": lambda: [LineariseRewards(in_keys=["reward"], weights=[2.0])],
    "sign": lambda: [SignTransform(in_keys=OBSERVED)],
    "squeezed": lambda: [SqueezeTransform(dim=-1, in_keys=["column"])],
    "unsqueezed": lambda: [UnsqueezeTransform(dim=-1, in_keys=OBSERVED)],
    "stacked": lambda: [
        CatFrames(N=1, dim=-1, in_keys=OBSERVED, out_keys=["twin"]),
        Stack(in_keys=["observation", "twin"], out_key="both", dim=-1, del_keys=False),
    ],
    "steps": lambda: [StepCounter(max_steps=3)],
    "return to be reached": lambda: [TargetReturn(10.0)],
    "return to be reached in all": lambda: [TargetReturn(10.0, mode="constant")],
    "ended": lambda: [TerminateTransform(stop=far)],
    "brightest of two": lambda: [TimeMaxPool(in_keys=OBSERVED, T=2)],
    "image": lambda: [ToTensorImage(in_keys=IMAGE)],
    "image of bytes": lambda: [ToTensorImage(in_keys=IMAGE, dtype=torch.float64)],
    "episodes": lambda: [TrajCounter()],
    "running": lambda: [VecNorm(in_keys=OBSERVED, decay=0.9)],
    "running, second edition": lambda: [VecNormV2(in_keys=OBSERVED, decay=0.9, reduce_batch_dims=True)],
}


#: Those that are computed in another order: the last digits differ.
ROUNDED = {"running", "running, second edition", "intervals"}

#: Transforms of actions, and what chooses them.
ACTIONS = {
    "scaled actions": (lambda: ActionScaling(), steady),
    "intervals": (lambda: ActionDiscretizer(num_intervals=3, categorical=True), chosen),
}


def nearly(value):
    return (value * 1e4).round() if value.is_floating_point() else value


def run():
    found = {}
    for batched in (False, True):
        where = "a batch" if batched else "alone"
        cases = {name: (make, steady) for name, make in CHAINS.items()}
        cases.update({name: (lambda make=make: [make()], policy) for name, (make, policy) in ACTIONS.items()})
        for name, (make, policy) in cases.items():
            env = TransformedEnv(SerialEnv(2, Film) if batched else Film(), counted(*make()))
            data = env.rollout(8, policy, break_when_any_done=False)
            found[f"{name}, {where}"] = data.apply(nearly) if name in ROUNDED else data
    return found
