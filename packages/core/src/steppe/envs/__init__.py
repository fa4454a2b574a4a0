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
    EnvInfos,
    EnvRows,
    Loop,
    Progress,
    RowLayout,
    Rows,
    RowSteps,
    RowWriter,
    layout_problem,
    row_steps_of,
    writer_of_one,
)
from steppe.envs.array.write_row import as_flag, as_numbers, write_row, wrong_shape
from steppe.envs.auto_reset import blanked, observed
from steppe.envs.base import EnvBase
from steppe.envs.checks.spec_check import check_env_specs
from steppe.envs.done import DoneGroup, done_groups, rows_ended, terminated_or_truncated
from steppe.envs.dreamer import DreamerEnv
from steppe.envs.env_info import env_info_values
from steppe.envs.gym_like import GymLikeEnv
from steppe.envs.info_readers import BaseInfoDictReader, default_info_dict_reader
from steppe.envs.kept_entries import DeclaredKeys, declared_keys, is_kept, without_private
from steppe.envs.library import LibraryWrapper, MadeByName, base_arguments
from steppe.envs.masks.step import merge_rows, step_mask
from steppe.envs.metadata import EnvMetaData, get_env_metadata, make_tensordict
from steppe.envs.model_based import ModelBasedEnvBase
from steppe.envs.module import Module
from steppe.envs.next_root import StepPlan, begun, step_mdp, write_begun
from steppe.envs.passed_through import written_by_policy
from steppe.envs.rollout.policies import RandomPolicy, as_policy, called_with, policy_name, with_written
from steppe.envs.rollout.random_actions import RandomActions, draws_in_blocks, put_actions
from steppe.envs.rollout.stacking import stack_frames
from steppe.envs.seeding import next_seed, system_seed
from steppe.envs.state import BaseState, Unknown, Uses
from steppe.specs import make_composite_from_td

__all__ = [
    "ActionCodec",
    "ActionRule",
    "ArrayEnv",
    "Arrays",
    "BaseInfoDictReader",
    "BaseState",
    "BoundWriter",
    "DeclaredKeys",
    "DoneGroup",
    "DreamerEnv",
    "Ended",
    "EnvBase",
    "EnvInfos",
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
    "Progress",
    "RandomActions",
    "RandomPolicy",
    "RowLayout",
    "RowSteps",
    "RowWriter",
    "Rows",
    "StepPlan",
    "Unknown",
    "Uses",
    "action_rules",
    "as_flag",
    "as_numbers",
    "as_policy",
    "base_arguments",
    "begun",
    "blanked",
    "called_with",
    "check_env_specs",
    "check_marl_grouping",
    "declared_keys",
    "default_info_dict_reader",
    "done_groups",
    "draws_in_blocks",
    "env_info_values",
    "exploration_type",
    "get_env_metadata",
    "group_agents",
    "group_agents_by_name",
    "is_kept",
    "layout_problem",
    "make_composite_from_td",
    "make_tensordict",
    "merge_rows",
    "missing_action",
    "next_seed",
    "observed",
    "policy_name",
    "put_actions",
    "row_steps_of",
    "rows_ended",
    "set_exploration_type",
    "stack_frames",
    "step_mask",
    "step_mdp",
    "system_seed",
    "terminated_or_truncated",
    "with_written",
    "without_private",
    "write_begun",
    "write_row",
    "writer_of_one",
    "written_by_policy",
    "wrong_shape",
]
