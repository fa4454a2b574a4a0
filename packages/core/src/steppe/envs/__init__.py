"""One environment: the contract, the two code paths, rollouts and helpers."""

from __future__ import annotations

from tensordict.nn import InteractionType as ExplorationType
from tensordict.nn import interaction_type as exploration_type
from tensordict.nn import set_interaction_type as set_exploration_type

from steppe.envs.action_codec import ActionCodec
from steppe.envs.array import ArrayEnv
from steppe.envs.array_plan import ArrayPlan
from steppe.envs.base import EnvBase
from steppe.envs.check import check_env_specs
from steppe.envs.done import DoneGroup, done_groups
from steppe.envs.gym_like import GymLikeEnv
from steppe.envs.info import default_info_dict_reader
from steppe.envs.policies import RandomPolicy, as_policy
from steppe.envs.stepping import step_mdp

__all__ = [
    "ActionCodec",
    "ArrayEnv",
    "ArrayPlan",
    "DoneGroup",
    "EnvBase",
    "ExplorationType",
    "GymLikeEnv",
    "RandomPolicy",
    "as_policy",
    "check_env_specs",
    "default_info_dict_reader",
    "done_groups",
    "exploration_type",
    "set_exploration_type",
    "step_mdp",
]
