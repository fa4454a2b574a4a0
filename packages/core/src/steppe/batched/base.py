"""BatchedEnv: many environments as one, whichever process they are in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.batched.creator import factories_of
from steppe.batched.dispatch import HAS, Dispatched
from steppe.batched.messages import stack_rows
from steppe.envs import EnvBase, next_seed
from steppe.errors import ActionError, NotSupported, SpecError
from steppe.specs import Composite
from steppe.storage import Storage, TensorDictBuilder, build_td, entries, storage_problem

__all__ = ["KINDS", "BatchedEnv"]

# Asked of whatever may be an environment, to learn what it is: a batch is not what its rows are.
_OF_ONE_ENV = frozenset(
    {"array_plan", "array_program", "step_into", "reset_into", "take_seed", "base_env", "transform", "num_workers"}
)

KINDS = ("observation", "reward", "done", "action", "state")


class BatchedEnv(EnvBase):
    """``num_workers`` environments as one, batch size ``[num_workers]``.

    Environments are made at the first use (or by ``start``). Each writes its row of one storage; what a caller gets is
    a copy, and never changes. Environments whose data has no fixed place (text, sizes that vary) exchange rows as
    TensorDicts instead: slower, and the same data.

    Attributes and methods of the environments are reached through the batch: ``a, b = env.g`` reads ``g`` of two
    environments, ``env.render()`` calls a method of each.

    Args:
        num_workers: how many environments.
        create_env_fn: an id, a callable that makes an environment, an :class:`EnvCreator`, or a list of these, one for
            each environment. All must have equal specs and no batch of their own.
        create_env_kwargs: keyword arguments for the factory, one dict or a list of them.
        device: where data comes out.

    Raises:
        SpecError: a number or a factory is wrong.
        NotSupported: the environments' specs differ, or one is a batch itself.
    """

    def __init__(
        self, num_workers: int, create_env_fn: Any, *, create_env_kwargs: Any = None, device: Any = None
    ) -> None:
        if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 1:
            raise SpecError(f"num_workers is a whole number >= 1, found {num_workers!r}.")
        super().__init__(batch_size=(num_workers,), device=device)
        self.__dict__["_factories"] = factories_of(create_env_fn, num_workers, create_env_kwargs)
        self.__dict__["num_workers"] = num_workers
        self.__dict__["_running"] = False
        self.__dict__["_buffered"] = True

    # -- what the two classes do differently ---------------------------------------------------------------------

    def _open(self) -> Any:
        raise NotImplementedError

    def _run(self, op: str, rows: list[int] | None, infos: list[Any] | None = None) -> int:
        raise NotImplementedError

    def _ask(self, path: tuple[str, ...], calls: list[Any]) -> list[Any]:
        raise NotImplementedError

    # -- the environments' own attributes -------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_") or name in _OF_ONE_ENV or self.__dict__.get("is_closed", True):
                raise
        if not all(self._ask((HAS, name), [None] * self.num_workers)):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}, and neither have its environments.")
        return Dispatched(self, (name,))

    # -- layout ---------------------------------------------------------------------------------------------------

    def start(self) -> BatchedEnv:
        """Make the environments, unless they are there."""
        if not self._running:
            self._check_open("start")
            self.__dict__["_running"] = True
            try:
                self._open()
            except BaseException:
                self.__dict__["_running"] = False
                raise
        return self

    def _full_spec(self, kind: str) -> Composite:
        specs = self.__dict__.setdefault("_specs", {})
        if kind not in specs:
            self.start()
        return specs[kind]

    def _adopt_specs(self, spec_of: Callable[[str], Composite], n: int) -> None:
        for kind in KINDS:
            spec = spec_of(kind)
            self._assign_spec(kind, spec.expand(torch.Size((n, *spec.shape))))

    @staticmethod
    def _check_alike(specs: list[Any], sizes: list[Any]) -> None:
        """Refuse what a batch of equal rows cannot hold."""
        for row, size in enumerate(sizes):
            if tuple(size):
                raise NotSupported(
                    f"Environment {row} is a batch itself, {tuple(size)}. Give one environment to each row, or use it "
                    "without a batch around it."
                )
        for row, spec in enumerate(specs):
            for kind in KINDS:
                if spec[kind] != specs[0][kind]:
                    raise NotSupported(
                        f"Environments 0 and {row} differ in their {kind} specs, and a batch has equal rows: "
                        f"{specs[0][kind]} and {spec[kind]}."
                    )

    def _lay_out(self, spec: dict[str, Composite]) -> Composite | None:
        """The spec of a row of storage, or None where data has no fixed place and travels in messages."""
        self._adopt_specs(lambda kind: spec[kind], self.num_workers)
        row = self._row_spec(lambda kind: spec[kind])
        self.__dict__["_buffered"] = storage_problem(row) is None
        return row if self._buffered else None

    def _row_spec(self, spec_of: Callable[[str], Composite]) -> Composite:
        root: dict[str, Any] = {}
        following: dict[str, Any] = {}
        for kind in ("observation", "state", "done", "action"):
            merge(root, spec_of(kind))
        for kind in ("observation", "reward", "done"):
            merge(following, spec_of(kind))
        return Composite({**root, "next": Composite(following)})

    def _use(self, storage: Storage, was_reset: Any, *, on_arrays: bool) -> None:
        state = self.__dict__
        state["_storage"], state["_was_reset"] = storage, was_reset
        # Array environments read nothing but the action; for others a step is a function of the whole root.
        carried = () if on_arrays else (*self.state_keys, *self.observation_keys, *self.done_keys)
        keys = dict.fromkeys((*self.action_keys, *carried))
        state["_inputs"] = [(key, storage.arrays[key], storage.tensors[key]) for key in keys]
        obs, done, reward = self.observation_keys, self.done_keys, self.reward_keys
        state["_root_out"] = [(key, storage.arrays[key]) for key in (*obs, *done)]
        state["_reset_masks"] = [was_reset.reshape((-1,) + (1,) * (array.ndim - 1)) for _, array in state["_root_out"]]
        state["_next_out"] = [(key, storage.arrays[below(key)]) for key in (*obs, *reward, *done)]
        root_spec = {}
        merge(root_spec, self.full_observation_spec), merge(root_spec, self.full_done_spec)
        next_spec = {}
        for kind in ("observation", "reward", "done"):
            merge(next_spec, self._full_spec(kind))
        flat = all(isinstance(key, str) for key in (*obs, *done, *reward))
        state["_flat"] = flat
        state["_build_root"] = TensorDictBuilder(Composite(root_spec, shape=self.batch_size), device=self.device)
        state["_build_next"] = TensorDictBuilder(Composite(next_spec, shape=self.batch_size), device=self.device)
        specs = {key: self.full_action_spec[key] for key in self.action_keys}
        state["_action_checks"] = [(key, spec.shape, spec.dtype) for key, spec in specs.items()]

    def _forget_storage(self) -> None:
        for name in ("_storage", "_was_reset", "_inputs", "_root_out", "_reset_masks", "_next_out"):
            self.__dict__.pop(name, None)

    # -- data -----------------------------------------------------------------------------------------------------

    def _write_inputs(self, tensordict: TensorDictBase) -> None:
        level = entries(tensordict) if type(tensordict) is TensorDict else None
        for key, shape, dtype in self._action_checks:
            value = level.get(key) if level is not None and type(key) is str else tensordict.get(key, None)
            if value is None:
                raise self._missing_action(tensordict, key)
            if value.shape != shape or value.dtype is not dtype:
                raise ActionError(
                    f"The action {key!r} must have shape {tuple(shape)} and dtype {dtype}, "
                    f"found {tuple(value.shape)} and {value.dtype}."
                )
        for key, array, tensor in self._inputs:
            value = level.get(key) if level is not None and type(key) is str else tensordict.get(key, None)
            if value is None:
                continue
            if value.requires_grad or value.device.type != "cpu":
                tensor.copy_(value.detach())
            else:
                array[...] = value.numpy()

    def _next_td(self) -> tuple[TensorDict, dict[Any, Any]]:
        flat = {key: torch.from_numpy(array.copy()) for key, array in self._next_out}
        if self._flat:
            return build_td(dict(flat), self.batch_size, None), flat
        return self._build_next(flat), flat

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        self.start()
        mask = tensordict.get("_step", None)
        rows = None if mask is None else mask.reshape(-1).nonzero().squeeze(-1).tolist()
        if not self._buffered:
            return self._stacked("step", tensordict.exclude("_step"), rows)[0]
        self._write_inputs(tensordict)
        self._run("step", rows)
        following = self._next_td()[0]
        before = tensordict.get("next", None)
        if before is not None:
            # A policy writes the state that it hands on (a recurrent one, say) itself: the environment only carries it.
            for key in self.state_keys:
                written = before.get(key, None)
                if written is not None:
                    following.set(key, written)
        return following

    def _stacked(
        self, op: str, tensordict: TensorDictBase | None, rows: list[int] | None = None
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Exchange rows in messages; ``next`` and the following root. Rows that were left out repeat another's."""
        wanted = list(range(self.num_workers)) if rows is None else rows
        data = {row: None if tensordict is None else tensordict[row].exclude("next") for row in wanted}
        found = self._exchange(op, data)
        filled = [found[row if row in found else wanted[0]] for row in range(self.num_workers)]
        following, root = zip(*filled, strict=True)
        return (
            following[0] if following[0] is None else stack_rows(list(following)),
            root[0] if root[0] is None else stack_rows(list(root)),
        )

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        self.start()
        mask = tensordict.get("_reset", None) if tensordict is not None else None
        rows = list(range(self.num_workers)) if mask is None else mask.reshape(-1).nonzero().squeeze(-1).tolist()
        if not self._buffered:
            return self._stacked("reset", None, rows)[1]
        self._run("reset", rows)
        return self._build_root({key: torch.from_numpy(array.copy()) for key, array in self._root_out})

    def step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        if "step" not in self._validated or "_step" in tensordict.keys() or "next" in tensordict.keys():
            return super().step_and_maybe_reset(tensordict)
        self._check_open("step")
        if not self._buffered:
            self._expectation.check_action(tensordict)
            following, root = self._stacked("step_and_reset", tensordict)
            tensordict.set("next", following)
            return tensordict, root
        self._write_inputs(tensordict)
        n_reset = self._run("step_and_reset", None)
        following, flat = self._next_td()
        tensordict.set("next", following)
        root = self.step_mdp(tensordict)
        if n_reset:
            level = entries(root) if type(root) is TensorDict and not root.is_locked else None
            for (key, array), rows in zip(self._root_out, self._reset_masks, strict=True):
                whole = torch.from_numpy(np.where(rows, array, flat[key].numpy()))
                if level is not None and type(key) is str:
                    level[key] = whole
                else:
                    root.set(key, whole)
        return tensordict, root

    @property
    def storage(self) -> Storage | None:
        """Root and ``("next", ...)`` rows ``[num_workers]`` of the last step; None before the first reset."""
        return self.__dict__.get("_storage")

    def step_in_storage(self, tensordict: TensorDictBase) -> np.ndarray[Any, Any] | None:
        """Do what ``step_and_maybe_reset`` does, but leave the data in ``storage``.

        Args:
            tensordict: root data with the action.

        Returns:
            Which rows were reset, ``[num_workers]`` bool, valid until the next step, or None for none. Storage then has
            their first data at the root; the other rows of its root are of no use.
        """
        self._check_open("step")
        self._write_inputs(tensordict)
        return self._was_reset if self._run("step_and_reset", None) else None

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        self.start()
        self._seed_actions(seed)
        seeds: list[Any] = []
        current = seed
        for _ in range(self.num_workers):
            seeds.append(current)
            current = current if static_seed or current is None else next_seed(current)
        self._seed_rows(seeds)
        return current


def merge(target: dict[str, Any], spec: Composite) -> None:
    """Add the entries of ``spec``; groups that both have are joined."""
    for name, child in spec.items():
        mine = target.get(name)
        if isinstance(mine, Composite) and isinstance(child, Composite):
            joined = dict(mine.items())
            merge(joined, child)
            target[name] = Composite(joined, shape=mine.shape)
        else:
            target[name] = child


def below(key: Any) -> tuple[str, ...]:
    """The key under ``next``."""
    return ("next", *((key,) if isinstance(key, str) else key))
