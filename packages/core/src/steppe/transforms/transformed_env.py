"""TransformedEnv: an environment with transforms."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.envs import EnvBase, Unset
from steppe.errors import NotSupported, SpecError
from steppe.specs import SPEC_KINDS, Composite
from steppe.transforms.base import Transform
from steppe.transforms.compiled.pipeline import leaves
from steppe.transforms.compose import Compose, as_transform, in_order, joined
from steppe.transforms.spec_hints import spec_hint
from steppe.transforms.transformed_steps import TransformedSteps

__all__ = ["AutoResetEnv", "TransformedEnv"]

#: An environment variable, so that workers inherit the setting of the process that starts them.
_UNWRAP = "AUTO_UNWRAP_TRANSFORMED_ENV"
#: Attributes of the base that give access to its data without the transforms; they are not forwarded.
_BYPASSING = (
    "storage",
    "async_step_send",
    "async_step_recv",
    "async_reset_send",
    "async_reset_recv",
)


class TransformedEnv(TransformedSteps):
    """Run transforms on the data that an environment returns and receives.

    Data, specs, batch size and device are those behind the last transform. Attributes that this class does not have are
    forwarded to ``base_env``.

    Nested TransformedEnvs are joined: the base is the inner base, and the transforms are clones of the inner ones,
    followed by the new ones. ``auto_unwrap=False``, or 0 in the environment variable ``AUTO_UNWRAP_TRANSFORMED_ENV``,
    keeps both. Subclasses are never joined, because they may override methods.

    A step has two code paths, with equal data:

    * **rows**: if the base writes rows of arrays and no transform needs TensorDicts, transforms run on these rows,
      without a TensorDict in between; in one call for all rows of a batch, if the environments share their transforms.
      ``no_row_writer_reason`` says why an environment lacks this path. Around a batch, transforms with ``RowHooks``
      run on the rows of its storage.
    * **TensorDicts**: transforms are called with the root and ``next``, one after another. A single ``step`` uses this
      path, unless all transforms have ``RowHooks``.

    Rollouts, collectors and batches use ``row_writer``; ``step`` and ``step_and_maybe_reset`` use ``row_steps``.

    Edge cases:

    * The environment resets itself in the round trip of a step, unless a transform may end an episode
      (``Transform.writes_done``): then the ended rows are reset after the transforms have run. The data is the same.
    * Rows that a mask ``"_step"`` of the caller or of a transform excludes keep their values.
    * ``state_dict``, ``train`` and ``eval`` apply to the transforms. Each transform starts in evaluation mode.

    Args:
        base_env: the environment.
        *transforms: each a :class:`~steppe.transforms.Transform`, a function of a TensorDict, or None for no transform;
            several are applied in order, as a :class:`~steppe.transforms.Compose` of them.
        transform: the same for a single one, by name.
        cache_specs: no effect; specs are always cached until a transform is added or removed.
        auto_unwrap: whether to join nested TransformedEnvs. Default: what the environment variable says.
        device: move ``base_env`` to this device first.
        env: older name of ``base_env``.
        **kwargs: ``spec_locked``, ``run_type_checks`` and ``allow_done_after_reset`` of :class:`~steppe.envs.EnvBase`.

    Raises:
        SpecError: ``base_env`` is no environment, or one of the transforms is none.
        TypeError: transforms are given by name and without.
        StateError: the transform belongs to another environment already.
    """

    steps_others = True

    def __init__(
        self,
        base_env: EnvBase | None = None,
        *transforms: object,
        transform: object = None,
        cache_specs: bool = True,
        auto_unwrap: bool | None = None,
        device: torch.device | str | int | None = None,
        spec_locked: bool = True,
        run_type_checks: bool = False,
        allow_done_after_reset: bool = False,
        env: EnvBase | None = None,
    ) -> None:
        if (base_env is None) == (env is None):
            raise TypeError("TransformedEnv takes one environment: TransformedEnv(base_env, transform).")
        base_env = env if base_env is None else base_env
        if transform is not None and transforms:
            raise TypeError("TransformedEnv: give all transforms in order, or one of them as transform=, and not both.")
        if not isinstance(base_env, EnvBase):
            raise SpecError(
                f"TransformedEnv takes an environment first, found {type(base_env).__name__}. "
                "Make one: make_env('gym:CartPole-v1'), or GymWrapper(env) around one of gymnasium."
            )
        super().__init__(
            spec_locked=spec_locked,
            run_type_checks=run_type_checks or base_env.run_type_checks,
            allow_done_after_reset=allow_done_after_reset,
        )
        self.cache_specs = cache_specs
        parts = [part for part in (*transforms, transform) if part is not None]
        transform_of_env = as_transform(parts[0]) if len(parts) == 1 else Compose(*parts)
        if auto_unwrap is None:
            auto_unwrap = os.environ.get(_UNWRAP, "1").lower() not in ("0", "false")
        if auto_unwrap and type(base_env) is TransformedEnv and type(self) is TransformedEnv:
            transform_of_env = joined(base_env.transform.clone(), transform_of_env)
            base_env = base_env.base_env
        if device is not None and base_env.device != torch.device(device):
            base_env.to(device)
        # Each step reads _base, and attributes that are submodules are slow to read.
        object.__setattr__(self, "_base", base_env)
        self.base_state.uses = base_env.base_state.uses
        self._modules["base_env"] = base_env
        self._set_transform(transform_of_env)

    # -- transforms -----------------------------------------------------------------------------------------------

    def append_transform(self, transform: object) -> TransformedEnv:
        """Add a transform (or a function of a TensorDict) at the end; returns the environment."""
        transform = as_transform(transform)
        self._move_here(transform)
        self._composed().append(transform)
        return self

    def insert_transform(self, index: int, transform: object) -> TransformedEnv:
        """Add a transform before the one at ``index``; returns the environment."""
        transform = as_transform(transform)
        self._move_here(transform)
        self._composed().insert(index, transform)
        return self

    def _composed(self) -> Compose:
        transform = self.transform
        if not isinstance(transform, Compose):
            transform.reset_parent()
            mode = transform.training
            transform = Compose(transform)
            self._set_transform(transform)
            transform.train(mode)
        return transform

    def _set_transform(self, transform: object) -> None:
        transform = as_transform(transform)
        old = self._modules.get("transform")
        if transform is old:
            return
        self._move_here(transform)
        transform.set_container(self)
        if isinstance(old, Transform) and old._owner is self:
            old.reset_parent()
        self._modules["transform"] = transform
        transform.eval()
        self._changed()

    def _move_here(self, transform: Transform) -> None:
        """Move the buffers and parameters of a transform to the device of the data."""
        if self._base._is_described and self._modules.get("transform") is not None:
            device = self.device
        else:
            device = self._base.base_state.device
        if device is not None:
            transform.to(device)

    def _changed(self) -> None:
        """Clear everything that follows from the base and the transforms."""
        self._pipeline = self._known_batch_size = None
        self._known_device = Unset
        self.base_state.specs = {}
        self.transform._forget_parent()
        self.specs_changed()
        if self._base._is_described:
            _ = self.batch_size  # so that a transform that does not fit raises now, not at the first use

    def before(self, transform: Transform) -> TransformedEnv:
        """Return a TransformedEnv of clones of the transforms before ``transform``, on the same base environment."""
        clones: list[Transform] = []
        for part in in_order(self.transform):
            if part is transform:
                break
            if not isinstance(part, Compose):
                clones.append(part.clone())
        return TransformedEnv(self.base_env, Compose(*clones), auto_unwrap=False)

    def clone(self) -> TransformedEnv:
        """Return a TransformedEnv of clones of all transforms, on the same base environment."""
        return TransformedEnv(self.base_env, self.transform.clone(), auto_unwrap=False)

    # -- specs ----------------------------------------------------------------------------------------------------

    def _full_spec(self, kind: str) -> Composite:
        self._keep_up()
        specs = self.base_state.specs
        if kind not in specs:
            transformed = self._compiled.specs
            for name in SPEC_KINDS:
                spec = getattr(transformed, name).clone()
                if self.device is not None and spec.device != self.device:
                    spec = spec.to(self.device)
                specs[name] = spec.lock_() if self.is_spec_locked else spec
        return specs[kind]

    def settle_reward_spec(self, tensordict: TensorDictBase | None = None) -> None:
        """Find out whether the base environment has a reward, if it declares none."""
        self._base.settle_reward_spec(tensordict)

    def settle_specs(self) -> None:
        self.base_state.specs = {}
        self.specs_changed()

    def assign_spec(self, kind: str, spec: object) -> None:
        raise NotSupported(
            f"The specs of a TransformedEnv follow from its base and its transforms. Assign env.base_env.{kind}_spec "
            "and call env.empty_cache(), or append a transform that changes it."
        )

    def spec_hint(self, key: NestedKey) -> str:
        """Return which transform writes an entry that does not match its spec, and the method that declares it."""
        kinds = {"reward": self.reward_keys, "done": self.done_keys}
        kind = next((kind for kind, keys in kinds.items() if key in keys), "observation")
        return spec_hint(list(leaves(self.transform)), key, kind) or self._base.spec_hint(key)

    def add_truncated_keys(self) -> TransformedEnv:
        """Add a ``truncated`` entry at each done level of the base environment without one."""
        self._base.add_truncated_keys()
        self._changed()
        return self

    def empty_cache(self) -> None:
        """Clear the cached specs, because the base environment has changed its specs."""
        self._base.empty_cache()
        self._changed()

    # -- attributes -----------------------------------------------------------------------------------------------

    @property
    def batch_size(self) -> torch.Size:
        """Leading dimensions of all data: the base's, unless a transform changes them."""
        if self._known_batch_size is None:
            self._known_batch_size = torch.Size(self.transform.transform_env_batch_size(self._base.batch_size))
        return self._known_batch_size

    @batch_size.setter
    def batch_size(self, value: object) -> None:
        raise NotSupported(
            "The batch size of a TransformedEnv follows from its base: assign env.base_env.batch_size and call "
            "env.empty_cache(), or append a BatchSizeTransform."
        )

    @property  # type: ignore[misc]
    def device(self) -> torch.device | None:
        """Device of the data: the base's, unless a transform changes it."""
        device: Any = self._known_device
        if device is Unset:
            device = self._known_device = self.transform.transform_env_device(self._base.device)
        return device  # type: ignore[no-any-return]

    @property
    def _is_described(self) -> bool:  # type: ignore[override]
        return self._base._is_described

    @property
    def _batch_locked(self) -> bool:  # type: ignore[override]
        return self._base.batch_locked

    @property
    def _supports_set_state(self) -> bool:  # type: ignore[override]
        return self._base.supports_set_state

    @property
    def env_info_spec(self) -> Composite:
        """Spec of ``reset(env_info=...)`` for each row, taken from the base environment."""
        return self._base.env_info_spec

    @env_info_spec.setter
    def env_info_spec(self, spec: Composite) -> None:
        self._base.env_info_spec = spec

    def infer_env_info(self, values: Mapping[str, object]) -> Composite:
        return self._base.infer_env_info(values)

    @property
    def allow_done_after_reset(self) -> bool:
        """Whether an episode may be done right after its reset."""
        return self.base_state.allow_done_after_reset or self._base.allow_done_after_reset

    @allow_done_after_reset.setter
    def allow_done_after_reset(self, value: bool) -> None:
        self.base_state.allow_done_after_reset = value

    @property  # type: ignore[misc]
    def is_closed(self) -> bool:
        """Whether the environment, or its base, is closed."""
        return self.base_state.is_closed or self._base.is_closed

    def find_elsewhere(self, name: str) -> Any:
        if name.startswith("_") or name in _BYPASSING or "_base" not in vars(self):
            return super().find_elsewhere(name)
        return getattr(self._base, name)

    def set_elsewhere(self, name: str, value: object) -> bool:
        if name in _BYPASSING or not hasattr(self._base, name):
            return False
        setattr(self._base, name, value)
        return True

    def __setattr__(self, name: str, value: Any) -> None:
        # nn.Module stores assigned modules without calling the setter of a property.
        if name == "transform":
            self._set_transform(value)
        elif name == "base_env":
            raise NotSupported(
                "base_env cannot be replaced: make a new TransformedEnv(base_env, env.transform.clone())."
            )
        else:
            super().__setattr__(name, value)

    def register_collector(self, collector: Any) -> None:
        """Remember, weakly, the collector that steps this environment: ``transform.parent.collector``."""
        self._base.register_collector(collector)

    @property
    def collector(self) -> Any:
        """The collector that steps this environment, or None."""
        return self._base.collector

    # -- seeds and actions ----------------------------------------------------------------------------------------

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        """Seed the base environment, the transforms and random actions; returns the next seed, as the base says."""
        self.seed_actions(seed)
        self.transform._set_seed(seed)
        return self._base.set_seed(seed, static_seed)

    def _set_seed(self, seed: int | None) -> None:
        self.transform._set_seed(seed)
        self._base.set_seed(seed)

    @property  # type: ignore[misc]
    def action_masks(self) -> Mapping[NestedKey, NestedKey]:
        """The masks of the actions: the base declares them, and transforms rename, replace or add some."""
        masks, declared = self._base.action_masks, self.transform.action_masks
        if not masks and not declared:
            return masks
        # Comparing specs takes long, and random actions ask in each step.
        known: dict[object, Mapping[NestedKey, NestedKey]] = self.cached("action_masks", dict)
        place = (tuple(masks.items()), tuple(declared.items()))
        if place not in known:
            for link in self._compiled.chain:
                masks = link.part.masks_behind(masks, link)
            known[place] = masks
        return known[place]

    @property
    def _draws_inside(self) -> bool:
        """Whether the base environment overrides ``rand_action``, and no transform changes or masks its actions."""
        if not self._base.chooses_random_actions or self.transform.action_masks:
            return False
        return not self._compiled.inverses or self.full_action_spec == self._base.full_action_spec

    def _drawn_inside(self, tensordict: TensorDictBase | None, rows: torch.Tensor | None) -> TensorDictBase:
        if rows is None or tensordict is None:
            return self._base.rand_action(tensordict)
        return self._base.rand_action_at(tensordict, rows)

    # -- life -----------------------------------------------------------------------------------------------------

    def check_in_batch(self) -> None:
        """Check that all transforms work inside a batch; called by the batch.

        Raises:
            NotSupported: a transform does not; the text names it.
        """
        self.transform._check_batched_worker_compat()

    def set_missing_tolerance(self, mode: bool = False) -> ExitStack:
        """Let the transforms skip missing entries, or not; see :meth:`Transform.set_missing_tolerance`."""
        restore: ExitStack = self.transform.set_missing_tolerance(mode)
        return restore

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state of the transforms."""
        return self.transform.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Restore the state of the transforms."""
        return self.transform.load_state_dict(state_dict, *args, **kwargs)

    def train(self, mode: bool = True) -> TransformedEnv:
        """Set the training mode of the transforms, which start in evaluation mode."""
        if "transform" in self._modules:
            self.transform.train(mode)
        return self

    def to(self, device: Any) -> TransformedEnv:  # type: ignore[override]
        """Move the base environment and the transforms; returns the environment."""
        self._base.to(device)
        self.transform.to(device)
        self._changed()
        return self

    def compile(self, warmup: int | None = None, **kwargs: Any) -> TransformedEnv:  # type: ignore[override]
        """Compile the step of the base environment; see :meth:`~steppe.envs.EnvBase.compile`."""
        self._base.compile(warmup, **kwargs)
        return self

    def eager(self) -> TransformedEnv:
        """Undo :meth:`compile`; returns the environment."""
        self._base.eager()
        return self

    def close(self, *, raise_if_closed: bool = False) -> None:
        """Close the base environment and the transforms. Calling it again does nothing."""
        was_closed = self.base_state.is_closed
        super().close(raise_if_closed=raise_if_closed)
        if not was_closed:
            self._base.close(raise_if_closed=False)
            self.transform.close()

    def __copy__(self) -> TransformedEnv:
        """Return a copy of the base environment with clones of the transforms."""
        twin: TransformedEnv = type(self).__new__(type(self))
        base = copy.copy(self._base)
        modules = {"base_env": base, "transform": self.transform.clone()}
        twin.__setstate__({**self.__getstate__(), "_base": base, "_modules": modules})
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state["_pipeline"], state["base_state"].specs = None, {}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.base_state.uses = self._base.base_state.uses
        self.transform.set_container(self)

    def __repr__(self) -> str:
        lines = f"env={self._base!r},\ntransform={self.transform!r}".replace("\n", "\n    ")
        return f"TransformedEnv(\n    {lines})"


class AutoResetEnv(TransformedEnv):
    """Same as :class:`TransformedEnv`, under TorchRL's name for one with an ``AutoResetTransform`` (steppe-time)."""
