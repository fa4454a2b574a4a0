"""Names and attributes that the core of steppe does not have: steppe_torchrl.names has them."""

import torch
from environments import (
    Compose,
    Composite,
    GymEnv,
    InitTracker,
    StepCounter,
    TransformedEnv,
    Unbounded,
    VecGymEnvTransform,
    check_no_exclusive_keys,
    consolidate_spec,
    get_env_metadata,
    make_tensordict,
    terminated_or_truncated,
)


def make():
    return TransformedEnv(GymEnv("CartPole-v1"), Compose(StepCounter(max_steps=5), InitTracker()))


def run():
    env = make()
    counter, tracker = env.transform
    stack = torch.stack([Composite(a=Unbounded((2,))), Composite(b=Unbounded((3,)))])
    consolidated = consolidate_spec(stack)
    made = make_tensordict(env, lambda td: td.set("action", env.action_spec.rand()))
    metadata = get_env_metadata(env).expand(3)
    data = env.rollout(20, break_when_any_done=True)
    data["next", "truncated"] |= True
    marked = data[-1]["next"].clone()
    ended = terminated_or_truncated(marked, full_done_spec=env.full_done_spec, key="_reset")
    return {
        "keys": [counter.step_count_keys, counter.truncated_keys, counter.done_keys, counter.terminated_keys],
        "init": list(tracker.init_keys),
        "consolidated": [sorted(part.keys()) for part in consolidated.unbind(0)],
        "exclusive": [bool(check_no_exclusive_keys(spec)) for spec in (stack, consolidated)],
        "zeros": sorted(map(str, made.keys(True, True))),
        "all zero": all(not value.any() for value in made.values(True, True)),
        "metadata": [tuple(metadata.batch_size), tuple(metadata[0].batch_size), tuple(metadata.clone().batch_size)],
        "ended": [bool(ended), marked["_reset"].tolist()],
        "dimensions": env.observation_spec["observation"].ndimension(),
        "a transform without effect": isinstance(VecGymEnvTransform(), torch.nn.Module),
    }
