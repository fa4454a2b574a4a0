"""EnvFunctions and CompiledFunctions: an environment as two JAX functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from .pytrees import leaf_paths

__all__ = ["CompiledFunctions", "EnvFunctions", "Outcome", "StepResult", "with_random_key"]


#: Nested containers of arrays, as ``jax.tree_util`` defines them.
PyTree: TypeAlias = Any

#: An array of JAX or numpy, a tensor, or a traced value: the functions below are called with each of them.
ArrayLike: TypeAlias = Any


class Outcome(NamedTuple):
    """Observation, reward and done flags of one environment after a reset or a step.

    The arrays have no batch dimension.

    >>> import jax.numpy as jnp
    >>> from steppe_jax import Outcome
    >>> outcome = Outcome(jnp.zeros(3), reward=jnp.ones(()), terminated=jnp.array(False), truncated=jnp.array(True))
    >>> outcome.observation.shape, bool(outcome.truncated)
    ((3,), True)

    Attributes:
        observation: an array, or a pytree of arrays.
        reward: ``[]`` or ``[k]`` floating point; ignored after a reset.
        terminated: ``[]`` bool.
        truncated: ``[]`` bool.
    """

    observation: PyTree
    reward: ArrayLike
    terminated: ArrayLike
    truncated: ArrayLike


class EnvFunctions(NamedTuple):
    """One environment as pure JAX functions.

    The functions can be traced, and have no batch dimension.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from steppe_jax import EnvFunctions, Outcome
    >>> def reset(key):
    ...     count = jnp.zeros((1,))
    ...     return count, Outcome(count, jnp.zeros(()), jnp.array(False), jnp.array(False))
    >>> def step(count, action):
    ...     return count + 1, Outcome(count + 1, action.sum(), count[0] >= 4, jnp.array(False))
    >>> functions = EnvFunctions(reset, step, jax.ShapeDtypeStruct((2,), jnp.float32))
    >>> state, outcome = functions.step(functions.reset(jax.random.PRNGKey(0))[0], jnp.ones(2))
    >>> state.tolist(), float(outcome.reward)
    ([1.0], 2.0)

    Attributes:
        reset: ``reset(key) -> (state, Outcome)``; the state is a pytree of arrays.
        step: ``step(state, action) -> (state, Outcome)``, with a state of the same structure.
        action: an array or a ``jax.ShapeDtypeStruct`` of the shape and dtype of an action.
    """

    reset: Callable[[jax.Array], tuple[PyTree, Outcome]]
    step: Callable[[PyTree, jax.Array], tuple[PyTree, Outcome]]
    action: jax.Array | jax.ShapeDtypeStruct


def with_random_key(
    reset: Callable[[jax.Array], tuple[PyTree, Outcome]],
    step: Callable[[jax.Array, PyTree, jax.Array], tuple[PyTree, Outcome]],
    action: jax.Array | jax.ShapeDtypeStruct,
) -> EnvFunctions:
    """Return the functions of an environment whose steps draw random numbers.

    The state is a pair: a random key, of which each step splits off another one, and the state of the environment.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from steppe_jax import Outcome, with_random_key
    >>> def reset(key):
    ...     return jnp.zeros(1), Outcome(jnp.zeros(1), jnp.zeros(()), jnp.array(False), jnp.array(False))
    >>> def step(key, state, action):
    ...     state = state + jax.random.uniform(key, (1,))
    ...     return state, Outcome(state, state[0], state[0] > 3, jnp.array(False))
    >>> functions = with_random_key(reset, step, jax.ShapeDtypeStruct((), jnp.int32))
    >>> state, outcome = functions.step(functions.reset(jax.random.PRNGKey(0))[0], 1)
    >>> outcome.observation.shape
    (1,)

    Args:
        reset: ``reset(key) -> (state, Outcome)``.
        step: ``step(key, state, action) -> (state, Outcome)``.
        action: as in :class:`EnvFunctions`.
    """

    def reset_with_key(key: jax.Array) -> tuple[PyTree, Outcome]:
        own, first = jax.random.split(key)
        state, outcome = reset(first)
        return (own, state), outcome

    def step_with_key(pair: PyTree, action: jax.Array) -> tuple[PyTree, Outcome]:
        key, own = jax.random.split(pair[0])
        state, outcome = step(own, pair[1], action)
        return (key, state), outcome

    return EnvFunctions(reset_with_key, step_with_key, action)


class StepResult(NamedTuple):
    """The arrays that a compiled reset or step returns.

    Attributes:
        state, observation: tuples of leaves, ``[n, ...]``.
        reward: ``[n, 1]`` or ``[n, k]``.
        flags: ``[3, n, 1]`` bool: done, terminated, truncated.
    """

    state: tuple[ArrayLike, ...]
    observation: tuple[ArrayLike, ...]
    reward: ArrayLike
    flags: ArrayLike


class CompiledFunctions:
    """Environment functions for rows, compiled once for each number of rows.

    They use flat tuples of leaves.

    Args:
        functions: the functions of one environment.
        jit: compile the functions. False runs them operation by operation, for debugging.
        shows_state: whether tensors share the memory of the state too, not only that of observation, reward and flags.

    Attributes:
        state_leaves, observation_leaves: shape and dtype of each leaf of one row.
        state_paths, observation_paths: the path of each leaf.
        reward_shape, reward_dtype: shape and dtype of the reward of one row.
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
        wrap: Callable[..., Any] = jax.jit if jit else (lambda function: function)
        self.reset = wrap(self._unaliased(self._vmapped(self._reset_row)))
        self.step = wrap(self._unaliased(self._vmapped(self._step_row)))
        self.gradient = wrap(self._gradient)
        self.merge = wrap(self._merge)
        self.reset_rows = wrap(self._unaliased(self._reset_rows))

    def state_tree(self, leaves: Sequence[ArrayLike]) -> PyTree:
        """Build the state of the library from its leaves."""
        return jax.tree_util.tree_unflatten(self._states, list(leaves))

    # The methods below are traced. A reset and a step return the same dtypes, none of them weak. So the arguments of
    # every step have the same abstract types, and the step is compiled only once.

    def _reset_row(self, key: jax.Array) -> StepResult:
        return self._flat(*self.functions.reset(key))

    def _reset_rows(self, keys: jax.Array, rows: ArrayLike, old: tuple[ArrayLike, ...]) -> StepResult:
        """Reset some rows. The result has the state of all rows, and everything else of the reset ones.

        One call for everything: each call from Python, and each operation outside of a compiled function, takes
        longer than the reset of a simple environment.
        """
        result = self._vmapped(self._reset_row)(keys[rows])
        pairs = zip(result.state, old, strict=True)
        return result._replace(state=tuple(old_leaf.at[rows].set(new_leaf) for new_leaf, old_leaf in pairs))

    def _step_row(self, leaves: tuple[ArrayLike, ...], action: ArrayLike) -> StepResult:
        action = jnp.asarray(action, self.functions.action.dtype)
        return self._flat(*self.functions.step(self.state_tree(leaves), action))

    def _flat(self, state: PyTree, outcome: Outcome) -> StepResult:
        states = _leaves_like(state, self._states, self.state_leaves)
        observations = _leaves_like(outcome.observation, self._observations, self.observation_leaves)
        reward = jnp.asarray(outcome.reward, self.reward_dtype).reshape(-1)
        terminated, truncated = (jnp.asarray(flag, jnp.bool_) for flag in (outcome.terminated, outcome.truncated))
        flags = jnp.stack([terminated | truncated, terminated, truncated])[:, None]
        return StepResult(states, observations, reward, flags)

    def _vmapped(self, function: Callable[..., StepResult]) -> Callable[..., StepResult]:
        axes = StepResult((0,) * len(self.state_leaves), (0,) * len(self.observation_leaves), 0, 1)
        mapped: Callable[..., StepResult] = jax.vmap(function, out_axes=axes)
        return mapped

    def _unaliased(self, function: Callable[..., StepResult]) -> Callable[..., StepResult]:
        """Copy output arrays that share memory.

        Without the barrier, XLA may return an input, or one array twice, as an output. Tensors share the memory of the
        outputs, so a write to one entry would change another.
        """

        def unaliased(*args: ArrayLike) -> StepResult:
            result = function(*args)
            if self.shows_state:
                with_state: StepResult = jax.lax.optimization_barrier(result)
                return with_state
            return StepResult(result.state, *jax.lax.optimization_barrier(tuple(result[1:])))

        return unaliased

    def _gradient(
        self, leaves: tuple[ArrayLike, ...], action: ArrayLike, output_gradients: tuple[ArrayLike, ...]
    ) -> tuple[ArrayLike, ...]:
        """Return gradients of the floating-point leaves and action.

        They are computed from the gradients of ``floating_parts``.
        """
        action_is_float = jnp.issubdtype(self.functions.action.dtype, jnp.floating)

        def differentiable(inputs: tuple[ArrayLike, ...]) -> tuple[ArrayLike, ...]:
            remaining = iter(inputs)
            state = tuple(
                next(remaining) if is_float else leaf for leaf, is_float in zip(leaves, self.floating, strict=True)
            )
            step = self._vmapped(self._step_row)
            return self.floating_parts(step(state, next(remaining) if action_is_float else action))

        inputs = tuple(leaf for leaf, is_float in zip(leaves, self.floating, strict=True) if is_float)
        _, pullback = jax.vjp(differentiable, (*inputs, action) if action_is_float else inputs)
        return tuple(pullback(output_gradients)[0])

    @staticmethod
    def floating_parts(result: StepResult) -> tuple[ArrayLike, ...]:
        """Return the floating-point arrays of state, observation and reward."""
        parts = (*result.state, *result.observation, result.reward)
        return tuple(part for part in parts if jnp.issubdtype(part.dtype, jnp.floating))

    @staticmethod
    def _merge(mask: ArrayLike, new: tuple[ArrayLike, ...], old: tuple[ArrayLike, ...]) -> tuple[ArrayLike, ...]:
        """Merge rows: ``new`` where the mask ``[n]`` is True, otherwise ``old``."""
        return tuple(
            jnp.where(mask.reshape(mask.shape + (1,) * (new_leaf.ndim - 1)), new_leaf, old_leaf)
            for new_leaf, old_leaf in zip(new, old, strict=True)
        )


def _leaves_like(
    tree: PyTree, structure: jax.tree_util.PyTreeDef, leaves: Sequence[jax.ShapeDtypeStruct]
) -> tuple[ArrayLike, ...]:
    """Flatten a tree, and cast its leaves to the dtypes of ``leaves``."""
    values, tree_structure = jax.tree_util.tree_flatten(tree)
    if tree_structure != structure:
        raise TypeError(
            f"reset and step must return states and observations of one structure, found {tree_structure} where "
            f"{structure} was expected."
        )
    return tuple(jnp.asarray(value, leaf.dtype) for value, leaf in zip(values, leaves, strict=True))
