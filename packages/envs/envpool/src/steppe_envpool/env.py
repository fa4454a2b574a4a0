"""MultiThreadedEnv: a batch of environments that the threads of EnvPool step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import ActionRule, EnvBase, RowLayout, missing_action, no_layout_reason
from steppe.errors import ArgumentError, NotSupported
from steppe.registry import env_not_found
from steppe.specs import Binary, Composite, Spec, Unbounded
from steppe.storage import build_td, entries
from steppe_gym import space_to_spec

from .pool import NO_PARTIAL_STEP, Arrays, Pool, cast
from .pool_writer import PoolWriter

__all__ = ["EnvPoolEnv", "MultiThreadedEnv", "MultiThreadedEnvWrapper"]

_FLAGS = ("done", "terminated", "truncated")
_FLOAT32 = np.dtype(np.float32)


class MultiThreadedEnvWrapper(EnvBase):
    """Wrap a synchronous pool of EnvPool as a batch of environments.

    The pool must be made with ``env_type="gymnasium"``.

    ==================  ===========================================================================================
    Key                 Value, for a pool of n environments
    ==================  ===========================================================================================
    ``"observation"``   ``[n, ...]``, dtype of the space; entries of a Dict space have their own names
    ``"action"``        ``[n, k]`` one-hot int64 for k discrete actions (``[n]`` with ``categorical_action_encoding``)
    ``"reward"``        ``[n, 1]`` float32
    ``"done"``          ``[n, 1]`` bool, with ``"terminated"`` and ``"truncated"``
    ``"valid"``         ``[n, 1]`` bool, with ``raw_rows`` only
    ==================  ===========================================================================================

    Ended rows are reset at once by their ids, because EnvPool's automatic reset takes one more step and ignores its
    action. With ``raw_rows``, EnvPool resets rows itself: the row of such a step has reward 0, done False and
    ``("next", "valid")`` False.

    >>> import envpool
    >>> from steppe import MultiThreadedEnvWrapper
    >>> pool = envpool.make("Pendulum-v1", env_type="gymnasium", num_envs=4)
    >>> env = MultiThreadedEnvWrapper(pool)
    >>> env.rollout(5)["action"].shape
    torch.Size([4, 5, 1])
    >>> env.close()

    Args:
        env: the pool.
        categorical_action_encoding: discrete actions are integers instead of one-hot vectors.
        raw_rows: leave automatic resets to EnvPool, and return its rows unchanged.
        **kwargs: for :class:`steppe.envs.EnvBase`.

    Raises:
        NotSupported: the pool is asynchronous, or has environments with several players.
    """

    def __init__(
        self, env: Any, *, categorical_action_encoding: bool = False, raw_rows: bool = False, **kwargs: Any
    ) -> None:
        config = env.spec.config
        if config.batch_size not in (0, config.num_envs):
            raise NotSupported(
                f"This pool is asynchronous: it returns {config.batch_size} of its {config.num_envs} environments at a "
                "time. Make it with batch_size=num_envs."
            )
        if config.max_num_players > 1:
            raise NotSupported(
                f"Pools of environments with several players are not supported, found max_num_players="
                f"{config.max_num_players}."
            )
        super().__init__(batch_size=(config.num_envs,), **kwargs)
        state = self.__dict__
        state["_env"] = env
        state["categorical_action_encoding"] = categorical_action_encoding
        state["raw_rows"] = raw_rows
        state["_ended"] = np.zeros(config.num_envs, bool)
        state["_began"] = False
        self._make_specs()

    def _make_specs(self) -> None:
        n, space = self.batch_size[0], self._env.observation_space
        observation = space_to_spec(space, categorical_action_encoding=True)
        named = observation if isinstance(observation, Composite) else Composite({"observation": observation})
        action = space_to_spec(self._env.action_space, categorical_action_encoding=self.categorical_action_encoding)
        entries_ = {key: _batched(leaf, n) for key, leaf in named.items()}
        if self.raw_rows:
            entries_["valid"] = Binary(shape=(n, 1), dtype=torch.bool)
        self.observation_spec = Composite(entries_, shape=(n,))
        self.action_spec = _batched(action, n)
        self.reward_spec = Unbounded(shape=(n, 1), dtype=torch.float32)
        flag = Binary(shape=(n, 1), dtype=torch.bool)
        self.done_spec = Composite({name: flag.clone() for name in _FLAGS}, shape=(n,))
        state = self.__dict__
        state["_action_rule"] = ActionRule("action", self.full_action_spec["action"], batch_dims=1)
        state["_pool"] = Pool(
            self._env,
            {
                key: torch.empty(0, dtype=leaf.dtype, device="cpu").numpy().dtype
                for key, leaf in self.full_observation_spec.items(include_nested=True, leaves_only=True)
                if key != "valid"
            },
            single=not isinstance(observation, Composite),
            one_hot=action.one_hot_sizes is not None,
        )

    # -- rows of arrays -------------------------------------------------------------------------------------------

    def no_rows_reason(self) -> str | None:
        """Return why the environments are not stepped on rows, or None if they are."""
        if self.raw_rows:
            return "with raw_rows=True, some rows are not transitions."
        reason: str | None = no_layout_reason(self)
        return reason

    def make_row_writer(self) -> PoolWriter:
        """Make the row writer of all environments."""
        return PoolWriter(self._pool, self.batch_size[0], RowLayout.of(self))

    # -- data -----------------------------------------------------------------------------------------------------

    def _decoded_action(self, tensordict: TensorDictBase) -> np.ndarray:
        requested = (
            entries(tensordict).get("action") if type(tensordict) is TensorDict else tensordict.get("action", None)
        )
        if requested is None:
            raise missing_action(tensordict, "action")
        action = self._action_rule.fit(requested, self.batch_size)
        if action is not requested:
            tensordict.set("action", action)
        decoded: np.ndarray = self._pool.decode(action.detach().cpu().numpy())
        return decoded

    def _advance(self, tensordict: TensorDictBase) -> tuple[Arrays, np.ndarray]:
        """Step the pool.

        Returns the arrays of ``next``, and whether each row ended, ``[n]``.
        """
        arrays, reward, terminated, truncated = self._pool.step(self._decoded_action(tensordict))
        ended = terminated | truncated
        arrays["reward"] = cast(reward, _FLOAT32)[:, None]
        arrays["done"], arrays["terminated"], arrays["truncated"] = (
            ended[:, None],
            terminated[:, None],
            truncated[:, None],
        )
        if self.raw_rows:
            arrays["valid"] = ~self._ended[:, None]
            self.__dict__["_ended"] = ended
        return arrays, ended

    def _data(self, arrays: Arrays) -> TensorDict:
        if not self._pool.single:
            data = TensorDict({}, batch_size=self.batch_size)
            for key, array in arrays.items():
                data.set(key, torch.from_numpy(array))
        else:
            data = build_td({key: torch.from_numpy(array) for key, array in arrays.items()}, self.batch_size)
        return data if self.device is None else data.to(self.device)

    # -- the contract ---------------------------------------------------------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        n = self.batch_size[0]
        mask = tensordict.get("_reset", None) if tensordict is not None else None
        rows = np.arange(n) if mask is None else mask.reshape(n).cpu().numpy().nonzero()[0]
        self._pool.send_reset(rows)
        ids, fresh = self._pool.receive_reset()
        arrays = {key: np.zeros((n, *array.shape[1:]), array.dtype) for key, array in fresh.items()}
        for key, array in fresh.items():
            arrays[key][ids] = array
        self._ended[ids] = False
        if self.raw_rows:
            arrays["valid"] = np.ones((n, 1), bool)
        for name in _FLAGS:
            arrays[name] = np.zeros((n, 1), bool)
        return self._data(arrays)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if tensordict.get("_step", None) is not None:
            raise NotSupported(NO_PARTIAL_STEP)
        return self._data(self._advance(tensordict)[0])

    def step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """Step once, and reset the rows that ended.

        With ``raw_rows``, EnvPool resets them in the next step.
        """
        checked = self.run_type_checks or not self.is_validated("step")
        if checked or type(tensordict) is not TensorDict or self.overridden_methods:
            return self._checked_step(tensordict)
        self.check_open("step")
        self.note_use()
        arrays, ended = self._advance(tensordict)
        any_ended = ended.any()
        if not any_ended or self.raw_rows:
            root = self._next_root(tensordict, arrays)
            if any_ended:
                self._clear_flags(root, len(ended))
            self.note_use(root)
            return tensordict, root
        # The threads of the pool reset these rows while Python builds the data of the step.
        self._pool.send_reset(ended.nonzero()[0])
        try:
            root = self._next_root(tensordict, arrays)
        except BaseException:
            self._pool.receive_reset()
            raise
        self._write_reset(root, arrays, *self._pool.receive_reset())
        self.note_use(root)
        return tensordict, root

    def _next_root(self, tensordict: TensorDict, arrays: Arrays) -> TensorDictBase:
        self.put_next(tensordict, self._data(arrays))
        return self.step_mdp(tensordict)

    def _checked_step(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """Step through the base class, which validates the data against the specs."""
        tensordict = self.step(tensordict)
        root = self.step_mdp(tensordict)
        if self.raw_rows:
            for name in _FLAGS:
                root.set(name, torch.zeros_like(root.get(name)))
            return tensordict, root
        return tensordict, self.maybe_reset(root)

    def _clear_flags(self, root: TensorDictBase, n: int) -> None:
        level = entries(root) if type(root) is TensorDict and self.device is None else None
        flags = torch.zeros((len(_FLAGS), n, 1), dtype=torch.bool, device=self.device or "cpu")
        for name, value in zip(_FLAGS, flags.unbind(0), strict=True):
            if level is not None:
                level[name] = value
            else:
                root.set(name, value)

    def _write_reset(self, root: TensorDictBase, arrays: Arrays, ids: np.ndarray, fresh: Arrays) -> None:
        self._clear_flags(root, self.batch_size[0])
        for key, array in fresh.items():
            merged = arrays[key].copy()
            merged[ids] = array
            value = torch.from_numpy(merged)
            root.set(key, value.to(self.device) if self.device is not None else value)

    def maybe_reset(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Reset the rows that ended, in place.

        With ``raw_rows``, EnvPool resets them in the next step.
        """
        if self.raw_rows:
            for name in _FLAGS:
                tensordict.set(name, torch.zeros_like(tensordict.get(name)))
            return tensordict
        return super().maybe_reset(tensordict)

    def _set_seed(self, seed: int | None) -> None:
        raise NotSupported(
            "EnvPool seeds a pool only when it is made, and this pool was made outside of steppe. Make it with "
            "seed=..., or use MultiThreadedEnv, which makes a new pool with the seed."
        )

    def close(self, *, raise_if_closed: bool = False) -> None:
        """Close the pool and its threads."""
        was_closed = self.is_closed
        super().close(raise_if_closed=raise_if_closed)
        if not was_closed:
            self._env.close()
            self.__dict__["_env"] = self._pool.library = None


class MultiThreadedEnv(MultiThreadedEnvWrapper):
    """Make a pool of EnvPool by the name of its environments.

    >>> from steppe import EnvPoolEnv
    >>> env = EnvPoolEnv(8, "CartPole-v1", num_threads=2)
    >>> env.rollout(100, break_when_any_done=False)["observation"].shape
    torch.Size([8, 100, 4])
    >>> env.close()

    Args:
        num_workers: number of environments in the pool.
        env_name: a name of ``envpool.list_all_envs()``.
        create_env_kwargs: arguments of ``envpool.make``: ``seed``, ``num_threads``, ``max_episode_steps``, ...
        categorical_action_encoding: see :class:`MultiThreadedEnvWrapper`.
        raw_rows: see :class:`MultiThreadedEnvWrapper`.
        **kwargs: for :class:`steppe.envs.EnvBase`, and for ``envpool.make``.

    ``set_seed`` makes a new pool, because EnvPool's ``reset(seed)`` ignores its argument. EnvPool derives the seed of
    environment i from that seed and i.

    Raises:
        EnvNotFound: EnvPool has no such environment.
    """

    _BASE_ARGUMENTS = ("device", "run_type_checks", "allow_done_after_reset", "spec_locked")

    def __init__(
        self,
        num_workers: int,
        env_name: str,
        create_env_kwargs: dict[str, Any] | None = None,
        *,
        categorical_action_encoding: bool = False,
        raw_rows: bool = False,
        **kwargs: Any,
    ) -> None:
        if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 1:
            raise ArgumentError(f"num_workers must be an integer >= 1, found {num_workers!r}.")
        num_envs = {**(create_env_kwargs or {}), **kwargs}.get("num_envs", num_workers)
        if num_envs != num_workers:
            raise ArgumentError(
                f"The number of environments is num_workers={num_envs!r} here, not num_envs={num_envs!r}."
            )
        base_kwargs = {name: kwargs.pop(name) for name in self._BASE_ARGUMENTS if name in kwargs}
        settings = {**(create_env_kwargs or {}), **kwargs, "num_envs": num_workers}
        super().__init__(
            _make(env_name, settings),
            categorical_action_encoding=categorical_action_encoding,
            raw_rows=raw_rows,
            **base_kwargs,
        )
        self.__dict__["env_name"] = env_name
        self.__dict__["_settings"] = settings

    def _set_seed(self, seed: int | None) -> None:
        # EnvPool's seeds are 32-bit signed.
        value = int(np.random.default_rng().integers(2**31)) if seed is None else int(seed) % (2**31 - 1)
        self._env.close()
        self.__dict__["_env"] = self._pool.library = _make(self.env_name, {**self._settings, "seed": value})
        self._ended[:] = False

    def __getstate__(self) -> dict[str, Any]:
        raise NotSupported(
            "A pool of EnvPool cannot be pickled: pass a factory, and make the pool in the process that uses it."
        )

    def __repr__(self) -> str:
        return f"MultiThreadedEnv({self.batch_size[0]}, {self.env_name!r})"


def _make(name: str, settings: dict[str, Any]) -> Any:
    import envpool

    if name not in envpool.list_all_envs():
        raise env_not_found("envpool", name)
    return envpool.make(name, env_type="gymnasium", **settings)


def _batched(spec: Spec, n: int) -> Spec:
    if isinstance(spec, Composite):
        return Composite({key: _batched(leaf, n) for key, leaf in spec.items()}, shape=(n,))
    return spec.expand(n, *spec.shape)


EnvPoolEnv = MultiThreadedEnv  # a name that tells which library it is
