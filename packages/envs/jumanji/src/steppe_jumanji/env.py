"""JumanjiEnv: environments of Jumanji, as functions of their data or in batches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.errors import NotSupported
from steppe.registry import AvailableEnvs, env_not_found
from steppe_jax import EnvFunctions, JaxEnv, Outcome, check_single, leaf_paths, own_arguments

from .names import env_names
from .specs import action_spec, observation_specs

__all__ = ["JumanjiEnv", "JumanjiWrapper"]

_MASK = "action_mask"


class JumanjiWrapper(JaxEnv):
    """Wrap an environment of Jumanji, ``jumanji.make(...)``.

    The result is a function of its data, or a batch.

    ========================  =========================================================================================
    Key                       Value, for a batch ``[*B]``
    ========================  =========================================================================================
    ``name``                  ``[*B, ...]``, a field of the observation, in the dtype of Jumanji; nested fields below
                              it; ``"observation"`` for an observation that is one array
    ``"action_mask"``         ``[*B, n]`` bool, which actions are allowed; ``[*B, parts, n]`` for actions of several
                              parts, or ``[*B, n1, n2, ...]``, which combinations are allowed
    ``"action"``              ``[*B]`` or ``[*B, parts]`` int64 integers; one-hot vectors with
                              ``categorical_action_encoding=False``
    ``"reward"``              ``[*B, 1]`` float32; ``[*B, k]`` if each of k agents has its own
    ``"done"``                ``[*B, 1]`` bool, with ``"terminated"`` and ``"truncated"`` (a last step whose discount is
                              not 0)
    ``("state", ...)``        the state of Jumanji, with ``state_in_data``; otherwise see ``env.jax_state``
    ========================  =========================================================================================

    The mask is declared as :attr:`action_masks`, so random actions (``rand_action``, ``rollout`` without a policy)
    respect the one in the data. If it allows nothing, as for a trapped snake, any action may be drawn.

    Attributes that this class lacks (``num_rows``, ``time_limit``, ...) are looked up on the environment.

    >>> import jumanji
    >>> from steppe_jumanji import JumanjiWrapper
    >>> env = JumanjiWrapper(jumanji.make("Snake-v1"), batch_size=4)
    >>> env.rollout(3, break_when_any_done=False)["next", "reward"].shape
    torch.Size([4, 3, 1])

    Args:
        env: the environment, without wrappers that batch or reset it.
        categorical_action_encoding: discrete actions are integers instead of one-hot vectors.
        batch_size: number or shape of environments. ``()``: a function of the data, of any batch size.
        device: device of the data.
        state_in_data: whether the state of Jumanji is kept in the data. ``None``: yes without a batch size.
        jit: compile reset and step.
        **kwargs: for :class:`steppe.EnvBase`.

    Raises:
        NotSupported: the environment has a wrapper that batches or resets it.
    """

    git_url = "https://github.com/instadeepai/jumanji"
    libname = "jumanji"
    available_envs = AvailableEnvs(env_names)

    def __init__(
        self,
        env: Any,
        categorical_action_encoding: bool = True,
        jit: bool = True,
        *,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int = (),
        device: torch.device | str | int | None = None,
        state_in_data: bool | None = None,
        **kwargs: Any,
    ) -> None:
        check_single(env, _BATCH_WRAPPERS, wrapper="JumanjiWrapper")
        library_spec = env.action_spec
        _, first = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
        super().__init__(
            EnvFunctions(*_functions(env), jax.ShapeDtypeStruct(tuple(library_spec.shape), library_spec.dtype)),
            action_spec=action_spec(library_spec, categorical=categorical_action_encoding),
            observation_specs=observation_specs(env, leaf_paths(first.observation)),
            batch_size=batch_size,
            device=device,
            state_in_data=state_in_data,
            jit=jit,
            **kwargs,
        )
        self.wrap_library(env)
        if _MASK in self.observation_keys and hasattr(library_spec, "num_values"):
            self.action_masks = {self.action_entry: _MASK}
        self.__dict__["_viewer"] = None

    def render(self, tensordict: TensorDictBase | None = None, row: int = 0) -> Any:
        """Draw one environment with the viewer of Jumanji.

        Args:
            tensordict: data with the state, if ``state_in_data``. Ignored otherwise.
            row: index of the environment in the batch.

        Returns:
            ``[height, width, 3]`` uint8 with ``render_mode="rgb_array"``. Otherwise the return value of Jumanji's
            ``env.render(state)``, which shows a window if there is a display.
        """
        state = self.native_state(tensordict, row)
        # Some environments do not return the frame of their viewer.
        frame = self._env.render(state) if self._viewer is None else self._viewer.render(state)
        # matplotlib's canvas has a fourth channel, the opacity. It is copied, because the next frame overwrites it.
        return frame[..., :3].copy() if isinstance(frame, np.ndarray) else frame


class JumanjiEnv(JumanjiWrapper):
    """Make an environment of Jumanji by its name.

    See :class:`JumanjiWrapper` for the data.

    >>> from steppe_jumanji import JumanjiEnv
    >>> env = JumanjiEnv("Snake-v1", batch_size=4)
    >>> env.rollout(3, break_when_any_done=False)["action_mask"].shape
    torch.Size([4, 3, 4])

    Args:
        env_name: a name of ``JumanjiEnv.available_envs``.
        render_mode: ``"rgb_array"`` if ``render`` will return frames. The state then stays in the environment, where
            ``render()`` reads it, unless ``state_in_data`` is True.
        categorical_action_encoding, batch_size, device, state_in_data, jit: see :class:`JumanjiWrapper`.
        **kwargs: for :class:`steppe.EnvBase`; all others go to ``jumanji.make`` (``num_rows=6``, ``generator=...``).

    Raises:
        EnvNotFound: Jumanji has no such environment.
        NotSupported: another ``render_mode``, the viewer of Jumanji makes no frames, or an argument for pixels was
            passed, but no pixels are rendered in steps.
    """

    def __init__(
        self,
        env_name: str,
        *,
        render_mode: str | None = None,
        categorical_action_encoding: bool = True,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int = (),
        device: torch.device | str | int | None = None,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        import jumanji

        if env_name not in env_names():
            raise env_not_found("jumanji", env_name)
        base_kwargs = own_arguments("JumanjiEnv", kwargs)
        env = jumanji.make(env_name, **kwargs)
        viewer = None
        if render_mode is not None:
            viewer = _framing_viewer(env, env_name, render_mode)
            state_in_data = bool(state_in_data)
        super().__init__(
            env,
            categorical_action_encoding=categorical_action_encoding,
            batch_size=batch_size,
            device=device,
            state_in_data=state_in_data,
            jit=jit,
            **base_kwargs,
        )
        self.__dict__.update(env_name=env_name, _viewer=viewer)


def _framing_viewer(env: Any, name: str, render_mode: str) -> Any:
    """Make the viewer of an environment return its frames, and return the viewer.

    The arguments of viewers differ from class to class, so this sets the attribute that they share.

    Raises:
        NotSupported: another mode, or a viewer that returns no frames.
    """
    from jumanji.viewer import MatplotlibViewer

    if render_mode != "rgb_array":
        raise NotSupported(f"render_mode must be 'rgb_array' or None, found {render_mode!r}.")
    viewer = getattr(env.unwrapped, "_viewer", None)
    if not isinstance(viewer, MatplotlibViewer):
        raise NotSupported(f"{name!r} renders no frames: its viewer is of type {type(viewer).__name__}.")
    viewer._display = viewer._display_rgb_array
    return viewer


_BATCH_WRAPPERS = ("VmapWrapper", "AutoResetWrapper", "VmapAutoResetWrapper")


def _functions(env: Any) -> tuple[Any, Any]:
    """Return the reset and step functions of one environment."""

    def outcome(state: Any, timestep: Any) -> tuple[Any, Outcome]:
        last = timestep.step_type == 2
        terminated = last & jnp.all(timestep.discount == 0)
        return state, Outcome(timestep.observation, timestep.reward, terminated, last & ~terminated)

    return lambda key: outcome(*env.reset(key)), lambda state, action: outcome(*env.step(state, action))
