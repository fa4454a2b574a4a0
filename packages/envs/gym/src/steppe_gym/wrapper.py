"""GymWrapper: wrap an environment object of gym or gymnasium, of any version."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeGuard

import numpy as np
import torch
from tensordict import TensorDictBase, is_non_tensor, is_tensor_collection

from steppe.arguments import ignored_argument, unknown_argument
from steppe.envs import ActionCodec, set_in_wrappers
from steppe.errors import ArgumentError, LibraryMissing, NotSupported, SpecError
from steppe.registry import AvailableEnvs
from steppe.specs import Binary, Composite, Spec, Unbounded
from steppe.versions import set_gym_backend
from steppe_gym_like import GymLikeEnv, default_info_dict_reader

from .actions import action_decoder, joint_choice, joint_decoder
from .attribute_lookup import find_attribute, library_of
from .compat import Adapter, StableBaselines, Step, adapter_for
from .frame_skip import repeated
from .kernels import Kernel, bind_kernel, compile_kernel
from .names import available_names
from .pixels import PIXELS, are_frames, observes_pixels, with_pixels
from .reset_values import AttributeValues, spec_of_values
from .spaces import space_to_spec
from .values import SpaceReader
from .vector import Batch, RowsReader, is_vector, reset_mask, single_spaces, step_mask

__all__ = ["GymWrapper"]


class GymWrapper(GymLikeEnv):
    """Wrap an environment object of gym or gymnasium, single or vector.

    ====================  =========================================================================================
    Key                   Value
    ====================  =========================================================================================
    ``"observation"``     the observation. Entries of a Dict space have their own names (``"state"`` becomes
                          ``"observation"`` if there is no such entry), parts of a Tuple ``("observation", "0")``, ...
    ``"pixels"``          ``[H, W, 3]`` uint8, with ``from_pixels``, or if the observation is such a frame
    ``"action"``          the action; one-hot (int64) for a Discrete space. Entries of a Dict space have their own names
                          at the root. A MultiDiscrete action is one choice among all combinations if the observation
                          has an ``"action_mask"`` over combinations
    ``"reward"``          ``[1]`` float32, or the layout of the environment's ``reward_space``
    ``"done"``            ``[1]`` bool, with ``"terminated"`` and ``"truncated"``
    ====================  =========================================================================================

    The library and the generation of its API are detected once, at construction. Environments of gym and gymnasium can
    be used side by side, and later changes of the backend do not affect them. The next reset passes the seed of
    ``set_seed`` as ``env.reset(seed=seed)``; later resets continue with the same generator.

    Attributes that this class lacks are looked up on the environment, through its wrappers.

    >>> import gymnasium
    >>> from steppe_gym import GymWrapper
    >>> GymWrapper(gymnasium.make("CartPole-v1")).rollout(3)["observation"].shape
    torch.Size([3, 4])

    Args:
        env: the environment, of either library. A vector environment becomes a batch.
        categorical_action_encoding: discrete values are integers instead of one-hot vectors.
        frame_skip: number of times that each action is repeated. Rewards are summed; the end of an episode stops it.
        from_pixels: render a frame in each step and add it as ``"pixels"``.
        pixels_only: with ``from_pixels``, leave out the observation of the library.
        missing_obs_value: the value of last observations that the library's vector environment has lost. ``None``:
            NaN, or 0 for integers.
        convert_actions_to_numpy: False passes actions to the library's ``step`` as tensors, for environments that
            compute with torch. Such an environment has no array path.
        native_autoreset: accepted for compatibility, without effect.
        env_info: the values that ``reset(env_info=...)`` takes, from which ``env_info_spec`` is inferred: a value for
            each name, as an example. For attributes, names suffice. By default the first request with an ``env_info``
            decides: ``Collector.execute``, or ``Collector.reset``.
        env_info_to: what these values are: ``"options"`` of the library's ``reset``, or ``"attributes"`` of the
            environment, such as CartPole's ``length``, which are set before each reset that has them.
        device: device of the data. The library always computes on the CPU.
        **kwargs: for :class:`steppe.envs.EnvBase`: ``auto_reset``, ``allow_done_after_reset``, ...

    Raises:
        NotSupported: a space has no tensor layout.
    """

    available_envs = AvailableEnvs(available_names)
    """The ids of the current backend; empty if neither library is installed."""

    libname = "gym"
    writes_loose_entries = True

    def __init__(
        self,
        env: Any,
        categorical_action_encoding: bool = False,
        *,
        frame_skip: int | None = None,
        from_pixels: bool = False,
        pixels_only: bool = False,
        missing_obs_value: Any = None,
        convert_actions_to_numpy: bool = True,
        native_autoreset: bool = False,
        env_info: Mapping[str, Any] | Sequence[str] | None = None,
        env_info_to: Literal["options", "attributes"] = "options",
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        for name in kwargs:
            if name not in _BASE_ARGUMENTS:
                raise unknown_argument(type(self).__name__, name, [*_ARGUMENTS, *_BASE_ARGUMENTS])
        if not isinstance(categorical_action_encoding, bool):
            raise TypeError(
                f"{type(self).__name__}: categorical_action_encoding must be True or False, found "
                f"{categorical_action_encoding!r}. Pass other arguments by name, and transforms to TransformedEnv(env, "
                "transform)."
            )
        if native_autoreset:
            instead = "vector environments of gym and gymnasium are reset as their version does it"
            ignored_argument(type(self).__name__, "native_autoreset", instead)
        if not hasattr(env, "action_space") or not hasattr(env, "observation_space"):
            raise TypeError(
                f"GymWrapper wraps an environment of gym or gymnasium, which has spaces, found {env!r}. To make one by "
                "its name, call GymEnv('CartPole-v1')."
            )
        if is_vector(env):
            kwargs["batch_size"] = (int(env.num_envs),)
            if (frame_skip or 1) > 1:
                raise NotSupported(
                    "GymWrapper cannot repeat actions in a vector environment, whose environments end at different "
                    "steps. Make one whose environments repeat actions: GymEnv(name, num_envs, frame_skip=...)."
                )
        super().__init__(env, frame_skip=frame_skip, device=device, **kwargs)
        state = self.__dict__
        state["categorical_action_encoding"] = categorical_action_encoding
        state["_missing_obs_value"] = missing_obs_value
        state["_convert_actions_to_numpy"] = convert_actions_to_numpy
        state["_attribute_values"] = None
        self._set_env(env, from_pixels=from_pixels, pixels_only=pixels_only)
        if env_info_to not in ("options", "attributes"):
            raise ArgumentError(
                f"{type(self).__name__}: env_info_to must be 'options' or 'attributes', found {env_info_to!r}."
            )
        state["_env_info_to"] = env_info_to
        if env_info is not None:
            self._take_env_info(env_info)

    def infer_env_info(self, values: Mapping[str, object]) -> Composite:
        """Infer ``env_info_spec`` from the values of the first request, if it was not declared.

        Args:
            values: a value for each name. Attributes take the specs of their current values.
        """
        if self.env_info_spec.is_empty():
            self._take_env_info(list(values) if self._env_info_to == "attributes" else values)
        return self.env_info_spec

    def _take_env_info(self, env_info: Mapping[str, Any] | Sequence[str]) -> None:
        """Infer ``env_info_spec``, and choose what a reset does with the values."""
        name = type(self).__name__
        if self._vector is not None:
            raise NotSupported(f"{name}: rows of the library's vector environments take no env_info; use SerialEnv.")
        examples: Any = env_info
        if self._env_info_to == "attributes":
            self.__dict__["_attribute_values"] = AttributeValues(self._env, list(env_info))
            if not isinstance(env_info, Mapping):
                examples = self._attribute_values.examples
        elif not isinstance(env_info, Mapping):
            raise ArgumentError(
                f"{name}: options have no value yet. Pass an example of each: env_info={{name: value}}."
            )
        self.env_info_spec = spec_of_values(examples)

    def _options(self, env_info: dict[str, object] | None) -> dict[str, object] | None:
        """Return the options of a reset, after attributes were set."""
        if self._attribute_values is None or env_info is None:
            return env_info
        self._attribute_values.set(env_info)
        return None

    def _set_env(self, env: Any, *, from_pixels: bool, pixels_only: bool) -> None:
        """Set the environment of the library, and derive adapter, specs and batch from it."""
        adapter = _adapter_of(env)
        wrapped = with_pixels(env, adapter, pixels_only=pixels_only) if from_pixels else env
        state = self.__dict__
        state["_constructor_kwargs"] = {"env": env, "from_pixels": from_pixels, "pixels_only": pixels_only}
        state["_env"] = wrapped
        state["_adapter"] = adapter
        state["from_pixels"] = from_pixels or observes_pixels(single_spaces(wrapped)[0])
        state["pixels_only"] = pixels_only
        state["_vector"] = None
        self._make_specs(wrapped)
        if is_vector(wrapped):
            self._make_batch()

    def rebuild_with_kwargs(self, **kwargs: Any) -> None:
        """Make and wrap the environment again with other arguments, and update the specs.

        >>> env.rebuild_with_kwargs(from_pixels=True, pixels_only=False)  # doctest: +SKIP

        Afterwards, reset the environment, and set the seed again. Info readers are kept.

        Args:
            **kwargs: ``env``, ``from_pixels`` or ``pixels_only``; for :class:`GymEnv`, all arguments that make the
                environment.

        Raises:
            NotSupported: the new environment has another batch size.
        """
        for name in kwargs:
            if name not in self._constructor_kwargs:
                raise unknown_argument(f"{type(self).__name__}.rebuild_with_kwargs", name, self._constructor_kwargs)
        self._replace_env(**{**self._constructor_kwargs, **kwargs})

    def _replace_env(self, env: Any, *, from_pixels: bool, pixels_only: bool) -> None:
        batch = (int(env.num_envs),) if is_vector(env) else ()
        if batch != tuple(self.batch_size):
            raise NotSupported(
                f"rebuild_with_kwargs cannot change the batch size of {self!r} from {tuple(self.batch_size)} to "
                f"{batch}: make another environment."
            )
        self._set_env(env, from_pixels=from_pixels, pixels_only=pixels_only)
        if self._attribute_values is not None:
            self.__dict__["_attribute_values"] = AttributeValues(self._env, list(self._attribute_values.examples))
        entries = self.full_observation_spec.clone()
        for reader in self.info_dict_reader:
            for key, leaf in getattr(reader, "info_spec", {}).items():
                entries[key] = leaf
        self.full_observation_spec = entries
        self.specs_changed()

    # -- specs ----------------------------------------------------------------------------------------------------

    def _make_specs(self, env: Any) -> None:
        observation_space, action_space = single_spaces(env)
        observation, action = self._specs_of_values()
        self._compile_values(observation, action)
        flag = Binary(shape=(1,), dtype=torch.bool, device=self.device)
        entries = _rooted(observation_space, observation, _renamed(observation))
        reserved = sorted(_RESERVED & set(entries))
        if reserved:
            raise SpecError(
                f"{self!r} observes entries named {reserved}, which are reserved keys. Rename them in a wrapper of the "
                "library around the environment."
            )
        actions = dict(action.items()) if _by_name(action, action_space) else {"action": action}
        clash = sorted((set(actions) - {"action"}) & (_RESERVED | set(entries)))
        if clash:
            raise SpecError(
                f"{self!r} has actions named {clash}, which are reserved keys or observations. Rename them in a "
                "wrapper of the library around the environment."
            )
        self.observation_spec = self._batched(entries)
        self.action_spec = self._batched(actions)
        self.reward_spec = self._batched({"reward": self._reward_spec()})
        self.done_spec = self._batched({"done": flag, "terminated": flag.clone(), "truncated": flag.clone()})

    def _specs_of_values(self) -> tuple[Spec, Spec]:
        """Return the specs of one observation and one action, without batch dimensions."""
        observation_space, action_space = single_spaces(self._env)
        observation = self._to_spec(observation_space)
        joint = joint_choice(action_space, observation, self.categorical_action_encoding, self.device)
        return observation, self._to_spec(action_space) if joint is None else joint

    def _compile_values(self, observation: Spec, action: Spec) -> None:
        """Compile the functions that read observations and decode actions."""
        observation_space, action_space = single_spaces(self._env)
        self.__dict__["_reader"] = SpaceReader(
            observation_space, observation, key=_key(observation_space), rename=_renamed(observation)
        )
        if joint_choice(action_space, observation) is not None:
            self.__dict__["_decode"] = joint_decoder(action_space)
            return
        self.__dict__["_decode"] = action_decoder(
            action_space, action, () if _by_name(action, action_space) else "action"
        )

    def _make_batch(self) -> None:
        state = self.__dict__
        state["_vector"] = Batch(self._env, self._adapter, self._reader, self._decode, self._missing_obs_value)
        state["_row_codec"] = ActionCodec(self.full_action_spec_unbatched)
        if self._vector.has_invalid_rows:
            valid = Binary(shape=(self._vector.n, 1), dtype=torch.bool, device=self.device)
            self.observation_spec = Composite(
                {**dict(self.full_observation_spec.items()), "valid": valid}, shape=self.batch_size, device=self.device
            )

    def _batched(self, entries: Mapping[str, Spec]) -> Composite:
        """Expand specs of one row to the batch."""
        wide = {key: leaf.expand(torch.Size((*self.batch_size, *leaf.shape))) for key, leaf in entries.items()}
        return Composite(wide, shape=self.batch_size, device=self.device)

    def _to_spec(self, space: Any) -> Spec:
        return space_to_spec(space, categorical_action_encoding=self.categorical_action_encoding, device=self.device)

    def _reward_spec(self) -> Spec:
        """Return the spec of the environment's ``reward_space``.

        It is ``[1]`` float32 if the environment has none.
        """
        space = find_attribute(self._env, "reward_space", None)
        single = find_attribute(self._env, "single_reward_space", None)
        space = space if single is None else single
        if space is None or not space.shape:
            return Unbounded(shape=(1,), dtype=torch.float32, device=self.device)
        spec = self._to_spec(space)
        return spec.to(torch.float32) if spec.dtype is not None and spec.dtype.is_floating_point else spec

    # -- the array path -------------------------------------------------------------------------------------------

    def reset_into(self, out: dict[Any, np.ndarray], seed: int | None, env_info: dict[str, object] | None) -> None:
        """Reset the environment.

        ``env_info`` is passed as ``options`` to the library's ``reset``, or sets attributes of the environment.
        """
        observation, info = self._adapter.reset(self._env, seed, self._options(env_info))
        if "reset" not in self._checked:
            self._check_observation(observation, "reset")
        self._reader.write(observation, out)
        for reader in self.info_dict_reader:
            for key, array in reader.read(info).items():
                out[key][...] = array

    def step_into(self, action: Any, out: dict[Any, np.ndarray]) -> tuple[bool, bool]:
        """Step the environment.

        The function that steps is compiled from the specs in the first step.
        """
        return self._kernel(action, out)  # type: ignore[no-any-return]

    def bind_step(self, out: dict[Any, np.ndarray]) -> Kernel:
        leaf = self._reader.plain
        if leaf is None or self.info_dict_reader or out["reward"].shape != (1,):
            return self.step_into
        return bind_kernel(
            self._stepper(),
            self._decode,
            out[leaf.key],
            leaf.write,
            out["reward"],
            check=None if "step" in self._checked else self._check_step,
            stale=self._stale,
            otherwise=self.step_into,
        )

    def _first_kernel(self, action: Any, out: dict[Any, np.ndarray]) -> tuple[bool, bool]:
        """Validate the first step after a change of the specs.

        Later steps are compiled without validation.
        """
        result = self._compile_kernel(checked=True)(action, out)
        self.__dict__["_kernel"] = self._compile_kernel(checked=False)
        return result

    def _compile_kernel(self, *, checked: bool) -> Kernel:
        return compile_kernel(
            self._stepper(),
            self._reader.write,
            self._decode,
            reward_shape=tuple(self.full_reward_spec["reward"].shape),
            readers=self.info_dict_reader,
            check=self._check_step if checked else None,
        )

    def _stepper(self) -> Step:
        """Return the function that takes an action of the library and returns five values."""
        step, times = self._adapter.stepper(self._env), self.wrapper_frame_skip
        return repeated(step, times) if times > 1 else step

    def _clear_kernels(self) -> None:
        """Mark compiled steps as outdated, so that the next step compiles them again."""
        state = self.__dict__
        state.get("_stale", []).append(True)
        state["_stale"], state["_kernel"] = [], self._first_kernel

    def no_rows_reason(self) -> str | None:
        if self._vector is not None:
            return "the environment of the library is a batch."
        if not self._convert_actions_to_numpy:
            return "it passes actions to the library as tensors (convert_actions_to_numpy=False)."
        return super().no_rows_reason()

    def specs_changed(self) -> None:
        super().specs_changed()
        self._clear_kernels()
        self.__dict__["_checked"] = set()

    def place_of_call(self, method: str) -> str:
        place = super().place_of_call(method)
        # The library's wrappers for time limits count the steps of an episode.
        step = find_attribute(self._env, "_elapsed_steps", None) if method == "step" else None
        return f"{place}, step {step} of the episode" if isinstance(step, int) else place

    # -- validation of the first reset and first step -------------------------------------------------------------

    def _check_observation(self, observation: Any, what: str) -> None:
        self._reader.check(observation, f"{self!r}.{what}")
        self._checked.add(what)

    def _check_step(self, observation: Any, reward: Any) -> None:
        self._check_observation(observation, "step")
        expected = tuple(self.full_reward_spec["reward"].shape)
        shape = np.shape(reward)
        if reward is None or (shape != expected and not (expected == (1,) and math.prod(shape) == 1)):
            raise SpecError(
                f"{self!r}.step: 'reward' must have shape {expected}; the library returned {reward!r} of shape {shape}."
            )

    # -- the tensordict path --------------------------------------------------------------------------------------

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self._vector is None:
            return super()._step(tensordict)
        keys = self.action_keys
        action = tensordict.get(keys[0]) if len(keys) == 1 else tensordict.select(*keys)
        if self._convert_actions_to_numpy:
            action = self.read_action(action)
        elif len(keys) > 1:
            action = action.to_dict()
        values, reward, terminated, truncated, info, valid = self._vector.step(action, step_mask(tensordict))
        data = self.new_data(values)
        data.set("reward", self.read_reward(reward))
        flags = {"done": terminated | truncated, "terminated": terminated, "truncated": truncated}
        for name, flag in flags.items():
            data.set(name, torch.from_numpy(flag).reshape(-1, 1))
        return self._finish_rows(data, info, valid)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        if "seed" in kwargs:
            raise TypeError("reset takes no seed. To seed the next reset, call env.set_seed(seed).")
        if not {"options"}.issuperset(kwargs):
            raise TypeError(f"reset takes only 'options', found {sorted(kwargs)}.")
        if self._vector is None:
            return super()._reset(tensordict, **kwargs)
        mask = reset_mask(tensordict)
        seed = self.take_seed() if mask is None or mask.all() else None
        values, info = self._vector.reset(mask, seed, kwargs.get("options"))
        data = self.new_data(values).update(self.full_done_spec.zero())
        return self._finish_rows(data, info, None)

    def _finish_rows(self, data: TensorDictBase, info: Any, valid: Any) -> TensorDictBase:
        """Add the entries that only batches have: infos, and the mask of valid transitions."""
        if self._vector.has_invalid_rows:
            valid_rows = np.ones(self._vector.n, bool) if valid is None else valid
            data.set("valid", torch.from_numpy(valid_rows[:, None]))
        return self.read_info(self._vector.rows_of_info(info), data) if self.info_dict_reader else data

    def read_action(self, action: Any) -> Any:
        """Convert the action in the data to a value of the action space."""
        if self._vector is not None:
            by_key = is_tensor_collection(action) and not is_non_tensor(action)
            columns = {key: action.get(key) for key in self.action_keys} if by_key else {self.action_key: action}
            rows = self._row_codec.decode({key: _column(value) for key, value in columns.items()})
            return self._vector.actions(rows)
        decoded = super().read_action(
            action.to("cpu") if getattr(action, "device", None) not in (None, _CPU) else action
        )
        return decoded if self._decode is None else self._decode(decoded)

    def read_obs(self, observations: Any) -> dict[Any, Any]:
        """Convert a value of the observation space to ``{key: tensor}``."""
        if "read" not in self._checked:
            self._check_observation(observations, "read_obs")
            self._checked.add("read")
        entries: dict[Any, Any] = self._reader.read(observations)
        return entries

    def _output_transform(self, step_outputs: Any) -> tuple[Any, ...]:
        observation, reward, terminated, truncated, info = self._adapter.sort_step(step_outputs)
        self.check_flag("terminated", terminated)
        self.check_flag("truncated", truncated)
        terminated, truncated = np.asarray(terminated, bool), np.asarray(truncated, bool)
        return observation, reward, terminated, truncated, terminated | truncated, info

    def _reset_output_transform(self, reset_outputs: Any) -> tuple[Any, Any]:
        observation, info = self._adapter.sort_reset(reset_outputs)
        return observation, info

    def _env_reset(self, seed: int | None, env_info: dict[str, object] | None, **kwargs: Any) -> Any:
        return self._adapter.reset(self._env, seed, kwargs.get("options", self._options(env_info)))

    def set_info_dict_reader(self, info_dict_reader: Any = None, ignore_private: bool = True) -> GymWrapper:
        """Add values of the library's info dict to the observations.

        See :class:`steppe_gym_like.GymLikeEnv`.
        """
        if self._vector is None:
            super().set_info_dict_reader(info_dict_reader, ignore_private)
            return self
        reader = info_dict_reader
        if reader is None or isinstance(reader, list | tuple):
            reader = default_info_dict_reader(None if reader is None else list(reader), ignore_private=ignore_private)
        if isinstance(reader, default_info_dict_reader):
            for info in self._sample_infos():
                reader.learn(info)
        super().set_info_dict_reader(RowsReader(reader, self._vector.n))
        return self

    def _sample_infos(self) -> list[Mapping[str, Any]]:
        if self._vector is not None:
            return self._sample_rows()
        if not self._convert_actions_to_numpy:
            return super()._sample_infos()
        adapter, env = self._adapter, self._env
        step = adapter.stepper(env)
        infos = [adapter.reset(env)[1]]
        for _ in range(3):
            _, _, terminated, truncated, info = step(env.action_space.sample())
            infos.append(info)
            if terminated or truncated:
                infos.append(adapter.reset(env)[1])
        return infos

    def _sample_rows(self) -> list[Mapping[str, Any]]:
        batch = self._vector
        infos: list[Mapping[str, Any]] = batch.rows_of_info(batch.reset(None, None, None)[1])
        for _ in range(3):
            sample = self.full_action_spec.rand()
            if self._convert_actions_to_numpy:
                actions = self.read_action(sample)
            else:
                actions = sample[self.action_key] if len(self.action_keys) == 1 else sample.to_dict()
            infos += batch.rows_of_info(batch.step(actions, None)[4])
            if batch.ended.any():
                batch.reset(batch.ended.copy(), None, None)
        batch.reset(None, None, None)
        return infos

    # -- the library ----------------------------------------------------------------------------------------------

    git_url = "https://github.com/Farama-Foundation/Gymnasium"

    @staticmethod
    def get_library_name(env: Any) -> str:
        """Return the library of an environment, as a name for ``set_gym_backend``.

        The name is ``"gymnasium"`` or ``"gym"``.

        Raises:
            LibraryMissing: the environment belongs to neither library.
        """
        name = library_of(env)
        if name is None:
            raise LibraryMissing(f"{env} belongs neither to gymnasium nor to gym: its spaces are of neither library.")
        return name

    @property
    def lib(self) -> Any:
        """The module of the environment's library."""
        return self._adapter.module

    def render(self, mode: str | None = None, **kwargs: Any) -> Any:
        """Call the library's ``render``.

        Args:
            mode: ``"human"`` or ``"rgb_array"``, for versions without ``render_mode``. Ignored otherwise.
            **kwargs: arguments of the library's ``render``.
        """
        return self._adapter.render(self._env, mode, **kwargs)

    def find_elsewhere(self, name: str) -> Any:
        env = self.__dict__.get("_env")
        if env is None or name.startswith("__"):
            return super().find_elsewhere(name)
        value = find_attribute(env, name, _MISSING)
        if value is _MISSING and self._vector is not None and not name.startswith("_"):
            return list(env.get_attr(name))
        if value is _MISSING:
            raise AttributeError(f"Neither {type(self).__name__} nor the environment in it has {name!r}.")
        return value

    def set_elsewhere(self, name: str, value: Any) -> bool:
        if self._vector is None or find_attribute(self._env, name, _MISSING) is not _MISSING:
            return set_in_wrappers(self._env, name, value)
        try:
            self._env.get_attr(name)
        except AttributeError:
            return False
        self._env.set_attr(name, value)
        return True

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("_env", "frame_skip", "wrapper_frame_skip"):
            self._clear_kernels()

    def __getstate__(self) -> dict[str, Any]:
        if self._vector is not None:
            raise NotSupported("A vector environment cannot be pickled: pass workers a function that makes it.")
        state = super().__getstate__()
        # Functions compiled from the specs cannot be pickled. They are compiled again.
        for name in ("_kernel", "_stale", "_reader", "_decode"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._compile_values(*self._specs_of_values())
        self._clear_kernels()

    def __repr__(self) -> str:
        label = self.__dict__.get("name") or getattr(find_attribute(self._env, "spec", None), "id", None)
        label = label or type(self._env).__name__
        batch = f", batch_size={tuple(self.batch_size)}" if self.batch_size else ""
        return f"{type(self).__name__}({label}{batch})"


def _adapter_of(env: Any) -> Adapter:
    """Return the adapter of an environment's library."""
    if is_vector(env) and not hasattr(env, "single_action_space"):
        return StableBaselines()
    library = library_of(env)
    if library is None:
        return adapter_for()
    with set_gym_backend(library):
        return adapter_for()


# Arguments of this class and of EnvBase, which errors about unknown arguments may suggest.
_ARGUMENTS = (
    "env",
    "categorical_action_encoding",
    "frame_skip",
    "from_pixels",
    "pixels_only",
    "missing_obs_value",
    "convert_actions_to_numpy",
    "native_autoreset",
    "env_info",
    "env_info_to",
    "device",
)
_BASE_ARGUMENTS = (
    "batch_size",
    "run_type_checks",
    "allow_done_after_reset",
    "spec_locked",
    "auto_reset",
    "auto_reset_replace",
)
_CPU = torch.device("cpu")
_MISSING = object()
# Root keys that are not observations.
_RESERVED = {"action", "reward", "done", "terminated", "truncated", "next"}


def _column(value: Any) -> Any:
    """Return the actions of all rows under one key.

    The result is an array for tensors, otherwise a list.
    """
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value.tolist()


def _renamed(spec: Spec) -> dict[str, str]:
    """Rename "state" of a Dict to "observation" if it has no "observation"."""
    names = set(spec.keys()) if isinstance(spec, Composite) else set()
    return {"state": "observation"} if "state" in names and "observation" not in names else {}


def _rooted(space: Any, spec: Spec, names: Mapping[str, str]) -> dict[str, Spec]:
    """Return the root entries of the observation spec."""
    if _by_name(spec, space):
        return {names.get(str(key), str(key)): part for key, part in spec.items()}
    return {_key(space): spec}


def _by_name(spec: Spec, space: Any) -> TypeGuard[Composite]:
    """Whether a space is a Dict, whose entries have names."""
    return isinstance(spec, Composite) and hasattr(getattr(space, "spaces", None), "keys")


def _key(space: Any) -> str:
    """Return the key of an observation that is not a Dict.

    The key is "pixels" for frames, otherwise "observation".
    """
    return PIXELS if are_frames(space) else "observation"
