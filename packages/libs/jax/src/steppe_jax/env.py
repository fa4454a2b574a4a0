"""JaxEnv: an environment that is a pair of functions of JAX, for any number of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import LibraryWrapper, RowLayout, layout_problem
from steppe.errors import SpecError
from steppe.specs import CPU, Binary, Composite, MultiOneHot, OneHot, Spec, Unbounded
from steppe.storage import build_td

from .crossing import to_argument, to_data, torch_device, torch_dtype
from .forks import check_not_forked
from .functions import CompiledFunctions, EnvFunctions, StepResult
from .gradients import differentiable_step
from .keys import Keys
from .rows import JaxRows

__all__ = ["JaxEnv"]

_FLAGS = ("done", "terminated", "truncated")

#: What torch has few operations for is in the data as what it has all of, bit by bit: random keys of the state.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}

#: What is observed is a number, which a wider dtype holds (but for the upper half of 64 bits).
_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}

#: A reset of few rows computes as many as this part of the batch holds, so that one size is compiled for all of them.
_SOME = 16


class JaxEnv(LibraryWrapper):
    """An environment that is a pair of functions of JAX, ``reset(key)`` and ``step(state, action)``.

    The state of the library is in one of two places:

    * in the data, below ``"state"``: an entry for each leaf, under its names. Bits of unsigned numbers, as random keys
      are, stand in signed ones, which torch can do more with. Then the environment is a function of its data:
      ``reset(td, set_state=True)`` begins at the state in ``td``, and without a batch size of its own it takes data of
      any. A batch size that is new is compiled for.
    * in the environment, where it stays with JAX. So it is with a batch size by default, and this is the fast way.

    Observed numbers that are unsigned and of 16 bits or more are in wider signed ones.

    Rows are compiled together by ``jax.vmap``, one row too. What a compiled function computes may differ in the last
    digits from what the library computes row by row, or for another number of rows.

    Args:
        functions: the environment.
        action_spec: of one row.
        observation_key: where an observation that is a single array goes; one of several parts has its names.
        observation_specs: of one row, by path, for entries that have bounds; others are ``Unbounded``, or ``Binary``.
        batch_size: how many environments there are; ``()`` for one, or for any number where the state is in the data.
        device: of the data; by default that of JAX, which computes where it computes by itself.
        state_in_data: where the state is; by default in the data without a batch size and with ``requires_grad``.
        requires_grad: gradients flow from state, observations and rewards to state and actions.
        jit: compile the functions.
        **kwargs: for :class:`steppe.EnvBase`.

    Raises:
        SpecError: ``requires_grad`` without the state in the data.
        NotSupported: this process was forked from one that has loaded JAX.
    """

    def __init__(
        self,
        functions: EnvFunctions,
        *,
        action_spec: Spec,
        observation_key: str = "observation",
        observation_specs: Mapping[tuple[str, ...], Spec] | None = None,
        batch_size: Any = (),
        device: Any = None,
        state_in_data: bool | None = None,
        requires_grad: bool = False,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        check_not_forked()
        place = torch_device()
        if device is None and place.type != "cpu":
            device = place
        super().__init__(device=device, batch_size=batch_size, **kwargs)
        if state_in_data is None:
            state_in_data = not self.batch_size or requires_grad
        if requires_grad and not state_in_data:
            raise SpecError(
                "requires_grad=True needs the state in the data, which gradients flow through: leave "
                "state_in_data=False out."
            )
        own = self.__dict__
        own["requires_grad_steps"] = requires_grad
        own["state_in_data"] = own["_supports_set_state"] = state_in_data
        self.batch_locked = bool(self.batch_size) or not state_in_data
        own["functions"] = CompiledFunctions(functions, jit=jit, shows_state=state_in_data)
        own["_own_memory"] = jit
        own["keys"] = Keys()
        own["_rows_state"] = None
        self._make_specs(action_spec, observation_key, dict(observation_specs or {}))

    # -- specs ----------------------------------------------------------------------------------------------------

    def _make_specs(self, action: Spec, name: str, known: dict[tuple[str, ...], Spec]) -> None:
        functions, own = self.functions, self.__dict__
        paths = functions.observation_paths
        reserved = {"state", "action", "reward", "next", *_FLAGS}
        single = paths == [()]
        # The names of an observation's parts stand at the root, unless one of them means something else there.
        prefix = (name,) if single or any(path[0] in reserved for path in paths) else ()
        own["observation_entries"] = [_key((*prefix, *path)) for path in paths]
        own["state_entries"] = [("state", *path) for path in functions.state_paths] if self.state_in_data else []
        leaves = zip(self.observation_entries, paths, functions.observation_leaves, strict=True)
        entries = {key: self._batched(known.get(path) or _shown_spec(leaf)) for key, path, leaf in leaves}
        states = dict(zip(self.state_entries, map(self._state_leaf, functions.state_leaves), strict=False))
        self.observation_spec = self._nested({**entries, **states})
        if states:
            self.state_spec = self._nested(states)
        shape = (*self.batch_size, *functions.reward_shape)
        self.reward_spec = Unbounded(shape=shape, dtype=torch_dtype(functions.reward_dtype), device=self.device)
        self.action_spec = self._batched(action)
        flags = {name: Binary(shape=(*self.batch_size, 1), dtype=torch.bool, device=self.device) for name in _FLAGS}
        self.done_spec = Composite(flags, shape=self.batch_size)
        own["action_entry"] = self.action_keys[0]
        own["_action_shape"] = tuple(functions.functions.action.shape)
        own["_action_dtype"] = torch_dtype(functions.functions.action.dtype)
        own["one_hot_sizes"] = _one_hot_sizes(action)

    def _state_leaf(self, leaf: Any) -> Spec:
        return self._batched(_unknown(tuple(leaf.shape), _signed(torch_dtype(leaf.dtype))))

    def _batched(self, spec: Spec) -> Spec:
        spec = spec.expand(*self.batch_size, *spec.shape) if self.batch_size else spec
        return spec if self.device is None else spec.to(self.device)

    def _nested(self, leaves: Mapping[Any, Spec]) -> Composite:
        spec = Composite({}, shape=self.batch_size, device=self.device)
        for key, leaf in leaves.items():
            spec[key] = leaf
        return spec

    # -- rows -----------------------------------------------------------------------------------------------------

    @property
    def row_problem(self) -> str | None:
        """Why there is no ``row_writer``; None where there is one."""
        if self.state_in_data:
            return "its state is in the data (state_in_data=True)."
        if len(self.batch_size) > 1:
            return f"its batch has {len(self.batch_size)} dimensions."
        problem: str | None = self.cached("row_problem", lambda: layout_problem(self))
        return problem

    @property
    def row_writer(self) -> JaxRows | None:
        """Writes the rows of all environments; None with the state in the data, or on a GPU."""
        if self.row_problem is not None:
            return None
        writer: JaxRows = self.cached("row_writer", lambda: JaxRows(self, RowLayout.of(self)))
        return writer

    # -- native steps ---------------------------------------------------------------------------------------------

    def native_action(self, action: torch.Tensor, n: int) -> torch.Tensor:
        """Actions of the spec, with any leading dimensions, as those of the library, ``[n, ...]``."""
        if self.one_hot_sizes is not None:
            parts = [part.int().argmax(-1) for part in action.reshape(n, -1).split_with_sizes(self.one_hot_sizes, -1)]
            action = torch.stack(parts, -1)
        if action.dtype is not self._action_dtype:
            action = action.to(self._action_dtype)
        return action.reshape((n, *self._action_shape))

    def advance(self, action: torch.Tensor, mask: Any = None) -> StepResult:
        """Step the environments whose state is kept here.

        Args:
            action: native ones, ``[n, ...]``.
            mask: ``[n]`` bool, numpy: which of them act; all by default.

        Returns:
            Arrays of JAX, computed. Rows that did not act hold what they would have become.
        """
        state = self._rows_state
        if state is None:
            self.begin()
            state = self._rows_state
        result: StepResult = self.functions.step(state, to_argument(action))
        new = result.state
        if mask is not None:
            new = self.functions.merge(mask, new, state)
            jax.block_until_ready(new)
        # What one call computes is ready together.
        result.flags.block_until_ready()
        self.__dict__["_rows_state"] = new
        return result

    def begin(self, rows: Sequence[int] | None = None) -> tuple[Any, Any]:
        """Begin episodes in environments whose state is kept here.

        Args:
            rows: which; all by default.

        Returns:
            Rows ``[k]`` int64, and the leaves of their observations ``[k, ...]``, numpy or JAX.
        """
        n, functions = max(1, self.numel()), self.functions
        keys = self.keys.take(n)
        old = self._rows_state
        if rows is None or len(rows) == n or old is None:
            result = functions.reset(keys)
            jax.block_until_ready(result)
            self.__dict__["_rows_state"] = result.state
            return np.arange(n), result.observation
        size = n if n <= 2 * _SOME else max(_SOME, n // _SOME)
        chosen = np.asarray(rows)
        found: list[tuple[Any, ...]] = []
        for first in range(0, len(chosen), size):
            mine = chosen[first : first + size]
            # Filled up with the last row, which is then written several times, with the same values.
            filled = np.concatenate([mine, np.full(size - len(mine), mine[-1], mine.dtype)])
            result = functions.reset(keys[filled])
            old = functions.place(filled, result.state, old)
            jax.block_until_ready((result, old))
            found.append(tuple(np.asarray(leaf)[: len(mine)] for leaf in result.observation))
        self.__dict__["_rows_state"] = old
        return chosen, tuple(np.concatenate(leaves) for leaves in zip(*found, strict=True))

    @property
    def jax_state(self) -> Any:
        """The state of the library that is kept here, a pytree of arrays ``[n, ...]``; None before the first reset."""
        state = self._rows_state
        return None if state is None else self.functions.state_tree(state)

    def native_state(self, tensordict: TensorDictBase | None = None, row: int = 0) -> Any:
        """The state of the library of one row, from the data or as it is kept here, arrays without a batch.

        Args:
            tensordict: data with the state, where the state is in the data.
            row: which row.

        Raises:
            SpecError: there is no state: no data was given, or there was no reset.
        """
        functions, leaves = self.functions, self._rows_state
        if self.state_in_data:
            if tensordict is None or any(tensordict.get(key, None) is None for key in self.state_entries):
                raise SpecError("The state is in the data: pass what reset or step returned.")
            pairs = zip(self.state_entries, functions.state_leaves, strict=True)
            leaves = [to_argument(self._native_state(tensordict.get(key), leaf, -1)) for key, leaf in pairs]
        if leaves is None:
            raise SpecError("There is no state before the first reset: call env.reset().")
        return functions.state_tree([leaf[row] for leaf in leaves])

    # -- the contract ---------------------------------------------------------------------------------------------

    def _tensor(self, array: Any) -> torch.Tensor:
        tensor = to_data(array, self.device)
        return tensor if self._own_memory else tensor.clone()

    def _shown(self, value: Any, lead: torch.Size) -> torch.Tensor:
        """An array or a tensor ``[n, ...]`` as a tensor ``[*lead, ...]``."""
        tensor = value if isinstance(value, torch.Tensor) else self._tensor(value)
        return tensor if len(lead) == 1 else tensor.reshape((*lead, *tensor.shape[1:]))

    def _data(self, lead: torch.Size, result: StepResult) -> TensorDict:
        """``[*lead]`` data of arrays or tensors ``[n, ...]``; without a reward and flags that of a reset."""
        leaves = {}
        for key, one in zip(self.observation_entries, result.observation, strict=True):
            seen = self._shown(one, lead)
            leaves[key] = seen.to(_WIDER[seen.dtype]) if seen.dtype in _WIDER else seen
        for key, one in zip(self.state_entries, result.state, strict=False):
            state = self._shown(one, lead)
            leaves[key] = state.view(_signed(state.dtype)) if state.dtype in _SIGNED else state
        flags: Any
        if result.flags is None:
            place = self.device or CPU
            flags = (torch.zeros((*lead, 1), dtype=torch.bool, device=place) for _ in _FLAGS)
        else:
            leaves["reward"] = self._shown(result.reward, lead)
            flags = result.flags if isinstance(result.flags, torch.Tensor) else self._tensor(result.flags)
            flags = flags if len(lead) == 1 else flags.reshape((3, *lead, 1))
        leaves.update(zip(_FLAGS, flags, strict=True))
        return _nest(leaves, lead, self.device)

    def _reset(
        self, tensordict: TensorDictBase | None = None, *, set_state: bool | None = None, **kwargs: Any
    ) -> TensorDictBase:
        if kwargs:
            raise SpecError(
                f"{type(self).__name__} takes no arguments at reset, found {sorted(kwargs)}. Seed it with "
                "env.set_seed(seed)."
            )
        lead = self.batch_size if tensordict is None else tensordict.batch_size
        if self.state_in_data:
            if set_state:
                assert tensordict is not None
                return self._begun_at(tensordict)
            result = self.functions.reset(self.keys.take(lead.numel()))
            jax.block_until_ready(result)
            return self._data(lead, result._replace(reward=None, flags=None))
        mask = tensordict.get("_reset", None) if tensordict is not None else None
        rows = None
        if mask is not None and not bool(mask.all()):
            rows = mask.reshape(-1).nonzero()[:, 0].tolist()
        at, leaves = self.begin(rows)
        if rows is None or len(at) >= self.numel():
            return self._data(lead, StepResult((), tuple(leaves), None, None))
        data: TensorDictBase = self.full_observation_spec.zero()
        for key, leaf in zip(self.observation_entries, leaves, strict=True):
            tensor = torch.from_numpy(np.array(leaf))
            tensor = tensor.to(_WIDER.get(tensor.dtype, tensor.dtype))
            target = data.get(key).reshape((lead.numel(), *tensor.shape[1:]))
            target[at] = tensor.to(target.device)
            data.set(key, target.reshape((*lead, *tensor.shape[1:])))
        data.update(self.full_done_spec.zero())
        return data

    @staticmethod
    def _native_state(value: torch.Tensor, leaf: Any, n: int) -> torch.Tensor:
        value = value.reshape((n, *leaf.shape))
        dtype = torch_dtype(leaf.dtype)
        return value.view(dtype) if dtype in _SIGNED else value

    def _begun_at(self, tensordict: TensorDictBase) -> TensorDictBase:
        keys = [*self.state_entries, *self.observation_entries]
        missing = [key for key in keys if tensordict.get(key, None) is None]
        if missing:
            raise SpecError(
                f"reset(set_state=True) begins at the state and the observations in the data, which has no {missing}. "
                "Give it what a reset or a step returned."
            )
        data = TensorDict({}, tensordict.batch_size, device=self.device)
        for key in keys:
            data.set(key, tensordict.get(key).clone())
        for name in _FLAGS:
            data.set(name, torch.zeros((*data.batch_size, 1), dtype=torch.bool, device=self.device or CPU))
        return data

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        lead = tensordict.batch_size
        n = lead.numel()
        action = self.native_action(tensordict.get(self.action_entry), n)
        if not self.state_in_data:
            mask = tensordict.get("_step", None)
            acting = None if mask is None else mask.reshape(-1).cpu().numpy()
            return self._data(lead, self.advance(action, acting))
        leaves = zip(self.state_entries, self.functions.state_leaves, strict=True)
        state = [self._native_state(tensordict.get(key), leaf, n) for key, leaf in leaves]
        if self.requires_grad_steps and torch.is_grad_enabled():
            return self._data(lead, differentiable_step(self.functions, state, action))
        result = self.functions.step(tuple(map(to_argument, state)), to_argument(action))
        result.flags.block_until_ready()
        return self._data(lead, result)

    def _set_seed(self, seed: int | None) -> None:
        self.keys.seed(seed)


def _unknown(shape: tuple[int, ...], dtype: torch.dtype) -> Spec:
    return Binary(shape=shape, dtype=dtype) if dtype is torch.bool else Unbounded(shape=shape, dtype=dtype)


def _shown_spec(leaf: Any) -> Spec:
    dtype = torch_dtype(leaf.dtype)
    return _unknown(tuple(leaf.shape), _WIDER.get(dtype, dtype))


def _signed(dtype: torch.dtype) -> torch.dtype:
    return _SIGNED.get(dtype, dtype)


def _nest(leaves: dict[Any, torch.Tensor], lead: torch.Size, device: torch.device | None) -> TensorDict:
    """A TensorDict of leaves whose keys are names or paths."""
    level: dict[str, Any] = {}
    below: dict[str, dict[Any, torch.Tensor]] = {}
    for key, value in leaves.items():
        if isinstance(key, str):
            level[key] = value
        else:
            rest = key[1:]
            below.setdefault(key[0], {})[rest[0] if len(rest) == 1 else rest] = value
    for name, children in below.items():
        level[name] = _nest(children, lead, device)
    return build_td(level, lead, device)


def _key(path: tuple[str, ...]) -> Any:
    return path[0] if len(path) == 1 else path


def _one_hot_sizes(spec: Spec) -> list[int] | None:
    if isinstance(spec, MultiOneHot):  # which is a OneHot too
        return [box.n for box in spec.space]
    return [spec.n] if isinstance(spec, OneHot) else None
