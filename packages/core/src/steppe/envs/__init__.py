"""One environment: the contract, the two code paths, rollouts and helpers."""

from __future__ import annotations

from steppe.compat import InteractionType as ExplorationType
from steppe.compat import interaction_type as exploration_type
from steppe.compat import set_interaction_type as set_exploration_type
from steppe.envs.action_rules import ActionRule, action_rules, missing_action
from steppe.envs.agent_groups import (
    GroupMap,
    MarlGroupMapType,
    check_marl_grouping,
    group_agents,
    group_agents_by_name,
)
from steppe.envs.array import (
    ActionCodec,
    ArrayEnv,
    Arrays,
    BoundWriter,
    Ended,
    EnvRows,
    Loop,
    Progress,
    RowLayout,
    Rows,
    RowWriter,
    layout_problem,
    overlaid,
    overlay_reset,
    writer_of_one,
)
from steppe.envs.array.write_row import write_row, wrong_shape
from steppe.envs.auto_reset import blanked, observed
from steppe.envs.base import EnvBase
from steppe.envs.checks.env_specs import check_env_specs
from steppe.envs.done import DoneGroup, done_groups, rows_ended
from steppe.envs.dreamer import DreamerEnv
from steppe.envs.env_info import env_info_values
from steppe.envs.gym_like import GymLikeEnv
from steppe.envs.info_readers import BaseInfoDictReader, default_info_dict_reader
from steppe.envs.library import LibraryWrapper, MadeByName, base_arguments
from steppe.envs.masks.ended import terminated_or_truncated
from steppe.envs.masks.step import merge_rows, step_mask
from steppe.envs.metadata import EnvMetaData, get_env_metadata, make_tensordict
from steppe.envs.model_based import ModelBasedEnvBase
from steppe.envs.module import Module
from steppe.envs.plain_roots import PlainRoots
from steppe.envs.rollout.policies import RandomPolicy, as_policy
from steppe.envs.rollout.random_actions import RandomActions, draws_in_blocks, put_actions
from steppe.envs.rollout.stacking import stack_frames
from steppe.envs.seeding import next_seed, system_seed
from steppe.envs.state import BaseState, Unknown
from steppe.envs.step_mdp import step_mdp
from steppe.specs import make_composite_from_td

__all__ = [
    "ActionCodec",
    "ActionRule",
    "ArrayEnv",
    "Arrays",
    "BaseInfoDictReader",
    "BaseState",
    "BoundWriter",
    "DoneGroup",
    "DreamerEnv",
    "Ended",
    "EnvBase",
    "EnvMetaData",
    "EnvRows",
    "ExplorationType",
    "GroupMap",
    "GymLikeEnv",
    "LibraryWrapper",
    "Loop",
    "MadeByName",
    "MarlGroupMapType",
    "ModelBasedEnvBase",
    "Module",
    "PlainRoots",
    "Progress",
    "RandomActions",
    "RandomPolicy",
    "RowLayout",
    "RowWriter",
    "Rows",
    "Unknown",
    "action_rules",
    "as_policy",
    "base_arguments",
    "blanked",
    "check_env_specs",
    "check_marl_grouping",
    "default_info_dict_reader",
    "done_groups",
    "draws_in_blocks",
    "env_info_values",
    "exploration_type",
    "get_env_metadata",
    "group_agents",
    "group_agents_by_name",
    "layout_problem",
    "make_composite_from_td",
    "make_tensordict",
    "merge_rows",
    "missing_action",
    "next_seed",
    "observed",
    "overlaid",
    "overlay_reset",
    "put_actions",
    "rows_ended",
    "set_exploration_type",
    "stack_frames",
    "step_mask",
    "step_mdp",
    "system_seed",
    "terminated_or_truncated",
    "write_row",
    "writer_of_one",
    "wrong_shape",
]
