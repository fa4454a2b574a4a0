"""gymnasium's vector API over batches of steppe: make_vec, as_vector_env and register_vec."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from steppe.batched import ParallelEnv, SerialEnv
from steppe.envs import EnvBase
from steppe.errors import ArgumentError, NotSupported, SpecError
from steppe.registry import env_factory, list_plugins
from steppe.versions import set_gym_backend

from .compat import adapter_for
from .making import make_single
from .vector_row import DISABLED, NEXT_STEP, SAME_STEP, VectorRow
from .vector_rows import VectorRows

__all__ = ["BatchVectorEnv", "as_vector_env", "make_vec", "register_vec"]

_VERSION = tuple(int(part) for part in gymnasium.__version__.split(".")[:2])
#: The modes by the names that arguments may have.
_MODES = {
    "next_step": NEXT_STEP,
    "same_step": SAME_STEP,
    "disabled": DISABLED,
    NEXT_STEP: NEXT_STEP,
    SAME_STEP: SAME_STEP,
    DISABLED: DISABLED,
}
#: How the installed version names the last observation in infos.
_FINAL_OBS = "final_obs" if _VERSION >= (1, 1) else "final_observation"
#: Before 1.0, infos that are arrays were collected as objects.
_STACKS_ARRAYS = _VERSION >= (1, 0)


def make_vec(
    id_or_factory: Any,
    num_envs: int = 1,
    *,
    num_processes: int | None = None,
    caller_share: bool = False,
    autoreset_mode: Any = None,
    copy: bool = True,
    observation_mode: Any = "same",
    wrappers: Sequence[Callable[[Any], Any]] = (),
    **kwargs: Any,
) -> BatchVectorEnv:
    """Make a vector environment of gymnasium that is stepped by steppe's worker processes.

    Observations, rewards, done flags and infos equal those of gymnasium's ``SyncVectorEnv``, bit for bit.

    >>> envs = make_vec("CartPole-v1", 8)  # doctest: +SKIP
    >>> observations, infos = envs.reset(seed=0)  # doctest: +SKIP
    >>> observations, rewards, terminations, truncations, infos = envs.step([0] * 8)  # doctest: +SKIP

    Args:
        id_or_factory: an id of gymnasium (``"CartPole-v1"``), an id of a plugin of steppe (``"vmas:balance"``), a
            callable that makes an environment of gymnasium or of steppe, or a list of callables, one for each
            environment.
        num_envs: the number of environments.
        num_processes: the number of worker processes that share them. None: one for each usable core; 0: none, the
            environments are stepped one after another in this process, by SerialEnv.
        caller_share: this process steps some of the environments itself while it waits, see ``ParallelEnv``.
        autoreset_mode: ``"next_step"``, ``"same_step"`` or ``"disabled"``, or a member of gymnasium's
            ``AutoresetMode``. None: the default of the installed version of gymnasium.
        copy: return copies of observations. Otherwise the next call changes the arrays that the last one returned.
        observation_mode: ``"same"``; ``"different"``, if the observation spaces of the environments differ in their
            bounds; or a pair of spaces, the batched one and that of one environment.
        wrappers: functions that wrap each environment of gymnasium.
        **kwargs: arguments that make each environment.

    Raises:
        ValueError: an unknown ``autoreset_mode``.
    """
    mode = _mode(autoreset_mode)
    makes = list(id_or_factory) if isinstance(id_or_factory, (list, tuple)) else [id_or_factory] * num_envs
    factories = [
        functools.partial(_make_row, _factory(make, kwargs), row, mode == NEXT_STEP, tuple(wrappers))
        for row, make in enumerate(makes)
    ]
    batch: Any
    if num_processes == 0:
        batch = SerialEnv(len(factories), factories)
    else:
        batch = ParallelEnv(len(factories), factories, num_processes=num_processes, caller_share=caller_share)
    try:
        envs = BatchVectorEnv(batch, mode, copy=copy, observation_mode=observation_mode)
        envs.spec = _spec(id_or_factory, kwargs)
    except SpecError as error:
        batch.close()
        raise RuntimeError(f"All environments of a vector environment have equal spaces: {error}") from error
    except BaseException:
        batch.close()
        raise
    return envs


def as_vector_env(
    batch: EnvBase,
    *,
    autoreset_mode: Any = None,
    copy: bool = True,
    info_keys: Sequence[Any] | None = None,
    dict_observations: bool = False,
) -> BatchVectorEnv:
    """Return gymnasium's vector API of a batch of steppe environments.

    The spaces are made from the specs: one-hot rows become numbers. Rewards are those of the batch, as float64.

    >>> from steppe import SerialEnv
    >>> from steppe_gym import as_vector_env
    >>> envs = as_vector_env(SerialEnv(2, "gym:CartPole-v1"))
    >>> envs.reset(seed=0)[0].shape, envs.action_space
    ((2, 4), MultiDiscrete([2 2]))

    Args:
        batch: an environment with one batch dimension: a SerialEnv, a ParallelEnv, one with transforms around it, or
            one whose library is a batch itself. The vector environment steps it and closes it.
        autoreset_mode: see :func:`make_vec`. A library that cannot step some rows alone (EnvPool) needs
            ``"same_step"``.
        copy: see :func:`make_vec`.
        info_keys: entries of the observations that are infos instead. None: those that the info readers of the
            environments write (``auto_register_info_dict``, ``set_info_dict_reader``).
        dict_observations: observations are a dict even if ``"observation"`` is the only entry.

    Raises:
        NotSupported: the data of the batch has no fixed layout, or there are several rewards.
    """
    return BatchVectorEnv(
        batch, _mode(autoreset_mode), copy=copy, info_keys=info_keys, dict_observations=dict_observations
    )


def register_vec(id: str, env: Any = None, **settings: Any) -> None:
    """Let ``gymnasium.make_vec`` make vector environments of steppe.

    >>> import gymnasium
    >>> from steppe_gym import register_vec
    >>> register_vec("CartPole-v1", num_processes=0)
    >>> gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")
    BatchVectorEnv(CartPole-v1, num_envs=2)

    Args:
        id: an id that gymnasium knows: its vector entry point is replaced; or a new id.
        env: what a new id stands for: the first argument of :func:`make_vec`.
        **settings: arguments of :func:`make_vec`, which those of ``gymnasium.make_vec`` replace.

    Raises:
        NotSupported: gymnasium is older than 1.0, and knows no vector entry points.
        ValueError: gymnasium does not know the id, and there is no ``env``.
    """
    if not _STACKS_ARRAYS:
        raise NotSupported("gymnasium has vector entry points since 1.0: call make_vec instead.")
    registry = gymnasium.registry
    if id not in registry:
        if env is None:
            raise ArgumentError(f"gymnasium does not know {id!r}: pass register_vec(id, env) what it stands for.")
        gymnasium.register(id=id, vector_entry_point=functools.partial(make_vec, env, **settings))
        return
    registry[id].vector_entry_point = functools.partial(make_vec, id if env is None else env, **settings)


class BatchVectorEnv(VectorEnv):  # type: ignore[misc]
    """A batch of steppe environments with the API of ``gymnasium.vector.VectorEnv``.

    :func:`make_vec` and :func:`as_vector_env` make it.

    >>> from steppe_gym import BatchVectorEnv, make_vec
    >>> envs = make_vec("CartPole-v1", 4, num_processes=0)
    >>> isinstance(envs, BatchVectorEnv)
    True
    >>> observations, infos = envs.reset(seed=0)
    >>> observations, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
    >>> observations.shape, rewards
    ((4, 4), array([1., 1., 1., 1.]))
    >>> envs.close()

    Attributes:
        rows: steps the batch.
    """

    def __init__(self, batch: EnvBase, mode: str, **settings: Any) -> None:
        self.closed = False
        self._pending: tuple[str, Callable[[], Any]] | None = None
        observation_mode = settings.pop("observation_mode", "same")
        if observation_mode not in ("same", "different") and not _are_spaces(observation_mode):
            raise ArgumentError(
                f"observation_mode must be 'same', 'different' or a pair of spaces, found {observation_mode!r}."
            )
        rows = VectorRows(batch, mode, library="gymnasium", observation_mode=observation_mode, **settings)
        self.rows = rows
        observed, acted = rows.observation_space, rows.action_space
        if not _STACKS_ARRAYS:  # before gymnasium 1.0, the base class takes these
            super().__init__(rows.n, observed, acted)
        self.num_envs = rows.n
        self.single_observation_space, self.single_action_space = observed, acted
        self.observation_space, self.action_space = batch_space(observed, rows.n), batch_space(acted, rows.n)
        if observation_mode == "different":
            from gymnasium.vector.utils import batch_differing_spaces

            self.observation_space = batch_differing_spaces(rows.observation_spaces or [observed] * rows.n)
        elif observation_mode != "same":
            self.observation_space, self.single_observation_space = observation_mode
        modes = getattr(gymnasium.vector, "AutoresetMode", None)
        self.metadata = {**rows.metadata, **({} if modes is None else {"autoreset_mode": modes(mode)})}
        self.render_mode = rows.render_mode
        self.spec = None
        self.autoreset_mode = mode if modes is None else modes(mode)

    @property
    def batch(self) -> EnvBase:
        """The batch of steppe."""
        return self.rows.batch

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those of ``options["reset_mask"]``.

        Args:
            seed: None, one seed (environment ``i`` gets ``seed + i``), or a list of a seed or None for each.
            options: the ``options`` of each environment's ``reset``, and ``"reset_mask"``, a bool array ``[n]``.
        """
        self._check_open()
        n = self.num_envs
        if seed is not None and np.ndim(seed) == 0:
            seed = [int(seed) + row for row in range(n)]
        if seed is not None and len(seed) != n:
            raise ArgumentError(f"A list of seeds needs one for each of the {n} environments, found {len(seed)}.")
        mask = None
        if options is not None and "reset_mask" in options:
            options = dict(options)
            mask = _reset_mask(options.pop("reset_mask"), n)
        observation = self.rows.reset(seed, options, mask)
        infos: dict[str, Any] = {}
        for row, info in sorted(self.rows.infos().items()):
            if mask is None or mask[row]:
                infos = self._add_info(infos, info, row)
        return observation, infos

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all environments; see ``gymnasium.vector.VectorEnv.step``."""
        if self.closed:
            self._check_open()
        rows = self.rows
        observation, reward, terminated, truncated = rows.step(actions)
        columns = rows.info_columns()
        if columns is None:
            return observation, reward, terminated, truncated, self._collected()
        infos: dict[str, Any] = {}
        for key, mask, values, field in columns:
            if field is None or field.kind in ("int", "float", "bool", "number") or self._stacks(field):
                infos[key] = values.copy()
            else:
                infos[key] = _objects(values, field)
            infos[mask] = np.ones(rows.n, bool)
        return observation, reward, terminated, truncated, infos

    @staticmethod
    def _stacks(field: Any) -> bool:
        return _STACKS_ARRAYS and bool(field.kind == "array")

    def _collected(self) -> dict[str, Any]:
        """Return the infos of a step in which rows have different ones."""
        rows = self.rows
        infos: dict[str, Any] = {}
        each = rows.infos()
        for row in range(rows.n):
            if row in rows.final_observations:
                last = {_FINAL_OBS: rows.final_observations[row], "final_info": rows.final_infos.get(row, {})}
                infos = self._add_info(infos, last, row)
            if row in each:
                infos = self._add_info(infos, each[row], row)
        return infos

    # gymnasium before 1.0 divides step and reset in two, and AsyncVectorEnv does so in each version.

    def step_async(self, actions: Any) -> None:
        """Keep the actions for :meth:`step_wait`."""
        self._defer("step", lambda: self.step(actions))

    def step_wait(self, **kwargs: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all environments."""
        return self._deferred("step")  # type: ignore[no-any-return]

    def reset_async(self, seed: Any = None, options: dict[str, Any] | None = None) -> None:
        """Keep the arguments for :meth:`reset_wait`."""
        self._defer("reset", lambda: self.reset(seed=seed, options=options))

    def reset_wait(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Reset the environments."""
        return self._deferred("reset")  # type: ignore[no-any-return]

    def _defer(self, name: str, call: Callable[[], Any]) -> None:
        self._check_open()
        if self._pending is not None:
            pending = self._pending[0]
            raise gymnasium.error.AlreadyPendingCallError(
                f"{name}_async was called before {pending}_wait: the call of {pending}_async is pending.", pending
            )
        self._pending = (name, call)

    def _deferred(self, name: str) -> Any:
        self._check_open()
        if self._pending is None or self._pending[0] != name:
            raise gymnasium.error.NoAsyncCallError(f"Call {name}_async before {name}_wait.", name)
        call, self._pending = self._pending[1], None
        return call()

    def render(self) -> tuple[Any, ...]:
        """Return the frame of each environment."""
        return self.call("render")

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or read an attribute; both are found through wrappers."""
        return self.rows.call(name, args, kwargs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of each environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment.

        Args:
            name: the attribute.
            values: a list or tuple of a value for each environment; anything else is set in all of them.
        """
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ArgumentError(
                f"set_attr needs a value for each of {self.num_envs} environments, found {len(values)}."
            )
        self.rows.set(name, values)

    @property
    def envs(self) -> list[Any]:
        """The environments of gymnasium, if this process steps them all (``num_processes=0``).

        Raises:
            AttributeError: workers step them: use :meth:`call`, :meth:`get_attr` and :meth:`set_attr`.
        """
        if not (self.rows.of_library and isinstance(self.batch, SerialEnv)):
            raise AttributeError(f"The environments of {self!r} are not here: use call, get_attr and set_attr.")
        return list(self.batch.env)

    @property
    def np_random(self) -> tuple[Any, ...]:
        """The random generator of each environment."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[Any, ...]:
        """The seed of each environment's random generator."""
        return self.get_attr("np_random_seed")

    def _check_open(self) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError(f"{self!r} is closed. Make a new one.")

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments and their workers."""
        rows = self.__dict__.get("rows")
        if rows is not None:
            rows.close()

    def __repr__(self) -> str:
        label = "" if self.spec is None else f"{self.spec.id}, "
        return f"{type(self).__name__}({label}num_envs={self.num_envs})"


def _mode(mode: Any) -> str:
    if mode is None:
        return NEXT_STEP if _STACKS_ARRAYS else SAME_STEP
    name = getattr(mode, "value", mode)
    if name not in _MODES:
        raise ArgumentError(f"autoreset_mode must be 'next_step', 'same_step' or 'disabled', found {mode!r}.")
    return _MODES[name]


def _factory(make: Any, kwargs: dict[str, Any]) -> Callable[[], Any]:
    """Return a function that makes one environment, of gymnasium or of steppe."""
    if isinstance(make, str):
        namespace, _, name = make.partition(":")
        if name and namespace == "gym":
            make = name
        elif name and namespace in {plugin.name for plugin in list_plugins()}:
            return env_factory(make, **kwargs)
        return functools.partial(_make_of_library, make, kwargs)
    if isinstance(make, gymnasium.envs.registration.EnvSpec):
        return functools.partial(gymnasium.make, make, **kwargs)
    if not callable(make):
        raise TypeError(f"make_vec takes an id or a callable that makes an environment, found {make!r}.")
    return functools.partial(make, **kwargs) if kwargs else make


def _make_of_library(name: str, kwargs: dict[str, Any]) -> Any:
    with set_gym_backend("gymnasium"):
        return make_single(adapter_for(), name, kwargs)


def _make_row(make: Callable[[], Any], row: int, resets_next_step: bool, wrappers: Sequence[Any]) -> EnvBase:
    """Make an environment in its worker."""
    env = make()
    if isinstance(env, EnvBase):
        return env
    for wrap in wrappers:
        env = wrap(env)
    return VectorRow(env, row, resets_next_step=resets_next_step)


def _spec(id_or_factory: Any, kwargs: dict[str, Any]) -> Any:
    """Return the library's spec of an id, with the arguments of the environments; None for others."""
    if isinstance(id_or_factory, gymnasium.envs.registration.EnvSpec):
        spec = id_or_factory
    elif isinstance(id_or_factory, str):
        try:
            spec = gymnasium.spec(id_or_factory.removeprefix("gym:"))
        except gymnasium.error.Error:
            return None
    else:
        return None
    spec = deepcopy(spec)
    spec.kwargs = {**spec.kwargs, **kwargs}
    return spec


def _are_spaces(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, gymnasium.Space) for part in value)


def _reset_mask(mask: Any, n: int) -> np.ndarray:
    where = "options['reset_mask']"
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        raise TypeError(f"{where} must be a numpy array of bool, found {mask!r}.")
    if mask.shape != (n,):
        raise ArgumentError(f"{where} must have shape {(n,)}, found {mask.shape}.")
    if not mask.any():
        raise ArgumentError(f"{where} must have a True: it resets no environment.")
    return mask


def _objects(values: np.ndarray, field: Any) -> np.ndarray:
    """Return an array of objects, as the library collects values that are no numbers."""
    result = np.full(len(values), None, object)
    for row, value in enumerate(values):
        result[row] = np.array(value) if field.kind == "array" else field.value(value)
    return result
