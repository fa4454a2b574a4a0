"""TransformedEnv: an environment seen through transforms."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import ArrayPath, ArrayPlan, EnvBase
from steppe.errors import NotSupported, SpecError, StateError
from steppe.specs import Composite
from steppe.storage import entries
from steppe.transforms.arrays import TransformedPlan
from steppe.transforms.base import Transform
from steppe.transforms.compose import Compose, as_transform
from steppe.transforms.pipeline import Pipeline, leaves

__all__ = ["TransformedEnv"]

#: What a base has for callers that look at its data directly, where no transform has been.
_BYPASSING = (
    "storage",
    "step_in_storage",
    "async_step_send",
    "async_step_recv",
    "async_reset_send",
    "async_reset_recv",
)
_KINDS = ("observation", "reward", "done", "action", "state")


class TransformedEnv(ArrayPath):
    """An environment, and transforms of what it returns and is given.

    Data, specs, batch size and device are those behind the last transform. Attributes that this class does not have are
    those of ``base_env``.

    A TransformedEnv of a TransformedEnv is made into one: its base is the inner base, and its transforms are clones of
    the inner ones followed by the new ones.

    What happens at the edges:

    * the environment resets itself in the same trip as a step, unless a transform may end an episode
      (``Transform.writes_done``): then the rows that ended are reset after the transforms have run. Data is the same.
    * rows that are left out by a mask ``"_step"``, of the caller or of a transform, keep their values.
    * ``state_dict``, ``train`` and ``eval`` are about the transforms.

    Args:
        base_env: the environment.
        transform: a :class:`~steppe.transforms.Transform`, a function of a TensorDict, or None for no change.
        cache_specs: for compatibility; specs are always worked out once, until a transform is added or taken away.
        auto_unwrap: False keeps a TransformedEnv that is given as base.
        device: move ``base_env`` there first.
        **kwargs: ``spec_locked``, ``run_type_checks`` and ``allow_done_after_reset`` of :class:`~steppe.envs.EnvBase`.

    Raises:
        SpecError: ``base_env`` is no environment, or ``transform`` no transform.
        StateError: the transform belongs to another environment already.
    """

    def __init__(
        self,
        base_env: EnvBase,
        transform: Any = None,
        cache_specs: bool = True,
        *,
        auto_unwrap: bool | None = None,
        device: Any = None,
        spec_locked: bool = True,
        run_type_checks: bool = False,
        allow_done_after_reset: bool = False,
    ) -> None:
        if not isinstance(base_env, EnvBase):
            raise SpecError(f"TransformedEnv takes an environment first, found {type(base_env).__name__}.")
        super().__init__(
            spec_locked=spec_locked, run_type_checks=run_type_checks, allow_done_after_reset=allow_done_after_reset
        )
        own = Compose() if transform is None else as_transform(transform)
        if isinstance(base_env, TransformedEnv) and auto_unwrap is not False:
            inner = [part.clone() for part in leaves(base_env.transform)]
            base_env = base_env.base_env
            if inner:
                own = own if isinstance(own, Compose) else Compose(own)
                for part in reversed(inner):
                    own.insert(0, part)
        if device is not None and base_env.device != torch.device(device):
            base_env.to(device)
        # Attributes that are modules are slow to reach; each step needs this one.
        self.__dict__["_base"] = base_env
        self._modules["base_env"] = base_env
        self._set_transform(own)
        if type(base_env).rand_action is not EnvBase.rand_action or "rand_action" in base_env.__dict__:
            self.__dict__["rand_action"] = self._rand_action_of_base

    # -- transforms -----------------------------------------------------------------------------------------------

    def append_transform(self, transform: Any) -> TransformedEnv:
        """Add a transform (or a function of a TensorDict) behind the others; returns the environment."""
        self._composed().append(transform)
        return self

    def insert_transform(self, index: int, transform: Any) -> TransformedEnv:
        """Add a transform before the one at ``index``; returns the environment."""
        self._composed().insert(index, transform)
        return self

    def empty_transform(self) -> TransformedEnv:
        """Take all transforms away; returns the environment."""
        self.transform = Compose()
        return self

    def _composed(self) -> Compose:
        transform = self.transform
        if not isinstance(transform, Compose):
            transform.reset_parent()
            transform = Compose(transform)
            self._set_transform(transform)
        return transform

    def _set_transform(self, transform: Any) -> None:
        transform = as_transform(transform)
        old = self._modules.get("transform")
        if transform is old:
            return
        transform.set_container(self)
        if isinstance(old, Transform) and old._owner is self:
            old.reset_parent()
        self._modules["transform"] = transform
        transform.eval()
        self._changed()

    def _changed(self) -> None:
        """Work out again what follows from the base and the transforms."""
        state = self.__dict__
        base, transform = state["_base"], self._modules["transform"]
        state["_batch_size"] = torch.Size(transform.transform_env_batch_size(base.batch_size))
        state["_device"] = transform.transform_env_device(base.device)
        state["_pipeline"] = None
        state["_specs"] = {}
        transform._forget_parent()
        self._specs_changed()

    def before(self, transform: Transform) -> TransformedEnv:
        """Return a TransformedEnv of clones of the transforms before ``transform``, on the same base environment."""
        clones: list[Any] = []
        for part in _in_order(self.transform):
            if part is transform:
                break
            if not isinstance(part, Compose):
                clones.append(part.clone())
        return TransformedEnv(self.base_env, Compose(*clones), auto_unwrap=False)

    def clone(self) -> TransformedEnv:
        """Return a TransformedEnv of clones of all transforms, on the same base environment."""
        return TransformedEnv(self.base_env, self.transform.clone(), auto_unwrap=False)

    # -- specs ----------------------------------------------------------------------------------------------------

    @property
    def _compiled(self) -> Pipeline:
        pipeline: Pipeline | None = self.__dict__["_pipeline"]
        if pipeline is None:
            pipeline = self.__dict__["_pipeline"] = Pipeline(self._base, self.transform)
        return pipeline

    def _full_spec(self, kind: str) -> Composite:
        self._keep_up()
        specs: dict[str, Composite] = self.__dict__["_specs"]
        if kind not in specs:
            found = self._compiled.specs
            for name in _KINDS:
                spec = getattr(found, name).clone()
                if self.device is not None and spec.device != self.device:
                    spec = spec.to(self.device)
                specs[name] = spec.lock_() if self.is_spec_locked else spec
        return specs[kind]

    def _assign_spec(self, kind: str, spec: Any) -> None:
        raise NotSupported(
            f"The specs of a TransformedEnv follow from its base and its transforms. Assign env.base_env.{kind}_spec "
            "and call env.empty_cache(), or append a transform that changes it."
        )

    def add_truncated_keys(self) -> TransformedEnv:
        """Add a ``truncated`` entry at each done level of the base environment that lacks one."""
        self._base.add_truncated_keys()
        self._changed()
        return self

    def empty_cache(self) -> None:
        """Work the specs out again, after those of the base environment have changed."""
        self._base.empty_cache()
        self._changed()

    # -- attributes -----------------------------------------------------------------------------------------------

    @property
    def _base(self) -> EnvBase:
        base: EnvBase = self.__dict__["_base"]
        return base

    @property
    def batch_size(self) -> torch.Size:
        """Leading dimensions of all data: those of the base environment, unless a transform changes them."""
        size: torch.Size = self.__dict__.get("_batch_size", torch.Size(()))
        return size

    @batch_size.setter
    def batch_size(self, value: Any) -> None:
        raise NotSupported(
            "The batch size of a TransformedEnv follows from its base: assign env.base_env.batch_size and call "
            "env.empty_cache(), or append a BatchSizeTransform."
        )

    @property
    def _batch_locked(self) -> bool:  # type: ignore[override]
        return self._base.batch_locked

    @property
    def env_info_spec(self) -> Composite:
        """What ``reset(env_info=...)`` may be given for each row: that of the base environment."""
        return self._base.env_info_spec

    @env_info_spec.setter
    def env_info_spec(self, spec: Composite) -> None:
        self._base.env_info_spec = spec

    @property
    def allow_done_after_reset(self) -> bool:
        """Whether an episode may have ended when it begins."""
        return bool(self.__dict__["allow_done_after_reset"] or self._base.allow_done_after_reset)

    @allow_done_after_reset.setter
    def allow_done_after_reset(self, value: bool) -> None:
        self.__dict__["allow_done_after_reset"] = value

    @property
    def is_closed(self) -> bool:
        """Whether the environment, or its base, is closed."""
        return bool(self.__dict__["is_closed"] or self._base.is_closed)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_") or name in _BYPASSING or "_base" not in self.__dict__:
                raise
        return getattr(self.__dict__["_base"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        # A module that is assigned goes past properties.
        if name == "transform":
            self._set_transform(value)
        elif name == "base_env":
            raise NotSupported(
                "base_env cannot be replaced: make a new TransformedEnv(base_env, env.transform.clone())."
            )
        else:
            super().__setattr__(name, value)

    # -- the array path -------------------------------------------------------------------------------------------

    def _make_array_plan(self) -> ArrayPlan | None:
        own = type(self)
        overridden = own._step is not TransformedEnv._step or own._reset is not TransformedEnv._reset
        if overridden or "_step" in self.__dict__ or "_reset" in self.__dict__ or self._compiled.program is None:
            return None
        self._check_disjoint()
        self.__dict__["array_program"] = self._compiled.program
        return TransformedPlan(self)

    def step_into(self, action: Any, out: dict[Any, Any]) -> tuple[bool, bool]:
        """Act, as :meth:`steppe.envs.ArrayEnv.step_into` does; only where ``array_plan`` is not None."""
        terminated_truncated: tuple[bool, bool] = self.__dict__["array_program"].step_into(action, out)
        return terminated_truncated

    def reset_into(self, out: dict[Any, Any], seed: int | None, env_info: dict[str, Any] | None) -> None:
        """Begin an episode, as :meth:`steppe.envs.ArrayEnv.reset_into` does."""
        self.__dict__["array_program"].reset_into(out, seed, env_info)

    def take_seed(self) -> int | None:
        """Return the seed that ``set_seed`` left for the next reset, once."""
        base: Any = self._base
        seed: int | None = base.take_seed()
        return seed

    def _run_rollout(self, plan: Any) -> TensorDictBase:
        if self.array_plan is not None and not plan.start.batch_size:
            self.array_program.load(plan.start)
        return super()._run_rollout(plan)

    def reset(self, tensordict: TensorDictBase | None = None, *, env_info: Any = None, **kwargs: Any) -> TensorDictBase:
        self._keep_up()
        return super().reset(tensordict, env_info=env_info, **kwargs)

    def _cached(self, name: str, make: Any) -> Any:
        pipeline = self.__dict__["_pipeline"]
        if pipeline is not None and self.__dict__["_base"].__dict__.get("_spec_cache") is not pipeline.base_cache:
            self._changed()
        return super()._cached(name, make)

    def _keep_up(self) -> None:
        """Notice that the specs of the base have changed, or that it has left the array path."""
        pipeline = self.__dict__["_pipeline"]
        base = self.__dict__["_base"]
        if pipeline is None:
            return
        if base.__dict__.get("_spec_cache") is not pipeline.base_cache or (
            pipeline.program is not None and base.array_plan is None
        ):
            self._changed()

    # -- steps and resets -----------------------------------------------------------------------------------------

    def _whole_step(self, tensordict: TensorDictBase) -> TensorDictBase:
        # What the base has checked is not checked again, once a first step has shown what the transforms make of it.
        state = self.__dict__
        if "step" in state["_validated"] and not state["run_type_checks"] and not self._compiled.inverses:
            return self._step(tensordict)
        return super()._whole_step(tensordict)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        pipeline = self.__dict__["_pipeline"] or self._compiled
        if not pipeline.inverses:
            following = self._base_next(pipeline, tensordict)
            for step, _ in pipeline.steps:
                following = step(tensordict, following)
            return following
        views = pipeline.views(tensordict)
        if pipeline.writes_step:
            mask, written = tensordict.get("_step", None), views[-1].get("_step", None)
            if written is not mask:
                written = self._step_mask(tensordict, written)
                return self._step_some(views, written if mask is None else written & mask)
        return pipeline.outward(views, self._base_next(pipeline, views[-1]))

    def _step_some(self, views: list[TensorDictBase], mask: torch.Tensor) -> TensorDictBase:
        """A step in which a transform leaves rows out: nothing is run on these."""
        tensordict = views[0]
        if not bool(mask.any()):
            return self._unstepped(tensordict)
        partial = not bool(mask.all())
        pipeline = self._compiled
        for i, view in enumerate(views):
            views[i] = view.exclude("_step")
            if partial:
                views[i].set("_step", mask)
        following = pipeline.outward(views, self._base_next(pipeline, views[-1]))
        if not partial:
            return following
        return self._merge_rows(mask, following, self._unstepped(tensordict))

    def _base_next(self, pipeline: Pipeline, given: TensorDictBase) -> TensorDictBase:
        base = self.__dict__["_base"]
        if "_step" in (entries(given) if type(given) is TensorDict else given.keys()):
            return base.step(pipeline.without_outputs(given)).get("next")
        if pipeline.plain_step and not base.__dict__["is_closed"]:
            # Its step would do no more than this, and put the result into a copy of the root.
            arrays = base.array_plan if pipeline.array_base else None
            return base._whole_step(given) if arrays is None or given.batch_size else arrays.step(base, given)[0]
        return base.step(pipeline.root(given)).get("next")

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        pipeline = self._compiled
        views = pipeline.reset_views(tensordict)
        given = views[-1]
        fresh = None if pipeline.instead_of_reset is None else pipeline.instead_of_reset(given)
        if fresh is None:
            if given is not None:
                given = pipeline.without_outputs(given)
                if given.get("env_info", None) is not None:
                    kwargs["env_info"] = given.pop("env_info")
            fresh = self._base.reset(given, **kwargs)
        return pipeline.outward_reset(views, fresh)

    def _arrays_of_base(self, tensordict: TensorDictBase) -> ArrayPlan | None:
        """The plan of an array base, where a step is nothing but that and the transforms: what most steps are."""
        state = self.__dict__
        pipeline = state["_pipeline"]
        if (
            pipeline is None
            or not pipeline.array_base
            or pipeline.inverses
            or state.get("_array_plan") is not None
            or type(tensordict) is not TensorDict
        ):
            return None
        base, level = state["_base"].__dict__, entries(tensordict)
        if (
            "next" in level
            or "_step" in level
            or tensordict.batch_size
            or tensordict.is_locked
            or "step" not in state["_validated"]
            or state["run_type_checks"]
            or state["is_closed"]
            or base["is_closed"]
        ):
            return None
        plan: ArrayPlan | None = base.get("_array_plan")
        return plan

    def step(self, tensordict: TensorDictBase) -> TensorDictBase:
        arrays = self._arrays_of_base(tensordict)
        if arrays is None:
            return super().step(tensordict)
        following: TensorDictBase = arrays.step(self.__dict__["_base"], tensordict)[0]
        for step, _ in self.__dict__["_pipeline"].steps:
            following = step(tensordict, following)
        return self._put_next(tensordict, following)

    def step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """Act once, and reset the rows that ended: in one trip, unless a transform decides what has ended."""
        arrays = self._arrays_of_base(tensordict)
        if arrays is not None:
            root = self.step_mdp(self.step(tensordict))
            if self.any_done(root):
                pipeline = self._compiled
                fresh = pipeline.outward_reset(pipeline.reset_views(root), arrays.reset(self._base, None))
                # One environment without a batch: all of it is reset.
                root.pop("_reset")
                root.update(fresh)
            return tensordict, root
        pipeline = self._compiled
        if pipeline.two_trips or "step" not in self._validated or self.run_type_checks or "_step" in tensordict.keys():
            return super().step_and_maybe_reset(tensordict)
        self._check_open("step_and_maybe_reset")
        self._check_batch(tensordict, "step_and_maybe_reset")
        if pipeline.inverses:
            self._expectation.check_action(tensordict)
        views = pipeline.views(tensordict)
        stepped, base_root = self._base.step_and_maybe_reset(pipeline.root(views[-1]))
        following = stepped.get("next")
        ended = pipeline.done_entries(following)
        following = pipeline.outward(views, following)
        if not pipeline.may_end:
            self._check_ends(ended, pipeline.done_entries(following))
        self._put_next(tensordict, following)
        root = self.step_mdp(tensordict)
        if self.any_done(root):
            if pipeline.may_end:
                base_root = self._reset_the_rest(base_root, pipeline.by_key(ended), root)
            fresh = pipeline.outward_reset(pipeline.reset_views(root), pipeline.base_outputs(base_root))
            self._settle_reset(root, fresh)
        return tensordict, root

    @staticmethod
    def _check_ends(before: list[Any], after: list[Any]) -> None:
        for old, new in zip(before, after, strict=True):
            if old is not new and not torch.equal(old.to(new.device), new):
                raise StateError(
                    "A transform wrote 'done' without saying so, after the environment had reset the rows that it "
                    "ended itself. Set writes_done = True in its class."
                )

    def _reset_the_rest(self, base_root: TensorDictBase, found: dict[Any, Any], root: TensorDictBase) -> TensorDictBase:
        """Reset the rows that a transform has ended; those that the base ended, it has reset itself."""
        rest = False
        for group in self._groups:
            mask = root.get(group.reset_key, None)
            if mask is not None:
                mask = mask & ~found[group.key("done")].to(mask.device)
                base_root.set(group.reset_key, mask if base_root.device is None else mask.to(base_root.device))
                rest = rest or bool(mask.any())
        if not rest:
            for group in self._groups:
                base_root.pop(group.reset_key, None)
            return base_root
        return self._base.reset(base_root)

    def step_at(self, tensordict: TensorDictBase, rows: Any) -> TensorDictBase:
        pipeline = self._compiled
        base = self._base
        if type(base).step_at is EnvBase.step_at or pipeline.writes_step or not pipeline.same_batch:
            return super().step_at(tensordict, rows)
        self._check_open("step_at")
        self._expectation.check_action(tensordict)
        views = pipeline.views(tensordict)
        following = base.step_at(pipeline.root(views[-1]), rows).get("next")
        return self._put_next(tensordict, pipeline.outward(views, following))

    def reset_at(self, tensordict: TensorDictBase | None, rows: Any, *, env_info: Any = None) -> TensorDictBase:
        pipeline = self._compiled
        base = self._base
        if type(base).reset_at is EnvBase.reset_at or pipeline.instead_of_reset is not None or not pipeline.same_batch:
            return super().reset_at(tensordict, rows, env_info=env_info)
        self._check_open("reset_at")
        views = pipeline.reset_views(tensordict)
        given = None if views[-1] is None else pipeline.without_outputs(views[-1])
        fresh = pipeline.outward_reset(views, base.reset_at(given, rows, env_info=env_info))
        return fresh if tensordict is None else tensordict.update(fresh)

    # -- seeds and actions ----------------------------------------------------------------------------------------

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        """Seed the base environment, the transforms and random actions; returns the next seed, as the base says."""
        self._seed_actions(seed)
        self.transform._set_seed(seed)
        return self._base.set_seed(seed, static_seed)

    def _set_seed(self, seed: int | None) -> None:
        self.transform._set_seed(seed)
        self._base.set_seed(seed)

    def _rand_action_of_base(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Random actions of a base environment that knows better than its spec which ones are allowed."""
        if self._compiled.inverses and self.full_action_spec != self._base.full_action_spec:
            return EnvBase.rand_action(self, tensordict)
        return self._base.rand_action(tensordict)

    # -- life -----------------------------------------------------------------------------------------------------

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """State of the transforms."""
        return self.transform.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Restore the state of the transforms."""
        return self.transform.load_state_dict(state_dict, *args, **kwargs)

    def train(self, mode: bool = True) -> TransformedEnv:
        """Put the transforms into training mode, or out of it. They start out of it."""
        if "transform" in self._modules:
            self.transform.train(mode)
        return self

    def to(self, device: Any) -> TransformedEnv:
        """Move the base environment and the transforms; returns the environment."""
        self._base.to(device)
        self.transform.to(device)
        self._changed()
        return self

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Close the base environment and the transforms."""
        super().close(raise_if_closed=raise_if_closed)
        self._base.close(raise_if_closed=False)
        self.transform.close()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("array_program", None)
        state["_pipeline"] = None
        state["_specs"] = {}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.transform.set_container(self)

    def __repr__(self) -> str:
        lines = f"env={self._base!r},\ntransform={self.transform!r}".replace("\n", "\n    ")
        return f"TransformedEnv(\n    {lines})"


def _in_order(transform: Transform) -> list[Transform]:
    """A chain with everything in it, each Compose before its parts."""
    found = [transform]
    if isinstance(transform, Compose):
        for part in transform:
            found += _in_order(part)
    return found
