"""ActionMask: random actions are drawn among those that the environment allows."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.errors import NotSupported, SpecError, StateError
from steppe.specs import Spec
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform, RowHooks, as_key

__all__ = ["ActionMask"]

_KINDS = "OneHot, Categorical, MultiOneHot, MultiCategorical"


class ActionMask(PlannedTransform):
    """Keeps the mask of the action's spec up to date with an entry of the data, after each step and reset.

    It also declares the entry as the mask of the action (see :attr:`steppe.EnvBase.action_masks`), so random actions
    are drawn among those that the mask in the data allows. The mask is ``[*B, n]``, True for each allowed category.
    Rows that are not stepped or reset keep their masks in the spec. The spec of a batch of such environments has no
    mask.

    Args:
        action_key: the action.
        mask_key: the mask.

    Raises:
        SpecError: a key is none, the environment has no such action or mask, or the action is not of a finite kind.
    """

    needs_all_rows = True
    changed_kinds = ("action",)

    def __init__(self, action_key: Any = "action", mask_key: Any = "action_mask") -> None:
        super().__init__([as_key(action_key), as_key(mask_key)])
        self.out_keys = []
        self.action_key, self.mask_key = self.in_keys
        self.action_masks = {self.action_key: self.mask_key}

    @property
    def action_spec(self) -> Spec:
        """The spec of the action, of the environment that this belongs to."""
        env = self.container
        if env is None or not hasattr(env, "full_action_spec"):
            raise StateError(
                "ActionMask keeps the spec of its environment, and belongs to none. Append it to one: "
                "env.append_transform(ActionMask())."
            )
        leaf: Spec = env.full_action_spec[self.action_key]
        return leaf

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        leaf, mask = specs.action.get(self.action_key, None), None
        for spec in (specs.observation, specs.state):
            mask = spec.get(self.mask_key, None) if mask is None else mask
        if mask is None and self.missing_tolerance:
            return specs
        if leaf is None or mask is None:
            kind, missing, spec = (
                ("action", self.action_key, specs.action)
                if leaf is None
                else ("mask", self.mask_key, specs.observation)
            )
            found = list(spec.keys(include_nested=True, leaves_only=True))
            raise SpecError(f"ActionMask: the environment has no {kind} {missing!r}. Found {found}; name one of these.")
        if leaf.choice_form is None:
            raise SpecError(
                f"ActionMask masks actions of {_KINDS}, found {leaf}. A "
                "continuous action can be cut into intervals by ActionDiscretizer."
            )
        specs = specs.copy()
        specs.action[self.action_key].update_mask(torch.ones(mask.shape, dtype=torch.bool, device=leaf.device))
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        key = self.mask_key
        masks = [group.reset_key for group in specs.groups]

        def update(td: TensorDictBase | None, data: TensorDictBase, names: list[Any]) -> TensorDictBase:
            given = [] if td is None else [rows for name in names if (rows := td.get(name, None)) is not None]
            self._update_rows(data.get(key), given, data.batch_size)
            return data

        return Hooks(
            step=lambda td, following: update(td, following, ["_step"]),
            reset=lambda td, fresh: update(td, fresh, masks),
            reads_root=False,
            rows=self._row_hooks(),
        )

    def _update_rows(self, mask: torch.Tensor, given: list[torch.Tensor], size: torch.Size) -> None:
        """Show a mask in the rows that one of the given masks ``[*size, ...]`` names, in all of them without any."""
        before = self.action_spec.mask if given else None  # type: ignore[attr-defined]
        if before is not None and before.shape == mask.shape:
            named = torch.stack([rows.reshape(*size, -1).any(-1) for rows in given]).any(0).to(mask.device)
            named = named.reshape(*size, *(1,) * (mask.ndim - len(size)))
            mask = torch.where(named, mask.to(torch.bool), before.to(mask.device))
        self._update(mask)

    def _update(self, mask: torch.Tensor) -> None:
        leaf = self.action_spec
        leaf.update_mask(mask.to(torch.bool) if leaf.device is None else mask.to(leaf.device, torch.bool))  # type: ignore[attr-defined]

    def _row_hooks(self) -> RowHooks:
        def bind(root: Any, following: Any) -> Any:
            # Rows of a batch, or the one row of an environment without a batch.
            alone = not self.container.batch_size
            after, first = (rows[self.mask_key] for rows in (following, root))
            if alone:
                after, first = after[0], first[0]
            of_step, of_reset = torch.from_numpy(after), torch.from_numpy(first)
            shown = _Shown(self)

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

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Not defined for data that comes from no environment.

        Raises:
            NotSupported: always.
        """
        raise NotSupported("ActionMask keeps the spec of an environment. Append it to the one that collects the data.")

    def _repr_keys(self) -> Any:
        return ("action_key", "mask_key")


class _Shown:
    """The mask that the spec shows, which is written where another one is to be shown, or somebody has changed it."""

    def __init__(self, transform: ActionMask) -> None:
        self._transform = transform
        # Weakly: what is known of the environment has this in it, through the rows that it writes.
        self._env = weakref.ref(transform.container)
        self._specs: int | None = None
        self._leaf: Any = None
        self._content = b""
        self._mask: Any = None
        self._version = 0

    def show(self, content: bytes, mask: torch.Tensor) -> None:
        """Show a mask of this content, by which it is told from others."""
        specs = self._env().specs_version  # type: ignore[union-attr]
        if specs != self._specs:
            self._leaf, self._mask, self._specs = self._transform.action_spec, None, specs
        leaf, shown = self._leaf, self._mask
        if content == self._content and shown is not None and leaf.mask is shown and shown._version == self._version:
            return
        leaf.update_mask(mask if mask.dtype is torch.bool else mask.to(torch.bool))
        self._content, self._mask = content, leaf.mask
        self._version = self._mask._version
