"""Use steppe environments as gym or gymnasium environments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, is_tensor_collection

from steppe.arguments import ignored_argument
from steppe.envs import EnvBase
from steppe.errors import NotSupported
from steppe.registry import make_env
from steppe.specs import Categorical, Composite, MultiOneHot, NonTensor, OneHot, Spec
from steppe.versions import set_gym_backend

from .compat import Adapter, adapter_for
from .to_space import spec_to_space
from .values import SpaceReader

__all__ = ["as_gym", "register_gym"]


def register_gym(
    id: str,
    make: str | Callable[..., EnvBase],
    *,
    backend: str | None = None,
    transform: Any = None,
    info_keys: Sequence[Any] = (),
    to_numpy: bool = True,
    dict_observations: bool = False,
    max_episode_steps: int | None = None,
    reward_threshold: float | None = None,
    nondeterministic: bool = False,
    order_enforce: bool | None = None,
    autoreset: bool | None = None,
    disable_env_checker: bool | None = None,
    apply_api_compatibility: bool | None = None,
    **kwargs: Any,
) -> None:
    """Register a steppe environment with gymnasium or gym.

    >>> import gymnasium
    >>> from steppe_gym import register_gym
    >>> register_gym("Swing-v0", "gym:Pendulum-v1")
    >>> gymnasium.make("Swing-v0").action_space
    Box(-2.0, 2.0, (1,), float32)

    Args:
        id: the id for the library's ``make``.
        make: a steppe id, such as ``"vmas:balance"``, or a callable that returns an environment without a batch.
        backend: ``"gymnasium"`` or ``"gym"``. ``None``: the current backend, see ``set_gym_backend``.
        transform: appended to the environment; each environment gets a clone.
        info_keys: observation entries that go to the info dict instead.
        to_numpy: return observations as numpy arrays. False returns tensors.
        dict_observations: observations are a dict even if ``"observation"`` is the only entry.
        max_episode_steps: the library truncates episodes after this many steps.
        reward_threshold: argument of the library's ``EnvSpec``.
        nondeterministic: argument of the library's ``EnvSpec``.
        order_enforce: argument of the library's ``register``, in versions that have it.
        autoreset: see ``order_enforce``.
        disable_env_checker: see ``order_enforce``.
        apply_api_compatibility: see ``order_enforce``.
        **kwargs: arguments of ``make``. The library's ``make`` accepts the same arguments, and ``transform``,
            ``info_keys``, ``to_numpy`` and ``dict_observations``, which replace those given here.
    """

    def entry_point(
        *,
        transform: Any = transform,
        info_keys: Any = info_keys,
        to_numpy: bool = to_numpy,
        dict_observations: bool = dict_observations,
        **make_kwargs: Any,
    ) -> Any:
        env = make_env(make, **make_kwargs) if isinstance(make, str) else make(**make_kwargs)
        if transform is not None:
            env = env.append_transform(transform.clone() if hasattr(transform, "clone") else transform)
        return as_gym(
            env, backend=library, info_keys=info_keys or (), to_numpy=to_numpy, dict_observations=dict_observations
        )

    adapter = _adapter(backend)
    library = adapter.library
    register = adapter.submodule("envs.registration").register
    requested = {
        "order_enforce": order_enforce,
        "autoreset": autoreset,
        "disable_env_checker": disable_env_checker,
        "apply_api_compatibility": apply_api_compatibility,
    }
    accepted = inspect.signature(register).parameters
    any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())
    options = {}
    for name, value in requested.items():
        if value is None:
            continue
        if name in accepted or (any_name and _in_spec(adapter, name)):
            options[name] = value
        else:
            ignored_argument("register_gym", name, f"this version of {library} has no such argument")
    register(
        id=id,
        entry_point=entry_point,
        max_episode_steps=max_episode_steps,
        reward_threshold=reward_threshold,
        nondeterministic=nondeterministic,
        kwargs=kwargs,
        **options,
    )


def _in_spec(adapter: Adapter, name: str) -> bool:
    """Whether the library's ``EnvSpec`` has an argument.

    The library's ``register`` passes ``**kwargs`` to its ``EnvSpec``.
    """
    return name in inspect.signature(adapter.submodule("envs.registration").EnvSpec).parameters


def as_gym(
    env: EnvBase,
    *,
    backend: str | None = None,
    info_keys: Sequence[Any] = (),
    to_numpy: bool = True,
    dict_observations: bool = False,
) -> Any:
    """Convert a steppe environment to one of gymnasium or gym.

    The result has the API of the installed version. If ``"observation"`` is the only observation entry, the observation
    space is the space of that entry. Otherwise, or with ``dict_observations``, it is a Dict. The action space is the
    space of ``"action"`` if that is the only action, otherwise a Dict. Discrete actions are
    integers, for either encoding of the spec. An episode ends with the done entry at the root, or with any done entry
    if the root has none.

    >>> from steppe import StepCounter, TransformedEnv, make_env
    >>> from steppe_gym import as_gym
    >>> env = as_gym(TransformedEnv(make_env("gym:CartPole-v1"), StepCounter(max_steps=3)), info_keys=["step_count"])
    >>> observation, info = env.reset(seed=0)
    >>> observation.shape, env.action_space, info
    ((4,), Discrete(2), {'step_count': array([0])})

    Args:
        env: an environment without a batch.
        backend: ``"gymnasium"`` or ``"gym"``. ``None``: the current backend, see ``set_gym_backend``.
        info_keys: observation entries that go to the info dict instead.
        to_numpy: return observations as numpy arrays. False returns tensors.
        dict_observations: observations are a dict even if ``"observation"`` is the only entry, as those of the
            environments that TorchRL exports.

    Raises:
        NotSupported: the environment is a batch, has several rewards, or has a spec without an equivalent space.
    """
    if env.batch_size:
        raise NotSupported(
            f"as_gym needs an environment without a batch, but {env!r} is a batch of {tuple(env.batch_size)}. Make one "
            "without a batch."
        )
    if len(env.reward_keys) != 1:
        raise NotSupported(
            f"An environment of gymnasium has one reward, but {env!r} has {len(env.reward_keys)}: {env.reward_keys}. "
            "Combine them to one reward in a transform."
        )
    adapter = _adapter(backend)
    return _class_for(adapter)(env, adapter, tuple(info_keys), to_numpy, dict_observations)


def _adapter(backend: str | None) -> Adapter:
    if backend is None:
        return adapter_for()
    with set_gym_backend(backend):
        return adapter_for()


def _class_for(adapter: Adapter) -> type:
    class SteppeEnv(adapter.module.Env):  # type: ignore[name-defined,misc]
        metadata: dict[str, Any] = {"render_modes": []}

        def __init__(
            self, env: EnvBase, adapter: Adapter, info_keys: tuple[Any, ...], to_numpy: bool, dict_observations: bool
        ) -> None:
            self.env = env
            self._adapter = adapter
            self._info_keys = info_keys
            self._to_numpy = to_numpy
            observed = env.full_observation_spec.exclude(*info_keys)
            self._observation = (None, observed) if dict_observations else _only_entry_or_all(observed, "observation")
            action = _only_entry_or_all(env.full_action_spec, "action")
            self.observation_space = spec_to_space(self._observation[1], backend=adapter.library)
            self.action_space = spec_to_space(action[1], backend=adapter.library)
            self._actions = SpaceReader(self.action_space, action[1], key="action")
            self._root: TensorDictBase | None = None
            self._done_keys = [key for key in env.done_keys if isinstance(key, str)] or list(env.done_keys)
            self.render_mode = getattr(env, "render_mode", None)
            self.metadata = {**self.metadata, **(getattr(env, "metadata", None) or {})}

        def seed(self, seed: int | None = None) -> list[int | None]:
            self.env.set_seed(seed)
            return [seed]

        def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None, **_: Any) -> Any:
            if seed is not None:
                self.env.set_seed(seed)
                if not adapter.seeds_by_method:
                    super().reset(seed=seed)
            self._root = self.env.reset(env_info=options or None)
            return adapter.unsort_reset((self._value(self._root), self._info(self._root)))

        def step(self, action: Any) -> Any:
            root = self._root if self._root is not None else TensorDict({}, batch_size=())
            for key, value in self._actions.read(action).items():
                root.set(key, value if self.env.device is None else value.to(self.env.device))
            following = self.env.step(root)["next"]
            self._root = self.env.step_mdp(root)
            flags = {name: self._flag(following, name) for name in ("done", "terminated", "truncated")}
            truncated = bool(flags["truncated"])
            terminated = bool(flags["done"]) and not truncated if flags["terminated"] is None else flags["terminated"]
            reward = following[self.env.reward_key]
            reward_value = reward.item() if reward.numel() == 1 else reward.cpu().numpy()
            return adapter.unsort_step(
                (self._value(following), reward_value, terminated, truncated, self._info(following))
            )

        def render(self, *args: Any, **kwargs: Any) -> Any:
            return self.env.render(*args, **kwargs)

        def close(self) -> None:
            self.env.close(raise_if_closed=False)

        def _flag(self, data: TensorDictBase, name: str) -> bool | None:
            """Return whether any done entry of this name is True; None if there is no such entry."""
            keys = [key for key in self._done_keys if (key if isinstance(key, str) else key[-1]) == name]
            return any(bool(data[key].any()) for key in keys) if keys else None

        def _value(self, data: TensorDictBase) -> Any:
            key, spec = self._observation
            return value_of(data if key is None else data[key], spec, to_numpy=self._to_numpy)

        def _info(self, data: TensorDictBase) -> dict[Any, Any]:
            spec = self.env.full_observation_spec
            return {key: value_of(data[key], spec[key], to_numpy=self._to_numpy) for key in self._info_keys}

        def __repr__(self) -> str:
            return f"SteppeEnv({self.env!r})"

    return SteppeEnv


def _only_entry_or_all(spec: Composite, name: str) -> tuple[str | None, Spec]:
    """Return key and spec of the only entry if it has the usual name.

    Otherwise return None and the whole spec.
    """
    if list(spec.keys()) == [name]:
        return name, spec[name]
    return None, spec


def value_of(data: Any, spec: Spec, *, to_numpy: bool) -> Any:
    """Convert data of a spec to a value of its space.

    ``spec_to_space`` makes the space of a spec.
    """
    if isinstance(spec, Composite):
        return {str(key): value_of(data[key], part, to_numpy=to_numpy) for key, part in spec.items()}
    if isinstance(spec, NonTensor):
        return data.data if is_tensor_collection(data) else data
    if isinstance(spec, MultiOneHot):
        parts = data.split([box.n for box in spec.space], -1)
        data = torch.stack([part.int().argmax(-1) for part in parts], -1)
    elif isinstance(spec, OneHot):
        data = data.int().argmax(-1)
    if isinstance(spec, OneHot | Categorical) and data.ndim == 0:
        return int(data)
    return data.detach().cpu().numpy() if to_numpy else data
