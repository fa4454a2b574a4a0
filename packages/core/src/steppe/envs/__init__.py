"""One environment: the contract, the two code paths, rollouts and helpers.

Classes of environments of other packages are found here by their names, as transforms are in :mod:`steppe.transforms`:
``from steppe.envs import GymLikeEnv`` works once steppe-gym-like is installed. If the package is missing, access raises
:class:`~steppe.errors.ClassNotFound`, in ``hasattr`` too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steppe.compat import InteractionType as ExplorationType
from steppe.compat import interaction_type as exploration_type
from steppe.compat import set_interaction_type as set_exploration_type
from steppe.envs.action_rules import ActionRule, action_rules, missing_action
from steppe.envs.array.actions import ActionCodec
from steppe.envs.array.env import ArrayEnv, refuse_seed
from steppe.envs.array.row_layout import RowLayout, no_layout_reason
from steppe.envs.array.row_loop import Loop
from steppe.envs.array.row_steps import RowSteps
from steppe.envs.array.row_writer import BoundWriter, EnvInfos, EnvWriter, RowWriter, writer_of_one
from steppe.envs.array.rows import Arrays, Ended, Progress, Rows
from steppe.envs.array.write_row import as_flag, as_numbers, name_place, write_row, wrong_shape
from steppe.envs.base import EnvBase
from steppe.envs.checks.spec_check import check_env_specs
from steppe.envs.done import DoneGroup, done_groups, rows_ended, truncated_keys
from steppe.envs.env_info import env_info_values, info_for_library
from steppe.envs.kept_entries import DeclaredKeys, declared_keys, is_kept, without_private
from steppe.envs.library import LibraryWrapper, MadeByName, base_arguments, set_in_wrappers
from steppe.envs.module import Module
from steppe.envs.next_root import step_mdp, write_begun, written_by_policy
from steppe.envs.overridden_methods import ROOT_METHODS
from steppe.envs.reset_masks import merge_reset, merge_rows, step_mask
from steppe.envs.rollout.code_path import no_row_frames_reason
from steppe.envs.rollout.policies import RandomPolicy, as_policy, called_with, on_device, policy_name, with_written
from steppe.envs.rollout.random_actions import RandomActions, draws_in_blocks, put_actions
from steppe.envs.rollout.row_frames import RowFrames
from steppe.envs.rollout.stacking import stack_frames
from steppe.envs.rollout.td_frames import TensorDictFrames
from steppe.envs.seeding import next_seed, spread_seed, system_seed
from steppe.envs.state import BaseState, Unset, Uses
from steppe.imports import lazy_exports
from steppe.specs import make_composite_from_td

__all__ = [
    "ROOT_METHODS",
    "ActionCodec",
    "ActionRule",
    "ArrayEnv",
    "Arrays",
    "BaseState",
    "BoundWriter",
    "DeclaredKeys",
    "DoneGroup",
    "Ended",
    "EnvBase",
    "EnvInfos",
    "EnvWriter",
    "ExplorationType",
    "LibraryWrapper",
    "Loop",
    "MadeByName",
    "Module",
    "Progress",
    "RandomActions",
    "RandomPolicy",
    "RowFrames",
    "RowLayout",
    "RowSteps",
    "RowWriter",
    "Rows",
    "TensorDictFrames",
    "Unset",
    "Uses",
    "action_rules",
    "as_flag",
    "as_numbers",
    "as_policy",
    "base_arguments",
    "called_with",
    "check_env_specs",
    "declared_keys",
    "done_groups",
    "draws_in_blocks",
    "env_info_values",
    "exploration_type",
    "info_for_library",
    "is_kept",
    "make_composite_from_td",
    "merge_reset",
    "merge_rows",
    "missing_action",
    "name_place",
    "next_seed",
    "no_layout_reason",
    "no_row_frames_reason",
    "on_device",
    "policy_name",
    "put_actions",
    "refuse_seed",
    "rows_ended",
    "set_exploration_type",
    "set_in_wrappers",
    "spread_seed",
    "stack_frames",
    "step_mask",
    "step_mdp",
    "system_seed",
    "truncated_keys",
    "with_written",
    "without_private",
    "write_begun",
    "write_row",
    "writer_of_one",
    "written_by_policy",
    "wrong_shape",
]

__getattr__: Callable[[str], Any]
__getattr__, __dir__, _ = lazy_exports(__name__, kind="env class")
