"""ActionMask: draw random actions among those that a mask allows."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import SpecError, StateError
from steppe.specs import Spec
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform, RowHooks, as_key

__all__ = ["ActionMask"]

_KINDS = "OneHot, Categorical, MultiOneHot, MultiCategorical"


class ActionMask(PlannedTransform):
    """Draw random actions that a mask in the data allows.

    The action spec holds the current mask.

    The transform declares the entry as the mask of the action (see :attr:`steppe.EnvBase.action_masks`). The mask is
    ``[*B, n]``, True for each allowed category. It is copied to the spec after each step and reset; rows that are not
    stepped or reset keep their masks in the spec. The spec of a batch of such environments has no mask.

    >>> import torch
    >>> from steppe import ActionMask, Binary, Categorical, TransformedEnv
    >>> from steppe_testing import DataEnv
    >>> base = DataEnv({"action_mask": Binary(shape=(4,), dtype=torch.bool)}, action=Categorical(4))
    >>> env = TransformedEnv(base, ActionMask())
    >>> _ = env.set_seed(0)
    >>> root = env.rand_action(env.reset())
    >>> root["action_mask"], root["action"]
    (tensor([False,  True,  True, False]), tensor(2))

    Args:
        action_key: the key of the action.
        mask_key: the key of the mask.

    Raises:
        SpecError: a key is not a name or a tuple of names, the environment has no such action or mask, or the action is
            not discrete.
    """

    needs_all_rows = True
    needs_env = True
    does = "draws random actions in its environment"
    changed_kinds = ("action",)

    def __init__(self, action_key: NestedKey = "action", mask_key: NestedKey = "action_mask") -> None:
        super().__init__([as_key(action_key), as_key(mask_key)])
        self.out_keys = []
        self.action_key, self.mask_key = self.in_keys

    @property
    def action_masks(self) -> Mapping[NestedKey, NestedKey]:  # type: ignore[override]
        """The mask of the action.

        Empty with ``set_missing_tolerance`` if the environment has no such entry.
        """
        env = self.container
        if self.missing_tolerance and self.mask_key not in (*env.observation_keys, *env.state_keys):
            return {}
        return {self.action_key: self.mask_key}

    @property
    def action_spec(self) -> Spec:
        """The action spec of this transform's environment, with the current mask."""
        env = self.container
        if env is None or not hasattr(env, "full_action_spec"):
            raise StateError(
                "ActionMask copies masks to the action spec of an environment, but has no environment. Append it: "
                "env.append_transform(ActionMask())."
            )
        leaf: Spec = env.full_action_spec[self.action_key]
        return leaf

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        leaf, mask = specs.action.get(self.action_key, None), self._mask_leaf(specs)
        if mask is None and self.missing_tolerance:
            return specs
        if leaf is None or mask is None:
            kind, missing, spec = (
                ("action", self.action_key, specs.action)
                if leaf is None
                else ("mask", self.mask_key, specs.observation)
            )
            keys = list(spec.keys(include_nested=True, leaves_only=True))
            raise SpecError(f"ActionMask: the environment has no {kind} {missing!r}. Found {keys}; pass one of these.")
        if leaf.choice_form is None:
            raise SpecError(
                f"ActionMask masks actions of {_KINDS}, found {leaf}. Discretize a continuous action first: "
                "ActionDiscretizer(n)."
            )
        specs = specs.copy()
        specs.action[self.action_key].update_mask(torch.ones(mask.shape, dtype=torch.bool, device=leaf.device))
        return specs

    def _mask_leaf(self, specs: EnvSpecs) -> Spec | None:
        leaves: list[Spec | None] = [spec.get(self.mask_key, None) for spec in (specs.observation, specs.state)]
        return next((leaf for leaf in leaves if leaf is not None), None)

    def hooks(self, specs: EnvSpecs) -> Hooks:
        if self._mask_leaf(specs) is None:
            return Hooks()
        key = self.mask_key
        masks = [group.reset_key for group in specs.groups]

        def update(td: TensorDictBase | None, data: TensorDictBase, names: list[NestedKey]) -> TensorDictBase:
            changed = [] if td is None else [rows for name in names if (rows := td.get(name, None)) is not None]
            self._update_rows(data.get(key), changed, data.batch_size)
            return data

        return Hooks(
            step=lambda td, following: update(td, following, ["_step"]),
            reset=lambda td, fresh: update(td, fresh, masks),
            reads_root=False,
            rows=self._row_hooks(),
        )

    def _update_rows(self, mask: torch.Tensor, changed: list[torch.Tensor], size: torch.Size) -> None:
        """Copy the mask to the spec in the rows that were stepped or reset.

        Args:
            mask: the mask in the data.
            changed: step or reset masks ``[*size, ...]``; if empty, all rows have changed.
            size: the batch size.
        """
        before = self.action_spec.mask if changed else None  # type: ignore[attr-defined]
        if before is not None and before.numel() == mask.numel():
            before = before.reshape(mask.shape)  # a mask of combinations is flat in the spec
            rows = torch.stack([each.reshape(*size, -1).any(-1) for each in changed]).any(0).to(mask.device)
            rows = rows.reshape(*size, *(1,) * (mask.ndim - len(size)))
            mask = torch.where(rows, mask.to(torch.bool), before.to(mask.device))
        self._update(mask)

    def _update(self, mask: torch.Tensor) -> None:
        leaf = self.action_spec
        leaf.update_mask(mask.to(torch.bool) if leaf.device is None else mask.to(leaf.device, torch.bool))  # type: ignore[attr-defined]

    def _row_hooks(self) -> RowHooks:
        def bind(root: Any, following: Any) -> Any:
            # An environment without a batch size has one row.
            alone = not self.container.batch_size
            after, first = (rows[self.mask_key] for rows in (following, root))
            if alone:
                after, first = after[0], first[0]
            of_step, of_reset = torch.from_numpy(after), torch.from_numpy(first)
            shown = _SpecMask(self)

            def step() -> bool:
                shown.show(after.tobytes(), of_step)
                return False

            def reset(at: Any) -> None:
                if alone:
                    shown.show(first.tobytes(), of_reset)
                    return
                mask = self.action_spec.mask  # type: ignore[attr-defined]
                mask = of_step.clone() if mask is None else mask.clone()
                mask[list(at)] = of_reset[list(at)].to(mask.dtype)
                self._update(mask)

            return step, reset

        return RowHooks(bind, reads=[self.mask_key])

    def _repr_keys(self) -> tuple[str, ...]:
        return ("action_key", "mask_key")


class _SpecMask:
    """Copy a mask to the spec if it has changed since the last copy.

    It also copies the mask if other code has replaced the mask of the spec. Setting a mask takes longer than comparing
    two masks.
    """

    def __init__(self, transform: ActionMask) -> None:
        self._transform = transform
        # A weak reference, because the cache of the environment refers to this object through its rows.
        self._env = weakref.ref(transform.container)
        self._specs: int | None = None
        self._leaf: Any = None
        self._content = b""
        self._mask: Any = None
        self._version = 0

    def show(self, content: bytes, mask: torch.Tensor) -> None:
        """Set the mask of the spec.

        Args:
            content: the bytes of the mask, for the comparison with the last mask.
            mask: the mask.
        """
        specs = self._env().specs_version  # type: ignore[union-attr]
        if specs != self._specs:
            self._leaf, self._mask, self._specs = self._transform.action_spec, None, specs
        leaf, shown = self._leaf, self._mask
        if content == self._content and shown is not None and leaf.mask is shown and shown._version == self._version:
            return
        leaf.update_mask(mask if mask.dtype is torch.bool else mask.to(torch.bool))
        self._content, self._mask = content, leaf.mask
        self._version = self._mask._version
