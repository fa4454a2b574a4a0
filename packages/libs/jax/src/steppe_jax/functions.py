"""EnvFunctions: an environment as two functions of JAX, and those functions compiled for rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .pytrees import leaf_paths

__all__ = ["CompiledFunctions", "EnvFunctions", "Outcome", "StepResult"]


class Outcome(NamedTuple):
    """What one environment shows after a reset or a step; arrays without a batch.

    Attributes:
        observation: an array, or a pytree of them.
        reward: ``[]`` or ``[k]`` floating; not looked at after a reset.
        terminated: ``[]`` bool.
        truncated: ``[]`` bool.
    """

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any


class EnvFunctions(NamedTuple):
    """One environment as pure functions of JAX, which can be traced and know of no batch.

    Attributes:
        reset: ``reset(key) -> (state, Outcome)``; the state is a pytree of arrays.
        step: ``step(state, action) -> (state, Outcome)``, with a state of the same structure.
        action: an array, or ``jax.ShapeDtypeStruct``, of the shape and dtype of an action.
    """

    reset: Callable[[Any], tuple[Any, Outcome]]
    step: Callable[[Any, Any], tuple[Any, Outcome]]
    action: Any


class StepResult(NamedTuple):
    """The arrays that a call gives.

    Attributes:
        state, observation: their leaves, ``[n, ...]``.
        reward: ``[n, 1]``, or ``[n, k]``.
        flags: ``[3, n, 1]`` bool: done, terminated, truncated.
    """

    state: tuple[Any, ...]
    observation: tuple[Any, ...]
    reward: Any
    flags: Any


class CompiledFunctions:
    """Environment functions over rows, on flat tuples of leaves, compiled once for each number of rows.

    Args:
        functions: the environment.
        jit: compile; False runs them operation by operation, for debugging.
        shows_state: tensors look at the state too, not only at what an outcome has.

    Attributes:
        state_leaves, observation_leaves: shape and dtype of each leaf of one row.
        state_paths, observation_paths: their names.
        reward_shape, reward_dtype: of a reward of one row.
    """

    def __init__(self, functions: EnvFunctions, *, jit: bool = True, shows_state: bool = True) -> None:
        self.functions, self.shows_state = functions, shows_state
        state, outcome = jax.eval_shape(functions.reset, jax.random.PRNGKey(0))
        _, stepped = jax.eval_shape(functions.step, state, functions.action)
        self._states = jax.tree_util.tree_structure(state)
        self._observations = jax.tree_util.tree_structure(outcome.observation)
        self.state_leaves = jax.tree_util.tree_leaves(state)
        self.observation_leaves = jax.tree_util.tree_leaves(outcome.observation)
        self.state_paths = leaf_paths(state)
        self.observation_paths = leaf_paths(outcome.observation)
        self.reward_shape, self.reward_dtype = tuple(stepped.reward.shape) or (1,), stepped.reward.dtype
        self.floating = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in self.state_leaves]
        wrap: Any = jax.jit if jit else (lambda function: function)
        self.reset = wrap(self._own(self._rows(self._reset_row)))
        self.step = wrap(self._own(self._rows(self._step_row)))
        self.gradient = wrap(self._gradient)
        self.merge = wrap(self._merge)
        self.place = wrap(self._place)

    def state_tree(self, leaves: Sequence[Any]) -> Any:
        """The state of the library from its leaves."""
        return jax.tree_util.tree_unflatten(self._states, list(leaves))

    # What follows is traced. A reset and a step give the same dtypes, and none that is weak: what a step is given
    # then looks alike in all steps, and it is compiled once.

    def _reset_row(self, key: Any) -> StepResult:
        return self._flat(*self.functions.reset(key))

    def _step_row(self, leaves: tuple[Any, ...], action: Any) -> StepResult:
        action = jnp.asarray(action, self.functions.action.dtype)
        return self._flat(*self.functions.step(self.state_tree(leaves), action))

    def _flat(self, state: Any, outcome: Outcome) -> StepResult:
        states = _leaves_like(state, self._states, self.state_leaves)
        observations = _leaves_like(outcome.observation, self._observations, self.observation_leaves)
        reward = jnp.asarray(outcome.reward, self.reward_dtype).reshape(-1)
        terminated, truncated = (jnp.asarray(flag, jnp.bool_) for flag in (outcome.terminated, outcome.truncated))
        flags = jnp.stack([terminated | truncated, terminated, truncated])[:, None]
        return StepResult(states, observations, reward, flags)

    def _rows(self, function: Callable[..., StepResult]) -> Callable[..., StepResult]:
        axes = StepResult((0,) * len(self.state_leaves), (0,) * len(self.observation_leaves), 0, 1)
        mapped: Callable[..., StepResult] = jax.vmap(function, out_axes=axes)
        return mapped

    def _own(self, function: Callable[..., StepResult]) -> Callable[..., StepResult]:
        """Give each array memory of its own, also what was handed through or is there twice: tensors look at it."""

        def owned(*args: Any) -> StepResult:
            result = function(*args)
            if self.shows_state:
                whole: StepResult = jax.lax.optimization_barrier(result)
                return whole
            return StepResult(result.state, *jax.lax.optimization_barrier(tuple(result[1:])))

        return owned

    def _gradient(self, leaves: tuple[Any, ...], action: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Gradients of the floating leaves and, if it is floating, of the action, from those of ``floating_parts``."""
        acts = jnp.issubdtype(self.functions.action.dtype, jnp.floating)

        def differentiable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            rest = iter(inputs)
            whole = tuple(
                next(rest) if is_float else leaf for leaf, is_float in zip(leaves, self.floating, strict=True)
            )
            return self.floating_parts(self._rows(self._step_row)(whole, next(rest) if acts else action))

        inputs = tuple(leaf for leaf, is_float in zip(leaves, self.floating, strict=True) if is_float)
        _, pull = jax.vjp(differentiable, (*inputs, action) if acts else inputs)
        return tuple(pull(given)[0])

    @staticmethod
    def floating_parts(result: StepResult) -> tuple[Any, ...]:
        """The floating ones among state, observation and reward, in this order."""
        parts = (*result.state, *result.observation, result.reward)
        return tuple(part for part in parts if jnp.issubdtype(part.dtype, jnp.floating))

    @staticmethod
    def _merge(mask: Any, new: tuple[Any, ...], old: tuple[Any, ...]) -> tuple[Any, ...]:
        """Rows of ``new`` where the mask ``[n]`` is True, and of ``old`` elsewhere."""
        return tuple(
            jnp.where(mask.reshape(mask.shape + (1,) * (one.ndim - 1)), one, other)
            for one, other in zip(new, old, strict=True)
        )

    @staticmethod
    def _place(rows: Any, new: tuple[Any, ...], old: tuple[Any, ...]) -> tuple[Any, ...]:
        """``old`` with ``new`` in some rows."""
        return tuple(other.at[rows].set(one) for one, other in zip(new, old, strict=True))


def _leaves_like(tree: Any, structure: Any, leaves: Sequence[Any]) -> tuple[Any, ...]:
    """The leaves of a tree, which is to have this structure, in the dtypes of those leaves."""
    found, made = jax.tree_util.tree_flatten(tree)
    if made != structure:
        raise TypeError(f"A step gives another structure than a reset: {made} and {structure}.")
    return tuple(jnp.asarray(one, leaf.dtype) for one, leaf in zip(found, leaves, strict=True))
