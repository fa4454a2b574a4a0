"""One call of a policy on data that is no data: whether it fits, and what it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.collectors.agents import AgentFacts, as_infos
from steppe.envs import EnvBase
from steppe.errors import PolicyError, SteppeError
from steppe.specs import CPU

__all__ = ["check_policy", "check_written", "empty_root"]


def empty_root(env: EnvBase, facts: AgentFacts | None) -> TensorDictBase:
    """What a policy is given at the first step, with zeros; observations that are bool (masks of actions) are True.

    Args:
        env: the environment.
        facts: what the policy declares, where it answers requests; its rows then have one dimension.
    """
    fake = env.fake_tensordict()
    if facts is not None:
        fake = fake.reshape(-1)
    root = fake.select(*env.observation_keys, *env.done_keys, *env.state_keys, strict=False)
    for key in env.observation_keys:
        value = root.get(key, None)
        if isinstance(value, torch.Tensor) and value.dtype == torch.bool:
            root.set(key, torch.ones_like(value))
    if facts is None:
        return root
    n = root.batch_size[0]
    if "is_init" not in root.keys():
        root.set("is_init", torch.ones(n, 1, dtype=torch.bool, device=CPU))
    spec = facts.info_spec
    infos = None if spec is None or spec.is_empty() else spec.expand(n, *spec.shape).zero()
    told = facts.default if facts.info_example is None else as_infos(facts.info_example)
    if told is not None:
        values = told.reshape(-1)[:1].expand(n).clone()
        infos = values if infos is None else infos.update(values)
    if infos is not None:
        root.set("agent_info", infos)
    if not env.env_info_spec.is_empty():
        root.set("env_info", env.env_info_spec.zero().reshape(n))
    facts.begin(root)
    return root


@torch.no_grad()
def check_policy(name: str, policy: Any, act: Callable[[TensorDictBase], Any], root: TensorDictBase) -> TensorDictBase:
    """Call a policy once.

    Args:
        name: of the collector, for errors.
        policy: what the caller gave.
        act: what calls it.
        root: from :func:`empty_root`.

    Returns:
        What it returns.

    Raises:
        PolicyError: it raises, or returns something else than a TensorDict.
    """
    keys = sorted(map(str, root.keys(True, True)))
    try:
        with torch.random.fork_rng(devices=[]):
            found = act(root)
    except SteppeError:
        raise
    except Exception as error:
        raise PolicyError(
            f"{name}: the policy {type(policy).__name__} does not act on what the environment gives it: "
            f"{type(error).__name__}: {error}. It was called with zeros of {keys}; trust_policy=True leaves that out."
        ) from error
    if not isinstance(found, TensorDictBase):
        raise PolicyError(f"The policy must return a TensorDict, found {type(found).__name__}.")
    return found


def check_written(policy: Any, before: dict[Any, Any], td: TensorDictBase) -> None:
    """Hold the data that a policy has acted on against what was there before.

    Args:
        policy: the policy, for errors.
        before: entries that are not its own.
        td: the data.

    Raises:
        PolicyError: it has written to one of them.
    """
    for key, value in before.items():
        now = td.get(key, None)
        if now is value or not isinstance(value, torch.Tensor):
            continue
        owner = {"agent_info": "the request", "env_info": "the request", "agent_state": "the engine"}.get(
            key[0] if isinstance(key, tuple) else key, "the environment"
        )
        if not isinstance(now, torch.Tensor) or now.dtype != value.dtype or not torch.equal(now, value):
            raise PolicyError(
                f"The policy {type(policy).__name__} writes {key!r}, which belongs to {owner}. Let it "
                "write to a key of its own; the next state goes to ('next', 'agent_state', ...)."
            )
