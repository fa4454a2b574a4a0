"""GymLikeEnv: the base class of wrappers of gym-like libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import NestedKey, TensorDict, TensorDictBase

from steppe.arguments import ignored_argument
from steppe.envs import (
    ActionCodec,
    ArrayEnv,
    LibraryWrapper,
    RowSteps,
    as_numbers,
    base_arguments,
    info_for_library,
    name_place,
    refuse_seed,
)
from steppe.errors import ArgumentError, NotSupported, SpecError
from steppe.specs import CPU, Composite, NonTensor
from steppe_gym_like.info_readers import default_info_dict_reader

__all__ = ["GymLikeEnv"]

Key: TypeAlias = "str | tuple[str, ...]"


class GymLikeEnv(LibraryWrapper, ArrayEnv):
    """Base class of wrappers of an environment with ``reset`` and ``step(action)``.

    On TensorDicts, each step calls :meth:`read_action`, ``_env.step``, :meth:`_output_transform`, :meth:`read_reward`,
    :meth:`read_done` and :meth:`read_obs`; override any of them. A subclass that also defines ``step_into`` and
    ``reset_into`` is stepped through rows, unless a subclass of it overrides one of these methods.

    Attributes that the class does not have are looked up on ``_env``.

    A subclass passes the library's environment to ``__init__`` and assigns its specs. Alternatively, like wrappers
    written for TorchRL, it defines :meth:`_build_env`, which makes the environment, and :meth:`_make_specs`.
    ``__init__`` then calls ``_check_kwargs(kwargs)``, ``_build_env(**kwargs)``, ``_make_specs(env)`` and
    ``_init_env()``, in this order.

    >>> from steppe import Categorical, Composite, Unbounded
    >>> from steppe_gym_like import GymLikeEnv
    >>> class Line:  # an environment of some library
    ...     def reset(self):
    ...         self.position = 0
    ...         return [0.0]
    ...     def step(self, action):
    ...         self.position += 2 * action - 1
    ...         return [float(self.position)], -abs(self.position), self.position > 2, False, {}
    >>> class LineEnv(GymLikeEnv):
    ...     def __init__(self, **kwargs):
    ...         super().__init__(Line(), **kwargs)
    ...         self.observation_spec = Composite(observation=Unbounded((1,)))
    ...         self.action_spec = Categorical(2)
    ...         self.reward_spec = Unbounded((1,))
    ...     def _reset_output_transform(self, output):
    ...         return output, {}
    ...     def _output_transform(self, output):
    ...         observation, reward, terminated, truncated, info = output
    ...         return observation, reward, terminated, truncated, terminated or truncated, info
    ...     def _set_seed(self, seed):
    ...         pass
    >>> LineEnv(frame_skip=2).rollout(3)["next", "observation"].shape
    torch.Size([3, 1])

    Args:
        env: the library's environment; in a class with ``_build_env`` a keyword argument of that method.
        frame_skip: number of times that an action is repeated. Rewards are summed; the end of an episode stops it.
        **kwargs: for :class:`~steppe.envs.EnvBase`. In a class with ``_build_env``, all others are passed to that
            method, except ``convert_actions_to_numpy``: False passes the action to the library's ``step`` unconverted.
    """

    def __init__(self, env: Any = None, *, frame_skip: int | None = None, **kwargs: Any) -> None:
        if frame_skip is not None and (
            isinstance(frame_skip, bool) or not isinstance(frame_skip, int) or frame_skip < 1
        ):
            raise ArgumentError(f"frame_skip must be a whole number >= 1, found {frame_skip!r}.")
        builds = type(self)._build_env is not GymLikeEnv._build_env
        options = base_arguments(kwargs) if builds else kwargs
        super().__init__(**options)
        self.frame_skip = frame_skip or 1
        self._wrapper_frame_skip: int | None = None
        self.info_dict_reader: list[Any] = []
        self._convert_actions_to_numpy = True
        if not builds:
            if env is None:
                raise TypeError(f"{type(self).__name__} wraps an environment: pass it as env, or define _build_env.")
            self.wrap_library(env)
            return
        if env is not None:
            kwargs["env"] = env
        self._constructor_kwargs = kwargs
        self._check_kwargs(kwargs)
        self._convert_actions_to_numpy = kwargs.pop("convert_actions_to_numpy", True)
        self.wrap_library(self._build_env(**kwargs))
        self._make_specs(self._env)
        self._init_env()

    def _check_kwargs(self, kwargs: dict[str, Any]) -> None:
        """Raise an error for wrong keyword arguments, before :meth:`_build_env` is called."""

    def _build_env(self, **kwargs: Any) -> Any:
        """Make the library's environment and return it."""
        raise NotSupported(f"{type(self).__name__} does not define _build_env(**kwargs).")

    def _make_specs(self, env: Any) -> None:
        """Assign the specs of the library's environment."""

    def _init_env(self) -> object:
        """Initialize the environment, after its specs and before the first reset."""

    @property
    def wrapper_frame_skip(self) -> int:
        """Number of times that the wrapper repeats an action.

        It is ``frame_skip``, or 1 if the library repeats actions. A subclass whose library repeats actions sets it to
        1; None restores the default.
        """
        return self.frame_skip if self._wrapper_frame_skip is None else self._wrapper_frame_skip

    @wrapper_frame_skip.setter
    def wrapper_frame_skip(self, value: int | None) -> None:
        self._wrapper_frame_skip = value

    def fast_encoding(self, mode: bool = True) -> None:
        """Warn once that this method of TorchRL has no effect.

        Conversions are always compiled from the specs.
        """
        ignored_argument(
            type(self).__name__, "fast_encoding()", "encoding is always compiled from the specs", kind="method"
        )

    # -- infos ----------------------------------------------------------------------------------------------------

    def set_info_dict_reader(self, info_dict_reader: Any = None, ignore_private: bool = True) -> GymLikeEnv:
        """Add values of the library's info dict to the observations.

        Args:
            info_dict_reader: a callable ``(info, tensordict) -> tensordict`` with an ``info_spec``; a list of keys; or
                None for all keys that hold numbers.
            ignore_private: skip keys that begin with an underscore.

        Returns:
            The environment, with the ``info_spec`` of the reader in its observation spec. With a reader that is not a
            :class:`default_info_dict_reader`, steps go through TensorDicts instead of rows.
        """
        reader = info_dict_reader
        if reader is None or isinstance(reader, (list, tuple)):
            reader = default_info_dict_reader(
                list(reader) if reader is not None else None, ignore_private=ignore_private
            )
        if isinstance(reader, default_info_dict_reader):
            wanted = set(reader.keys or []) - set(reader.info_spec.keys())
            if reader.keys is None or wanted:
                for info in self._sample_infos():
                    reader.learn(info)
            absent = sorted(set(reader.keys or []) - set(reader.info_spec.keys()))
            if absent:
                raise SpecError(
                    f"The info dict of {type(self).__name__} has no numbers at {absent} in its first steps. Pass their "
                    f"specs: default_info_dict_reader(keys, spec={...})."
                )
        self.info_dict_reader.append(reader)
        spec = getattr(reader, "info_spec", None)
        if spec is not None:
            merged = self.full_observation_spec.clone()
            for key, leaf in spec.items():
                merged[key] = leaf
            self.full_observation_spec = merged
        self.specs_changed()
        return self

    def auto_register_info_dict(self, ignore_private: bool = True, *, info_dict_reader: Any = None) -> GymLikeEnv:
        """Add all infos that are numbers to the observations.

        A few steps are taken to find them.

        Args:
            ignore_private: skip keys that begin with an underscore.
            info_dict_reader: see :meth:`set_info_dict_reader`.

        Returns:
            The environment, whose observation spec has the new entries.
        """
        return self.set_info_dict_reader(info_dict_reader, ignore_private)

    def _sample_infos(self) -> list[Mapping[str, Any]]:
        """Return the infos of one reset and a few steps, which show shapes and dtypes."""
        infos = [self._reset_output_transform(self._env_reset(None, None))[1]]
        for _ in range(3):
            sample = self.full_action_spec.rand()
            action = sample[self.action_keys[0]] if len(self.action_keys) == 1 else sample
            if self._convert_actions_to_numpy:
                action = self.read_action(action)
            elif len(self.action_keys) > 1:
                action = action.to_dict()
            outputs = self._env_step(action)
            _, _, terminated, truncated, done, info = self._output_transform(outputs)
            infos.append(info)
            if self.read_done(terminated=terminated, truncated=truncated, done=done)[-1]:
                break
        self._env_reset(None, None)
        return [info for info in infos if info is not None]

    def no_rows_reason(self) -> str | None:
        for reader in self.info_dict_reader:
            if not isinstance(reader, default_info_dict_reader):
                return f"the info reader {type(reader).__name__} takes a TensorDict."
        return super().no_rows_reason()

    # -- on TensorDicts -------------------------------------------------------------------------------------------

    def read_action(self, action: Any) -> Any:
        """Return the library action for the action in the data."""
        if isinstance(action, TensorDictBase):
            return self._codec.from_tensordict(action)
        return self._codec.decoders[self.action_key].one(action)

    def read_obs(self, observations: Any) -> dict[Key, torch.Tensor]:
        """Return the library's observation as ``{key: tensor}``, by the observation spec."""
        if isinstance(observations, Mapping) and "state" in observations and "observation" not in observations:
            renamed = "state" not in self.full_observation_spec.keys()
            names = {"state": "observation"} if renamed else {}
            observations = {names.get(name, name): value for name, value in observations.items()}
        if not isinstance(observations, Mapping):
            keys = [key for key in self.observation_keys if key not in self.info_keys]
            observations = {keys[0] if keys else "observation": observations}
        return self._encode(observations, self.full_observation_spec, ())

    def read_reward(self, reward: object) -> torch.Tensor:
        """Return the library's reward as a tensor of the reward spec's shape and dtype."""
        spec = self.full_reward_spec[self.reward_keys[0]]
        value = torch.from_numpy(as_numbers(self.reward_keys[0], reward)).to(dtype=spec.dtype, device=self.device)
        return value.reshape(spec.shape)

    def read_done(self, terminated: Any = None, truncated: Any = None, done: Any = None) -> tuple[Any, Any, Any, bool]:
        """Return the completed done flags ``(terminated, truncated, done, stop)``.

        ``stop`` ends the frame skip.
        """
        if terminated is None and done is not None:
            terminated = done
        if truncated is None:
            truncated = np.zeros_like(terminated) if isinstance(terminated, np.ndarray) else False
        done = terminated | truncated if done is None else done
        return terminated, truncated, done, bool(np.any(done))

    def _output_transform(self, step_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the result of the library's step as six values.

        They are ``(obs, reward, terminated, truncated, done, info)``.
        """
        observation, reward, terminated, truncated, info = step_outputs
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool):
                self.check_flag(name, flag)
        return observation, reward, terminated, truncated, terminated | truncated, info

    def check_flag(self, name: str, value: object) -> None:
        """Validate a done entry of the library.

        numpy would convert None to False, and text to True.

        Args:
            name: ``"terminated"`` or ``"truncated"``.
            value: a bool or a number, or an array or tensor of these with as many elements as the spec.

        Raises:
            SpecError: the value is something else.
        """
        array = np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value)
        if array.dtype.kind not in "biuf" or array.size != self.full_done_spec[self.done_keys[0]].shape.numel():
            raise SpecError(f"{name!r} must be True or False; found {value!r}.")

    def _reset_output_transform(self, reset_outputs: Any) -> tuple[Any, Any]:
        """Return the result of the library's reset as ``(obs, info)``."""
        observation, info = reset_outputs
        return observation, info

    def _env_step(self, action: Any) -> Any:
        return self._env.step(action)

    def _env_reset(self, seed: int | None, env_info: dict[str, Any] | None, **kwargs: Any) -> Any:
        if seed is not None:
            kwargs["seed"] = seed
        return self._env.reset(**kwargs)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        try:
            return self._library_step(tensordict)
        except SpecError as error:
            name_place(error, self, "step")
            raise

    def _library_step(self, tensordict: TensorDictBase) -> TensorDictBase:
        keys = self.action_keys
        action = tensordict[keys[0]] if len(keys) == 1 else tensordict.select(*keys)
        if self._convert_actions_to_numpy:
            action = self.read_action(action)
        elif len(keys) > 1:
            action = action.to_dict()
        total: Any = 0
        times = self.wrapper_frame_skip
        for _ in range(times):
            outputs = self._output_transform(self._env_step(action))
            observation, reward, terminated, truncated, done, info = outputs
            terminated, truncated, done, stop = self.read_done(terminated=terminated, truncated=truncated, done=done)
            try:
                total = reward if times == 1 else total + reward
            except TypeError:  # not a number: read_reward below raises an error
                total = reward
                break
            if stop:
                break
        data = self.new_data(self.read_obs(observation))
        data.set(self.reward_keys[0], self.read_reward(total))
        flags = {"done": done, "terminated": terminated, "truncated": truncated}
        for name in self.done_keys:
            shape = self.full_done_spec[name].shape
            data.set(name, torch.as_tensor(np.asarray(flags[name], bool), device=self.device or CPU).reshape(shape))
        return self.read_info(info, data)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        refuse_seed(kwargs)
        env_info = tensordict.get("env_info", None) if tensordict is not None else None
        outputs = self._reset_output_transform(self._env_reset(self.take_seed(), info_for_library(env_info), **kwargs))
        observation, info = outputs
        try:
            data = self.new_data(self.read_obs(observation))
        except SpecError as error:
            name_place(error, self, "reset")
            raise
        data = self.read_info(info, data)
        return data.update(self.full_done_spec.zero())

    def read_info(self, info: Any, data: TensorDictBase) -> TensorDictBase:
        """Call the info readers on the library's info dict, and return the data."""
        for reader in self.info_dict_reader:
            read = reader({} if info is None else info, data)
            data = data if read is None else read
        return data

    @property
    def info_keys(self) -> set[NestedKey]:
        """The entries that info readers write."""
        return {key for reader in self.info_dict_reader for key in getattr(reader, "info_spec", {}).keys()}

    def new_data(self, values: Mapping[Key, Any]) -> TensorDict:
        """Return a TensorDict of these entries, with the environment's batch size."""
        data = TensorDict({}, batch_size=self.batch_size, device=self.device)
        for key, value in values.items():
            data.set(key, value)
        return data

    def _encode(self, values: Mapping[Any, Any], spec: Composite, prefix: tuple[str, ...]) -> dict[Key, torch.Tensor]:
        out: dict[Key, torch.Tensor] = {}
        for name, value in values.items():
            if name not in spec.keys():
                continue
            leaf = spec[name]
            key: Key = (*prefix, name) if prefix else name
            if isinstance(leaf, Composite):
                out.update(self._encode(value, leaf, (*prefix, name)))
            elif isinstance(leaf, NonTensor):
                out[key] = leaf.encode(value, lead=())
            else:
                # Libraries reuse the memory of their observations, so the value is copied.
                out[key] = leaf.encode(np.array(value) if isinstance(value, np.ndarray) else value, lead=())
        return out

    @property
    def _codec(self) -> ActionCodec:
        codec = self.cached("codec", lambda: ActionCodec(self.full_action_spec))
        assert isinstance(codec, ActionCodec)
        return codec

    def _forced_steps(self) -> RowSteps:
        raise SpecError(f"{type(self).__name__} reads its data through read_obs, not through arrays.")
