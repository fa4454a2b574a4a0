"""JaxEnv: the base class of environments written as a pair of JAX functions."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import LibraryWrapper, RowLayout, no_layout_reason
from steppe.errors import NotSupported, SpecError
from steppe.specs import CPU, Binary, Composite, Spec, Unbounded
from steppe.storage import build_td

from .fork_check import check_not_forked
from .functions import ArrayLike, CompiledFunctions, EnvFunctions, PyTree, StepResult
from .gradients import differentiable_step
from .jax_writer import JaxWriter
from .random_keys import RandomKeys
from .tensor_conversion import to_argument, to_data, torch_device, torch_dtype

__all__ = ["JaxEnv"]

#: The key of an entry: a name, or a path of names.
_Key: TypeAlias = str | tuple[str, ...]

_FLAGS = ("done", "terminated", "truncated")

#: torch has few operations for wide unsigned dtypes. Leaves of the state (random keys) are reinterpreted bit by bit.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}

#: Observations are numbers, so they are cast to a wider signed dtype. The upper half of uint64 does not fit.
_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}

#: A partial reset computes rows in groups of at least this many, and of at least 1 / this of the batch. All partial
#: resets then have one size, so the reset is compiled only once for them.
_RESET_GROUP = 16


class JaxEnv(LibraryWrapper):
    """An environment written as two JAX functions.

    The functions are ``reset(key)`` and ``step(state, action)``.

    The state of the library is kept in one of two places:

    * In the data, below ``"state"``, with one entry for each leaf. The environment is then a function of its data:
      ``reset(td, set_state=True)`` continues from the state in ``td``. Without a batch size, the environment accepts
      data of any batch size; each new size is compiled once. Unsigned leaves of 16 bits or more, such as random keys,
      are reinterpreted bit by bit as signed integers, because torch has few operations for unsigned ones.
    * In the environment, as JAX arrays. This is faster, and the default if there is a batch size.

    Observations of unsigned dtypes of 16 bits or more are cast to wider signed dtypes.

    All rows are compiled together with ``jax.vmap``. Results of a compiled function may differ in the last digits from
    those of the library for one row, and between numbers of rows.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from steppe import Categorical
    >>> from steppe_jax import EnvFunctions, JaxEnv, Outcome
    >>> def reset(key):
    ...     position = jax.random.uniform(key, (1,))
    ...     return position, Outcome(position, jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), bool))
    >>> def step(position, action):
    ...     position = position + 2 * action - 1
    ...     return position, Outcome(position, -jnp.abs(position[0]), position[0] > 3, jnp.zeros((), bool))
    >>> functions = EnvFunctions(reset, step, jax.ShapeDtypeStruct((), jnp.int32))
    >>> env = JaxEnv(functions, action_spec=Categorical(2), batch_size=8)
    >>> env.rollout(5, break_when_any_done=False)["observation"].shape
    torch.Size([8, 5, 1])

    Args:
        functions: the reset and step functions of one environment.
        action_spec: action spec of one row.
        observation_key: key of an observation that is a single array. The leaves of a pytree keep their own names.
        observation_specs: specs of one row by path, for entries with bounds. Other entries become ``Unbounded``, or
            ``Binary`` if they are bool.
        batch_size: number or shape of environments. ``()``: one environment, or any number with the state in the data.
        device: device of the data. ``None``: the default device of JAX, on which JAX computes in any case.
        state_in_data: whether the state is kept in the data. ``None``: yes without a batch size or with
            ``requires_grad``.
        requires_grad: let gradients flow from state, observations and rewards to state and actions.
        jit: compile the functions.
        **kwargs: for :class:`steppe.EnvBase`.

    Raises:
        SpecError: ``requires_grad=True`` with ``state_in_data=False``.
        NotSupported: this process was forked from one that had loaded JAX.
    """

    def __init__(
        self,
        functions: EnvFunctions,
        *,
        action_spec: Spec,
        observation_key: str = "observation",
        observation_specs: Mapping[tuple[str, ...], Spec] | None = None,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int = (),
        device: torch.device | str | int | None = None,
        state_in_data: bool | None = None,
        requires_grad: bool = False,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        check_not_forked()
        jax_device = torch_device()
        if device is None and jax_device.type != "cpu":
            device = jax_device
        super().__init__(device=device, batch_size=batch_size, **kwargs)
        if state_in_data is None:
            state_in_data = not self.batch_size or requires_grad
        if requires_grad and not state_in_data:
            raise SpecError(
                "requires_grad=True needs the state in the data, because gradients flow through it. Leave out "
                "state_in_data=False."
            )
        attributes = self.__dict__
        attributes["requires_grad_steps"] = requires_grad
        attributes["state_in_data"] = attributes["_supports_set_state"] = state_in_data
        self.batch_locked = bool(self.batch_size) or not state_in_data
        attributes["functions"] = CompiledFunctions(functions, jit=jit, shows_state=state_in_data)
        attributes["_outputs_are_fresh"] = jit
        attributes["keys"] = RandomKeys()
        attributes["_rows_state"] = None
        self._make_specs(action_spec, observation_key, dict(observation_specs or {}))

    # -- specs ----------------------------------------------------------------------------------------------------

    def _make_specs(self, action: Spec, observation_key: str, observation_specs: dict[tuple[str, ...], Spec]) -> None:
        functions, attributes = self.functions, self.__dict__
        paths = functions.observation_paths
        reserved = {"state", "action", "reward", "next", *_FLAGS}
        single = paths == [()]
        # The leaves of an observation are root entries, unless one of them has a reserved name.
        prefix = (observation_key,) if single or any(path[0] in reserved for path in paths) else ()
        attributes["observation_entries"] = [_key((*prefix, *path)) for path in paths]
        attributes["state_entries"] = [("state", *path) for path in functions.state_paths] if self.state_in_data else []
        leaves = zip(self.observation_entries, paths, functions.observation_leaves, strict=True)
        entries = {
            key: self._batched(observation_specs.get(path) or _observed_spec(leaf)) for key, path, leaf in leaves
        }
        states = dict(zip(self.state_entries, map(self._state_spec, functions.state_leaves), strict=False))
        self.observation_spec = self._nested({**entries, **states})
        if states:
            self.state_spec = self._nested(states)
        shape = (*self.batch_size, *functions.reward_shape)
        self.reward_spec = Unbounded(shape=shape, dtype=torch_dtype(functions.reward_dtype), device=self.device)
        self.action_spec = self._batched(action)
        flags = {name: Binary(shape=(*self.batch_size, 1), dtype=torch.bool, device=self.device) for name in _FLAGS}
        self.done_spec = Composite(flags, shape=self.batch_size)
        attributes["action_entry"] = self.action_keys[0]
        attributes["_action_shape"] = tuple(functions.functions.action.shape)
        attributes["_action_dtype"] = torch_dtype(functions.functions.action.dtype)
        attributes["one_hot_sizes"] = action.one_hot_sizes

    def _state_spec(self, leaf: jax.ShapeDtypeStruct) -> Spec:
        return self._batched(_spec_without_bounds(tuple(leaf.shape), _signed(torch_dtype(leaf.dtype))))

    def _batched(self, spec: Spec) -> Spec:
        spec = spec.expand(*self.batch_size, *spec.shape) if self.batch_size else spec
        return spec if self.device is None else spec.to(self.device)

    def _nested(self, leaves: Mapping[_Key, Spec]) -> Composite:
        spec = Composite({}, shape=self.batch_size, device=self.device)
        for key, leaf in leaves.items():
            spec[key] = leaf
        return spec

    # -- rows -----------------------------------------------------------------------------------------------------

    def no_rows_reason(self) -> str | None:
        """Return why the environments are not stepped on rows, or None if they are."""
        if self.state_in_data:
            return "its state is in the data (state_in_data=True)."
        if len(self.batch_size) > 1:
            return f"its batch has {len(self.batch_size)} dimensions."
        reason: str | None = no_layout_reason(self)
        return reason

    def make_row_writer(self) -> JaxWriter:
        """Make the row writer of all environments."""
        return JaxWriter(self, RowLayout.of(self))

    def set_elsewhere(self, name: str, value: Any) -> bool:
        if hasattr(self._env, name):
            raise NotSupported(
                f"{name!r} is an attribute of the JAX environment, whose functions are compiled with the value that it "
                "had: make a new environment with another value."
            )
        return False

    # -- steps of the library -------------------------------------------------------------------------------------

    def native_action(self, action: torch.Tensor, n: int) -> torch.Tensor:
        """Convert actions of the spec to actions of the library, ``[n, ...]``.

        The actions may have any leading dimensions.
        """
        if self.one_hot_sizes is not None:
            parts = [part.int().argmax(-1) for part in action.reshape(n, -1).split_with_sizes(self.one_hot_sizes, -1)]
            action = torch.stack(parts, -1)
        if action.dtype is not self._action_dtype:
            action = action.to(self._action_dtype)
        return action.reshape((n, *self._action_shape))

    def advance(self, action: torch.Tensor, mask: np.ndarray | None = None) -> StepResult:
        """Step all environments, whose state is kept in this object.

        Args:
            action: actions of the library, ``[n, ...]``.
            mask: ``[n]`` bool: which rows keep their new state. ``None``: all rows.

        Returns:
            Computed JAX arrays. Rows outside the mask hold the result of a step too, but their state is unchanged.
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
        # All outputs of one call are ready at the same time.
        result.flags.block_until_ready()
        self.__dict__["_rows_state"] = new
        return result

    def begin(self, rows: Sequence[int] | None = None) -> tuple[np.ndarray, tuple[ArrayLike, ...]]:
        """Reset environments, whose state is kept in this object.

        Args:
            rows: indices of the rows to reset. ``None``: all rows.

        Returns:
            The indices of the reset rows ``[k]`` int64, and the leaves of their observations ``[k, ...]``, as numpy or
            JAX arrays.
        """
        n, functions = max(1, self.numel()), self.functions
        keys = self.keys.take(n)
        old = self._rows_state
        if rows is None or len(rows) == n or old is None:
            result = functions.reset(keys)
            jax.block_until_ready(result)
            self.__dict__["_rows_state"] = result.state
            return np.arange(n), result.observation
        size = n if n <= 2 * _RESET_GROUP else max(_RESET_GROUP, n // _RESET_GROUP)
        chosen = np.asarray(rows)
        observations: list[tuple[np.ndarray, ...]] = []
        for first in range(0, len(chosen), size):
            group = chosen[first : first + size]
            # Padded with the last row, which is then written several times with the same values.
            filled = np.concatenate([group, np.full(size - len(group), group[-1], group.dtype)])
            result = functions.reset_rows(keys, filled, old)
            jax.block_until_ready(result)
            old = result.state
            observations.append(tuple(np.asarray(leaf)[: len(group)] for leaf in result.observation))
        self.__dict__["_rows_state"] = old
        return chosen, tuple(np.concatenate(leaves) for leaves in zip(*observations, strict=True))

    @property
    def lib(self) -> Any:
        """The module of the library, called ``libname``.

        Raises:
            AttributeError: the class has no ``libname``.
        """
        if not self.libname:
            raise AttributeError(f"{type(self).__name__} wraps no library: it has no libname.")
        return importlib.import_module(self.libname)

    def __repr__(self) -> str:
        name = self.__dict__.get("env_name")
        if name is None:
            return super().__repr__()
        return f"{type(self).__name__}({name!r}, batch_size={tuple(self.batch_size)})"

    @property
    def jax_state(self) -> PyTree:
        """The state of the library, a pytree of arrays ``[n, ...]``.

        None before the first reset, and if the state is in the data.
        """
        state = self._rows_state
        return None if state is None else self.functions.state_tree(state)

    def native_state(self, tensordict: TensorDictBase | None = None, row: int = 0) -> PyTree:
        """Return the state of one row as the library's pytree.

        The state has no batch dimension.

        Args:
            tensordict: data with the state, if ``state_in_data``. Ignored otherwise.
            row: index of the row.

        Raises:
            SpecError: there is no state, because ``tensordict`` has none or ``reset`` was not called.
        """
        functions, leaves = self.functions, self._rows_state
        if self.state_in_data:
            if tensordict is None or any(tensordict.get(key, None) is None for key in self.state_entries):
                raise SpecError(
                    "The state is in the data (state_in_data=True): pass the TensorDict that reset or step returned."
                )
            pairs = zip(self.state_entries, functions.state_leaves, strict=True)
            n = max(1, tensordict.numel())
            leaves = [to_argument(self._native_state(tensordict.get(key), leaf, n)) for key, leaf in pairs]
        if leaves is None:
            raise SpecError("There is no state before the first reset: call env.reset().")
        return functions.state_tree([leaf[row] for leaf in leaves])

    # -- the contract ---------------------------------------------------------------------------------------------

    def _tensor(self, array: jax.Array) -> torch.Tensor:
        tensor = to_data(array, self.device)
        return tensor if self._outputs_are_fresh else tensor.clone()

    def _unflattened(self, value: ArrayLike, lead: torch.Size) -> torch.Tensor:
        """Convert an array or a tensor ``[n, ...]`` to a tensor ``[*lead, ...]``."""
        tensor = value if isinstance(value, torch.Tensor) else self._tensor(value)
        return tensor if len(lead) == 1 else tensor.reshape((*lead, *tensor.shape[1:]))

    def _data(self, lead: torch.Size, result: StepResult) -> TensorDict:
        """Build the data ``[*lead]`` from arrays or tensors ``[n, ...]``.

        Without flags, the result is the data of a reset.
        """
        leaves = {}
        for key, leaf in zip(self.observation_entries, result.observation, strict=True):
            observation = self._unflattened(leaf, lead)
            dtype = observation.dtype
            leaves[key] = observation.to(_WIDER[dtype]) if dtype in _WIDER else observation
        for key, leaf in zip(self.state_entries, result.state, strict=False):
            state = self._unflattened(leaf, lead)
            leaves[key] = state.view(_signed(state.dtype)) if state.dtype in _SIGNED else state
        flags: Iterable[torch.Tensor]
        if result.flags is None:
            device = self.device or CPU
            flags = (torch.zeros((*lead, 1), dtype=torch.bool, device=device) for _ in _FLAGS)
        else:
            leaves["reward"] = self._unflattened(result.reward, lead)
            stacked = result.flags if isinstance(result.flags, torch.Tensor) else self._tensor(result.flags)
            flags = stacked if len(lead) == 1 else stacked.reshape((3, *lead, 1))
        leaves.update(zip(_FLAGS, flags, strict=True))
        return _nest(leaves, lead, self.device)

    def _reset(
        self, tensordict: TensorDictBase | None = None, *, set_state: bool | None = None, **kwargs: Any
    ) -> TensorDictBase:
        if kwargs:
            raise SpecError(
                f"{type(self).__name__}.reset takes no further arguments, found {sorted(kwargs)}. To seed it, call "
                "env.set_seed(seed)."
            )
        lead = self.batch_size if tensordict is None else tensordict.batch_size
        if self.state_in_data:
            if set_state:
                assert tensordict is not None
                return self._reset_to_state(tensordict)
            result = self.functions.reset(self.keys.take(lead.numel()))
            jax.block_until_ready(result)
            return self._data(lead, result._replace(reward=None, flags=None))
        mask = tensordict.get("_reset", None) if tensordict is not None else None
        rows = None
        if mask is not None and not bool(mask.all()):
            rows = mask.reshape(-1).nonzero()[:, 0].tolist()
        indices, leaves = self.begin(rows)
        if rows is None or len(indices) >= self.numel():
            return self._data(lead, StepResult((), tuple(leaves), None, None))
        data: TensorDictBase = self.full_observation_spec.zero()
        for key, leaf in zip(self.observation_entries, leaves, strict=True):
            tensor = torch.from_numpy(np.array(leaf))
            tensor = tensor.to(_WIDER.get(tensor.dtype, tensor.dtype))
            target = data.get(key).reshape((lead.numel(), *tensor.shape[1:]))
            target[indices] = tensor.to(target.device)
            data.set(key, target.reshape((*lead, *tensor.shape[1:])))
        data.update(self.full_done_spec.zero())
        return data

    @staticmethod
    def _native_state(value: torch.Tensor, leaf: jax.ShapeDtypeStruct, n: int) -> torch.Tensor:
        value = value.reshape((n, *leaf.shape))
        dtype = torch_dtype(leaf.dtype)
        return value.view(dtype) if dtype in _SIGNED else value

    def _reset_to_state(self, tensordict: TensorDictBase) -> TensorDictBase:
        keys = [*self.state_entries, *self.observation_entries]
        missing = [key for key in keys if tensordict.get(key, None) is None]
        if missing:
            raise SpecError(
                f"reset(set_state=True) reads state and observations from its TensorDict, which has no {missing}. Pass "
                "data that reset or step returned."
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


def _spec_without_bounds(shape: tuple[int, ...], dtype: torch.dtype) -> Spec:
    return Binary(shape=shape, dtype=dtype) if dtype is torch.bool else Unbounded(shape=shape, dtype=dtype)


def _observed_spec(leaf: jax.ShapeDtypeStruct) -> Spec:
    dtype = torch_dtype(leaf.dtype)
    return _spec_without_bounds(tuple(leaf.shape), _WIDER.get(dtype, dtype))


def _signed(dtype: torch.dtype) -> torch.dtype:
    return _SIGNED.get(dtype, dtype)


def _nest(leaves: Mapping[_Key, torch.Tensor], lead: torch.Size, device: torch.device | None) -> TensorDict:
    """Build a TensorDict from leaves by key."""
    level: dict[str, torch.Tensor | TensorDictBase] = {}
    below: dict[str, dict[_Key, torch.Tensor]] = {}
    for key, value in leaves.items():
        if isinstance(key, str):
            level[key] = value
        else:
            rest = key[1:]
            below.setdefault(key[0], {})[rest[0] if len(rest) == 1 else rest] = value
    for name, children in below.items():
        level[name] = _nest(children, lead, device)
    return build_td(level, lead, device)


def _key(path: tuple[str, ...]) -> _Key:
    return path[0] if len(path) == 1 else path
