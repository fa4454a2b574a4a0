"""GymWrapper: an environment object of gym or gymnasium, of any version."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
import torch
from tensordict import TensorDictBase, is_non_tensor, is_tensor_collection

from steppe.arguments import ignored_argument, unknown_argument
from steppe.envs import ActionCodec, GymLikeEnv, default_info_dict_reader
from steppe.errors import LibraryMissing, NotSupported, SpecError
from steppe.registry import AvailableEnvs
from steppe.specs import Binary, Composite, Spec, Unbounded
from steppe.versions import set_gym_backend

from .actions import action_decoder, joint_choice, joint_decoder
from .compat import Adapter, StableBaselines, adapter_for
from .kernels import Kernel, bind_kernel, compile_kernel
from .names import available_names
from .peeking import find_attribute, library_of
from .pixels import PIXELS, are_frames, observes_pixels, with_pixels
from .skipping import repeated
from .spaces import space_to_spec
from .values import SpaceReader
from .vector import Batch, RowsReader, is_vector, reset_mask, single_spaces, step_mask

__all__ = ["GymWrapper"]


class GymWrapper(GymLikeEnv):
    """An environment of gym or gymnasium as a steppe environment.

    ====================  =========================================================================================
    Key                   What
    ====================  =========================================================================================
    ``"observation"``     the observation; the entries of a Dict space have their own names (``"state"`` becomes
                          ``"observation"`` where there is none), the parts of a Tuple ``("observation", "0")``, ...
    ``"pixels"``          ``[H, W, 3]`` uint8, with ``from_pixels``, and where the observation is such a frame
    ``"action"``          the action; one-hot (int64) where the space is Discrete. The entries of a Dict space have
                          their own names at the root. A MultiDiscrete is one choice among all combinations where an
                          observation ``"action_mask"`` says which of them are allowed
    ``"reward"``          ``[1]`` float32, or what the environment's ``reward_space`` says
    ``"done"``            ``[1]`` bool, with ``"terminated"`` and ``"truncated"``
    ====================  =========================================================================================

    Which library and which generation of its API the environment belongs to is found out once, and kept: environments
    of gym and gymnasium live side by side whatever the backend is later. The seed given to ``set_seed`` is used by the
    next reset as ``env.reset(seed=seed)``; resets after that go on with the same generator.

    Attributes that this class lacks are looked up on the environment, through its wrappers.

    Args:
        env: the environment, made by either library. Vector environments become a batch.
        categorical_action_encoding: discrete values as integers instead of one-hot rows.
        frame_skip: how many times an action is repeated; rewards are summed, and the end of the episode stops it.
        from_pixels: render a frame at each step and add it as ``"pixels"``.
        pixels_only: with ``from_pixels``, leave the library's own observation out.
        missing_obs_value: in a vector environment whose library has lost the last observation of an episode, what
            stands in its place; NaN where None, 0 where there is no NaN.
        convert_actions_to_numpy: False gives the library's ``step`` the action as it is in the data, a tensor: for
            environments that compute with torch. Such an environment is stepped on TensorDicts.
        native_autoreset: taken without effect: it is about other libraries' environments.
        device: where data comes out and goes in. The library computes on the CPU whatever is said here.
        **kwargs: for :class:`steppe.envs.EnvBase`: ``auto_reset``, ``allow_done_after_reset``, ...

    Raises:
        NotSupported: a space that has no layout as tensors.
    """

    available_envs = AvailableEnvs(available_names)
    """The ids of the library that answers now; empty where none is installed."""

    libname = "gym"

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
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        for name in kwargs:
            if name not in _OF_THE_BASE:
                raise unknown_argument(type(self).__name__, name, [*_OWN, *_OF_THE_BASE])
        if native_autoreset:
            instead = "vector environments of gym and gymnasium are reset as their version does it"
            ignored_argument(type(self).__name__, "native_autoreset", instead)
        if not hasattr(env, "action_space") or not hasattr(env, "observation_space"):
            raise TypeError(
                f"GymWrapper wraps an environment of gym or gymnasium, which has spaces, not {env!r}. "
                "GymEnv('CartPole-v1') makes one by its name."
            )
        if is_vector(env):
            kwargs["batch_size"] = (int(env.num_envs),)
            if (frame_skip or 1) > 1:
                raise NotSupported(
                    "The rows of a vector environment cannot repeat their actions each on its own: "
                    "GymEnv(name, num_envs, frame_skip=...) makes one whose environments do."
                )
        super().__init__(env, frame_skip=frame_skip, device=device, **kwargs)
        state = self.__dict__
        state["categorical_action_encoding"] = categorical_action_encoding
        state["_missing_obs_value"] = missing_obs_value
        state["_convert_actions_to_numpy"] = convert_actions_to_numpy
        self._take(env, from_pixels=from_pixels, pixels_only=pixels_only)

    def _take(self, env: Any, *, from_pixels: bool, pixels_only: bool) -> None:
        """Take an environment of the library, and all that follows from it."""
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
        """Wrap anew, with other arguments than the environment was made with; the specs follow.

        >>> env.rebuild_with_kwargs(from_pixels=True, pixels_only=False)  # doctest: +SKIP

        The next call is a reset, and a seed is given again. Info readers stay.

        Args:
            **kwargs: ``env``, ``from_pixels`` or ``pixels_only``; of :class:`GymEnv` all that decides what is made.

        Raises:
            NotSupported: the environment would be a batch of another size.
        """
        for name in kwargs:
            if name not in self._constructor_kwargs:
                raise unknown_argument(f"{type(self).__name__}.rebuild_with_kwargs", name, self._constructor_kwargs)
        self._take_another(**{**self._constructor_kwargs, **kwargs})

    def _take_another(self, env: Any, *, from_pixels: bool, pixels_only: bool) -> None:
        batch = (int(env.num_envs),) if is_vector(env) else ()
        if batch != tuple(self.batch_size):
            raise NotSupported(
                f"{self!r} has the batch size {tuple(self.batch_size)}, which rebuild_with_kwargs cannot make {batch}: "
                "make another environment."
            )
        self._take(env, from_pixels=from_pixels, pixels_only=pixels_only)
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
        taken = sorted(_TAKEN & set(entries))
        if taken:
            raise SpecError(
                f"{self!r} observes entries named {taken}, which are keys of other things in data. Give them other "
                "names, in a wrapper of the library's kind around the environment."
            )
        actions = dict(action.items()) if _by_name(action, action_space) else {"action": action}
        clash = sorted((set(actions) - {"action"}) & (_TAKEN | set(entries)))
        if clash:
            raise SpecError(
                f"{self!r} has actions named {clash}, which are keys of other things in data. Give them other names, "
                "in a wrapper of the library's kind around the environment."
            )
        self.observation_spec = self._batched(entries)
        self.action_spec = self._batched(actions)
        self.reward_spec = self._batched({"reward": self._reward_spec()})
        self.done_spec = self._batched({"done": flag, "terminated": flag.clone(), "truncated": flag.clone()})

    def _specs_of_values(self) -> tuple[Spec, Spec]:
        """What one observation and one action are, without a batch."""
        observation_space, action_space = single_spaces(self._env)
        observation = self._to_spec(observation_space)
        joint = joint_choice(action_space, observation, self.categorical_action_encoding, self.device)
        return observation, self._to_spec(action_space) if joint is None else joint

    def _compile_values(self, observation: Spec, action: Spec) -> None:
        """Make the functions between the library's values and the layout of the specs."""
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
        """These specs for the whole batch."""
        wide = {key: leaf.expand(torch.Size((*self.batch_size, *leaf.shape))) for key, leaf in entries.items()}
        return Composite(wide, shape=self.batch_size, device=self.device)

    def _to_spec(self, space: Any) -> Spec:
        return space_to_spec(space, categorical_action_encoding=self.categorical_action_encoding, device=self.device)

    def _reward_spec(self) -> Spec:
        """``[1]`` float32, unless the environment has a ``reward_space`` of its own."""
        space = find_attribute(self._env, "reward_space", None)
        single = find_attribute(self._env, "single_reward_space", None)
        space = space if single is None else single
        if space is None or not space.shape:
            return Unbounded(shape=(1,), dtype=torch.float32, device=self.device)
        spec = self._to_spec(space)
        return spec.to(torch.float32) if spec.dtype is not None and spec.dtype.is_floating_point else spec

    # -- the array path -------------------------------------------------------------------------------------------

    def reset_into(self, out: dict[Any, Any], seed: int | None, env_info: dict[str, Any] | None) -> None:
        """Begin an episode; ``env_info`` is what the library's ``reset`` calls ``options``."""
        observation, info = self._adapter.reset(self._env, seed, env_info)
        if "reset" not in self._checked:
            self._check_observation(observation, "reset")
        self._reader.write(observation, out)
        for reader in self.info_dict_reader:
            for key, array in reader.read(info).items():
                out[key][...] = array

    def step_into(self, action: Any, out: dict[Any, Any]) -> tuple[bool, bool]:
        """Act, with all that the specs decide compiled into one function at the first step."""
        return self._kernel(action, out)  # type: ignore[no-any-return]

    def bind_step(self, out: dict[Any, Any]) -> Kernel:
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

    def _first_kernel(self, action: Any, out: Any) -> tuple[bool, bool]:
        """The first step since the specs changed: check what the library returns, then check no more."""
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

    def _stepper(self) -> Any:
        """What takes an action of the library and returns its five values."""
        step, times = self._adapter.stepper(self._env), self.wrapper_frame_skip
        return repeated(step, times) if times > 1 else step

    def _forget_kernels(self) -> None:
        """Compile steps anew: something that they depend on has changed."""
        state = self.__dict__
        state.get("_stale", []).append(True)
        state["_stale"], state["_kernel"] = [], self._first_kernel

    def rows_problem(self) -> str | None:
        if self._vector is not None:
            return "the library's environment is a batch itself."
        if not self._reader.fixed:
            return "its observations have no fixed size."
        if not self._convert_actions_to_numpy:
            return "its actions reach the library as tensors (convert_actions_to_numpy=False)."
        return super().rows_problem()

    def specs_changed(self) -> None:
        super().specs_changed()
        self._forget_kernels()
        self.__dict__["_checked"] = set()

    # -- checks, at the first reset and the first step ------------------------------------------------------------

    def _check_observation(self, observation: Any, what: str) -> None:
        self._reader.check(observation, f"{self!r}.{what}")
        self._checked.add(what)

    def _check_step(self, observation: Any, reward: Any) -> None:
        self._check_observation(observation, "step")
        expected = tuple(self.full_reward_spec["reward"].shape)
        found = np.shape(reward)
        if reward is None or (found != expected and not (expected == (1,) and math.prod(found) == 1)):
            raise SpecError(
                f"{self!r}.step: 'reward' must have shape {expected}; the library returned {reward!r} of shape {found}."
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
            raise TypeError("reset takes no seed: env.set_seed(seed) gives one to the next reset.")
        if not {"options"}.issuperset(kwargs):
            raise TypeError(f"reset does not take {sorted(kwargs)}; the library's reset knows 'options'.")
        if self._vector is None:
            return super()._reset(tensordict, **kwargs)
        mask = reset_mask(tensordict)
        seed = self.take_seed() if mask is None or mask.all() else None
        values, info = self._vector.reset(mask, seed, kwargs.get("options"))
        data = self.new_data(values).update(self.full_done_spec.zero())
        return self._finish_rows(data, info, None)

    def _finish_rows(self, data: TensorDictBase, info: Any, valid: Any) -> TensorDictBase:
        """Add what a batch has beside its observations: infos, and which rows are transitions."""
        if self._vector.has_invalid_rows:
            found = np.ones(self._vector.n, bool) if valid is None else valid
            data.set("valid", torch.from_numpy(found[:, None]))
        return self.read_info(self._vector.rows_of_info(info), data) if self.info_dict_reader else data

    def read_action(self, action: Any) -> Any:
        """Turn the action in the data into one of the action space."""
        if self._vector is not None:
            several = is_tensor_collection(action) and not is_non_tensor(action)
            columns = {key: action.get(key) for key in self.action_keys} if several else {self.action_key: action}
            rows = self._row_codec.decode({key: _column(value) for key, value in columns.items()})
            return self._vector.actions(rows)
        native = super().read_action(
            action.to("cpu") if getattr(action, "device", None) not in (None, _CPU) else action
        )
        return native if self._decode is None else self._decode(native)

    def read_obs(self, observations: Any) -> dict[Any, Any]:
        """Turn a value of the observation space into ``{key: tensor}``."""
        if "read" not in self._checked:
            self._check_observation(observations, "read_obs")
            self._checked.add("read")
        found: dict[Any, Any] = self._reader.read(observations)
        return found

    def _output_transform(self, step_outputs: Any) -> tuple[Any, ...]:
        observation, reward, terminated, truncated, info = self._adapter.sort_step(step_outputs)
        terminated, truncated = np.asarray(terminated, bool), np.asarray(truncated, bool)
        return observation, reward, terminated, truncated, terminated | truncated, info

    def _reset_output_transform(self, reset_outputs: Any) -> tuple[Any, Any]:
        found: tuple[Any, Any] = self._adapter.sort_reset(reset_outputs)
        return found

    def _env_reset(self, seed: int | None, env_info: dict[str, Any] | None, **kwargs: Any) -> Any:
        return self._adapter.reset(self._env, seed, kwargs.get("options", env_info))

    def set_info_dict_reader(self, info_dict_reader: Any = None, ignore_private: bool = True) -> GymWrapper:
        """Add values of the library's info dict to the observations; see :class:`steppe.envs.GymLikeEnv`."""
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
        found = [adapter.reset(env)[1]]
        for _ in range(3):
            _, _, terminated, truncated, info = step(env.action_space.sample())
            found.append(info)
            if terminated or truncated:
                found.append(adapter.reset(env)[1])
        return found

    def _sample_rows(self) -> list[Mapping[str, Any]]:
        batch = self._vector
        found: list[Mapping[str, Any]] = batch.rows_of_info(batch.reset(None, None, None)[1])
        for _ in range(3):
            sample = self.full_action_spec.rand()
            if self._convert_actions_to_numpy:
                actions = self.read_action(sample)
            else:
                actions = sample[self.action_key] if len(self.action_keys) == 1 else sample.to_dict()
            found += batch.rows_of_info(batch.step(actions, None)[4])
            if batch.ended.any():
                batch.reset(batch.ended.copy(), None, None)
        batch.reset(None, None, None)
        return found

    # -- the library's own ----------------------------------------------------------------------------------------

    git_url = "https://github.com/Farama-Foundation/Gymnasium"

    @staticmethod
    def get_library_name(env: Any) -> str:
        """Return which library an environment belongs to, ``"gymnasium"`` or ``"gym"``: a name for ``set_gym_backend``.

        Raises:
            LibraryMissing: it is of neither.
        """
        name = library_of(env)
        if name is None:
            raise LibraryMissing(f"{env} belongs neither to gymnasium nor to gym: its spaces are of neither library.")
        return name

    @property
    def lib(self) -> Any:
        """The library that the environment was made by."""
        return self._adapter.module

    def render(self, mode: str | None = None, **kwargs: Any) -> Any:
        """Render as the library does.

        Args:
            mode: for libraries from before ``render_mode``: ``"human"`` or ``"rgb_array"``.
            **kwargs: for the library's ``render``.
        """
        return self._adapter.render(self._env, mode, **kwargs)

    def find_elsewhere(self, name: str) -> Any:
        env = self.__dict__.get("_env")
        if env is None or name.startswith("__"):
            return super().find_elsewhere(name)
        found = find_attribute(env, name, _MISSING)
        if found is _MISSING:
            raise AttributeError(f"Neither {type(self).__name__} nor the environment in it has {name!r}.")
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("_env", "frame_skip", "wrapper_frame_skip"):
            self._forget_kernels()

    def __getstate__(self) -> dict[str, Any]:
        if self._vector is not None:
            raise NotSupported("A vector environment cannot be pickled: give workers a function that makes it.")
        state = super().__getstate__()
        # Functions that were compiled from the specs are compiled again.
        for name in ("_kernel", "_stale", "_reader", "_decode"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._compile_values(*self._specs_of_values())
        self._forget_kernels()

    def __repr__(self) -> str:
        named = self.__dict__.get("name") or getattr(find_attribute(self._env, "spec", None), "id", None)
        named = named or type(self._env).__name__
        batch = f", batch_size={tuple(self.batch_size)}" if self.batch_size else ""
        return f"{type(self).__name__}({named}{batch})"


def _adapter_of(env: Any) -> Adapter:
    """How the library of an environment is talked to."""
    if is_vector(env) and not hasattr(env, "single_action_space"):
        return StableBaselines()
    library = library_of(env)
    if library is None:
        return adapter_for()
    with set_gym_backend(library):
        return adapter_for()


# What is said where an argument is neither: those of this class, and those of EnvBase.
_OWN = (
    "env",
    "categorical_action_encoding",
    "frame_skip",
    "from_pixels",
    "pixels_only",
    "missing_obs_value",
    "convert_actions_to_numpy",
    "native_autoreset",
    "device",
)
_OF_THE_BASE = (
    "batch_size",
    "run_type_checks",
    "allow_done_after_reset",
    "spec_locked",
    "auto_reset",
    "auto_reset_replace",
)
_CPU = torch.device("cpu")
_MISSING = object()
# Keys at the root of data that are no observations.
_TAKEN = {"action", "reward", "done", "terminated", "truncated", "next"}


def _column(value: Any) -> Any:
    """The actions of all rows under one key: an array, or a list where they are no tensors."""
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value.tolist()


def _renamed(spec: Spec) -> dict[str, str]:
    """A Dict's "state" is called "observation" where nothing else is, as its users expect."""
    names = set(spec.keys()) if isinstance(spec, Composite) else set()
    return {"state": "observation"} if "state" in names and "observation" not in names else {}


def _rooted(space: Any, spec: Spec, names: Mapping[str, str]) -> dict[str, Spec]:
    """The observation spec's entries at the root."""
    if _by_name(spec, space):
        return {names.get(str(key), str(key)): part for key, part in spec.items()}
    return {_key(space): spec}


def _by_name(spec: Spec, space: Any) -> TypeGuard[Composite]:
    """Whether a space is a Dict, whose entries have names of their own."""
    return isinstance(spec, Composite) and hasattr(getattr(space, "spaces", None), "keys")


def _key(space: Any) -> str:
    """What an observation without a name is called: frames are pixels."""
    return PIXELS if are_frames(space) else "observation"
