"""Checks each action, and the rest of the data once, at the first step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from tensordict import TensorDictBase

from steppe.envs.action_rules import action_rules, missing_action, put_action
from steppe.envs.checks.disagreements import Finding, compare, rewards_at_reset, spec_of_data
from steppe.envs.done import DoneGroup, Masks, complete_done
from steppe.errors import ActionError, SpecError
from steppe.storage import find_entry

if TYPE_CHECKING:
    from steppe.envs.env_attributes import EnvAttributes

__all__ = ["Expectation", "check_reset_done", "validate"]


#: The key of an entry, and its shape behind the batch and its dtype if these are checked or adjusted.
_Leaf: TypeAlias = "tuple[Any, torch.Size | None, torch.dtype | None]"


class Expectation:
    """Shapes and dtypes of an environment's data, read from its specs once.

    Shapes are without the batch dimensions, so that environments that take any batch size are checked too.

    Args:
        env: the environment.
        casts: whether data may be cast to the dtypes of its specs; False to check the dtypes that it has.
    """

    def __init__(self, env: EnvAttributes, *, casts: bool = True) -> None:
        env._check_disjoint()
        self.name, self.casts = type(env).__name__, casts
        self.batch_dims = len(env.batch_size)
        self.groups = env.done_groups
        self.done_spec = env.full_done_spec
        self.actions = action_rules(env.full_action_spec, env.full_done_spec, batch_dims=self.batch_dims)
        self.observations = self._leaves(env, env.full_observation_spec)
        self.rewards = self._leaves(env, env.full_reward_spec)
        self.dones = self._leaves(env, env.full_done_spec)
        # Entries to reshape or cast in each reset and step, worked out in the first one.
        self._adjustments: dict[str, list[_Leaf]] = {}
        self._adjusts = not env.steps_others

    def _leaves(self, env: EnvAttributes, spec: Any) -> list[_Leaf]:
        leaves: list[_Leaf] = []
        for key, leaf in spec.items(include_nested=True, leaves_only=True):
            if leaf is None or leaf.dtype is None or leaf.rows_differ:
                leaves.append((key, None, None))
            elif any(size < 0 for size in leaf.shape):
                leaves.append((key, None, leaf.dtype))
            else:
                leaves.append((key, leaf.shape[self.batch_dims :], leaf.dtype))
        return leaves

    def check_action(self, tensordict: TensorDictBase, *, acting: Any = None, rows: Any = None) -> None:
        """Check the actions in ``tensordict``, and convert actions of another dtype in place.

        Args:
            tensordict: data with the actions. If it has a mask ``"_step"``, only rows that are True are checked.
            acting: the mask, if the data does not have it.
            rows: ``[k]``, the rows of the batch to which the data belongs; all by default.

        Raises:
            ActionError: an action is missing or does not fit; with its key, the expected value and the one found.
        """
        lead = tensordict.batch_size
        for rule in self.actions:
            key: Any = rule.key
            try:
                value = find_entry(tensordict, key)
            except RuntimeError:  # rows of a lazy stack with different shapes: each row is checked when it is stepped
                continue
            if value is None:
                raise missing_action(tensordict, key)
            try:
                fitted = rule.fit(value, lead, rows=rows)
            except ActionError:
                mask = tensordict.get("_step", acting)
                if mask is None:
                    raise
                fitted = rule.fit(value, lead, acting=mask.reshape(lead))
            if fitted is not value:
                put_action(tensordict, key, fitted)

    def adjust(self, data: TensorDictBase, what: str, *, casts: bool) -> None:
        """Reshape and cast the data of a reset or step to the specs, in place, if no information is lost.

        The first reset and the first step show which adjustments all of them need.

        Done entries are reshaped to their specs, as rewards are, so that an environment may return ``done=True``.
        Values are cast to the dtype of their spec if that is floating, or holds all values of their dtype.

        Args:
            data: the data that the environment returned.
            what: ``"reset"`` or ``"step"``.
            casts: whether to cast.
        """
        if what not in self._adjustments:
            self._adjustments[what] = self._found_adjustments(data, what, casts and self.casts)
        for key, shape, dtype in self._adjustments[what]:
            value = data.get(key)
            if shape is not None:
                value = value.reshape(data.batch_size + shape)
            data.set(key, value if dtype is None else value.to(dtype))

    def _found_adjustments(self, data: TensorDictBase, what: str, casts: bool) -> list[_Leaf]:
        adjustments: list[_Leaf] = []
        leaves = [*self.observations, *self.dones, *(self.rewards if what == "step" else [])]
        for key, shape, dtype in leaves if self._adjusts else []:
            try:
                value = data.get(key, None)
            except RuntimeError:  # rows of a lazy stack that cannot be read as one tensor
                continue
            if not isinstance(value, torch.Tensor) or shape is None or dtype is None:
                continue
            is_done = any(key in group.keys for group in self.groups)
            reshaped = is_done and value.shape != data.batch_size + shape
            reshaped = reshaped and value.numel() == (data.batch_size + shape).numel()
            cast = casts and value.dtype is not dtype and _holds(dtype, value.dtype)
            if reshaped or cast:
                adjustments.append((key, shape if reshaped else None, dtype if cast else None))
        return adjustments

    def complete(self, following: TensorDictBase) -> None:
        """Complete the done entries, and reshape rewards to their specs."""
        if not isinstance(following, TensorDictBase):
            raise SpecError(
                f"{self.name}._step must return a TensorDict, found {type(following).__name__}. Write: return "
                "TensorDict({...}, batch_size=self.batch_size)"
            )
        complete_done(following, self.groups, self.done_spec)
        lead = following.batch_size
        for key, shape, _ in self.rewards:
            reward = find_entry(following, key)
            if reward is None:
                raise SpecError(
                    f"{self.name}._step returned no reward at {key!r}. "
                    f"Found {sorted(map(str, following.keys(include_nested=True, leaves_only=True)))}. Add it to the "
                    "TensorDict that _step returns."
                )
            if shape is None:
                continue
            expected = lead + shape if lead else shape
            if reward.shape != expected and reward.numel() == expected.numel():
                following.set(key, reward.reshape(expected))


def _holds(wanted: torch.dtype, actual: torch.dtype) -> bool:
    if wanted.is_floating_point:
        return not actual.is_complex
    try:
        return torch.promote_types(wanted, actual) is wanted
    except RuntimeError:  # torch promotes no unsigned dtypes but uint8
        return False


def validate(env: EnvAttributes, data: TensorDictBase, root: TensorDictBase | None, what: str) -> None:
    """Compare the data of one reset or step with the specs: keys, dtypes and shapes.

    Args:
        env: the environment.
        data: the result of its ``_reset`` or ``_step``.
        root: the argument of that method.
        what: ``"reset"`` or ``"step"``.

    Raises:
        SpecError: listing every entry that is missing or does not fit.
    """
    name = type(env).__name__
    findings = list(compare(spec_of_data(env, what), data, spare=None, what=what, domains=False))
    if root is not None and root.batch_size != data.batch_size:
        text = f"the data has batch size {tuple(data.batch_size)}, expected {tuple(root.batch_size)}."
        findings.append(Finding("batch", None, text))
    if what == "reset" and root is None:
        findings += rewards_at_reset(env, data)
    if findings:
        hints = dict.fromkeys(env.spec_hint(finding.entry) for finding in findings if finding.key)
        raise SpecError(
            f"{name}.{what} returned data that its specs do not describe: "
            f"{' '.join([*(finding.text for finding in findings), *filter(None, hints)])} "
            "check_env_specs(env) lists all disagreements."
        )


def check_reset_done(fresh: TensorDictBase, groups: list[DoneGroup], masks: Masks, name: str) -> None:
    """Raise a SpecError if a row has ended right after its reset.

    Raises:
        SpecError: a done entry is True; the text says how to allow that.
    """
    for group in groups:
        mask = masks.get(group.prefix)
        for key in group.keys:
            value = fresh.get(key, None)
            if value is None:
                continue
            ended = value
            if mask is not None:
                rows = mask.reshape(mask.shape + (1,) * (value.ndim - mask.ndim)) if mask.ndim <= value.ndim else mask
                ended = value & rows
            if bool(ended.any()):
                raise SpecError(
                    f"{name}.reset: {key!r} is True right after the reset. If episodes of no steps are meant, make the "
                    "environment with allow_done_after_reset=True."
                )
