"""PixelRenderTransform: add rendered frames to the data of an environment."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, NonTensorData, TensorDict, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import Composite, NonTensor, Unbounded
from steppe.transforms import Transform

__all__ = ["PixelRenderTransform"]


class PixelRenderTransform(Transform):
    """Render the environment at each step and reset, and write the frame as an entry.

    It is for environments with a ``render`` method but no argument that adds frames. Around a batch of n environments,
    the frames are ``[n, H, W, 3]``; each environment renders in the process where it runs. At the end of an episode,
    the environment is rendered before it is reset.

    When the transform is added to an environment, it resets and renders it to find the shape of a frame. So seed the
    environment afterwards.

    >>> from steppe import PixelRenderTransform, TransformedEnv, make_env
    >>> env = make_env("gym:CartPole-v1", render_mode="rgb_array")
    >>> env = TransformedEnv(env, PixelRenderTransform())
    >>> env.rollout(2)["pixels"].shape
    torch.Size([2, 400, 600, 3])

    Args:
        out_keys: the key to write, in a list. Default: ``["pixels"]``.
        preproc: function of a rendered frame; its result is written.
        as_non_tensor: write the frame as ``NonTensorData``, so that it needs no batch size. Default: True if
            a batch renders one image.
        render_method: name of the environment's method that renders.
        pass_tensordict: pass the data of the step or reset to that method as its first argument.
        **kwargs: arguments of that method.

    Raises:
        SpecError: ``out_keys`` is not one key, or the environment lacks the method, or the method does not return an
            image.
    """

    # A batch must render the last frame of a row before it resets the row.
    writes_done = True

    def __init__(
        self,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        preproc: Callable[..., object] | None = None,
        as_non_tensor: bool | None = None,
        render_method: str = "render",
        pass_tensordict: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_keys=[], out_keys=["pixels"] if out_keys is None else out_keys)
        if len(self.out_keys) != 1:
            raise SpecError(f"PixelRenderTransform writes one entry, found out_keys={self.out_keys}.")
        self.preproc: Any = preproc
        self.as_non_tensor = as_non_tensor
        self.render_method = render_method
        self.pass_tensordict = pass_tensordict
        self.kwargs = kwargs
        self._enabled = True
        #: Spec of a frame, and the environment that rendered it.
        self._leaf: Any = None
        self._seen_env: Any = None

    @property
    def enabled(self) -> bool:
        """Whether the transform renders."""
        return self._enabled

    def switch(self, mode: str | bool | None = None) -> None:
        """Switch rendering on or off, from the next step or reset on.

        While it is off, the specs and ``next`` lack the entry. A root that has a frame keeps it, like all entries that
        the environment does not write. If the transform is inside a batch, switch it before the batch is made.

        Args:
            mode: ``"on"``, ``"off"``, True or False. None: toggle.

        Raises:
            SpecError: ``mode`` is another value.
        """
        modes = {None: not self._enabled, "on": True, "off": False, True: True, False: False}
        if mode not in modes:
            raise SpecError(f"switch takes 'on', 'off' or a bool, found {mode!r}.")
        self._enabled = modes[mode]
        self.empty_cache()

    # -- frames ---------------------------------------------------------------------------------------------------

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        if not self._enabled:
            return next_tensordict
        env = self.container
        if env is None or isinstance(env, Transform):
            return next_tensordict  # data without an environment cannot be rendered
        self._write(self._rendered(env.base_env, next_tensordict), next_tensordict)
        return next_tensordict

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        return self._call(tensordict_reset)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the data unchanged: data without an environment cannot be rendered."""
        return tensordict

    def _rendered(self, env: Any, data: TensorDictBase | None) -> Any:
        method = getattr(env, self.render_method, None)
        if not callable(method):
            raise SpecError(
                f"PixelRenderTransform: {type(env).__name__} has no method {self.render_method!r}. "
                "Name another with render_method, or make the environment with frames: make_env(..., from_pixels=True)."
            )
        frame = method(data, **self.kwargs) if self.pass_tensordict else method(**self.kwargs)
        if self.preproc is not None:
            frame = self.preproc(frame)
        if isinstance(frame, (list, tuple)) and len(frame) and not any(image is None for image in frame):
            frame = torch.stack(list(frame)) if isinstance(frame[0], torch.Tensor) else np.stack(frame)
        if isinstance(frame, np.ndarray):
            frame = torch.from_numpy(np.array(frame))  # copied, because libraries reuse the buffer of a frame
        if not isinstance(frame, torch.Tensor) and not self.as_non_tensor:
            returned = "None" if frame is None else type(frame).__name__
            raise SpecError(
                f"PixelRenderTransform: {self.render_method}() of {type(env).__name__} returned {returned}, expected "
                "an image. Make the environment so that it renders arrays: make_env(..., render_mode='rgb_array')."
            )
        return frame

    def _write(self, frame: Any, data: TensorDictBase) -> None:
        key, batch_size = self.out_keys[0], data.batch_size
        if self.as_non_tensor is None:
            self.as_non_tensor = bool(batch_size) and frame.ndim == 3 and frame.shape[-1] == 3
        if self.as_non_tensor:
            data[key] = NonTensorData(frame, batch_size=batch_size, device=data.device)
            return
        if frame.ndim > 3 and frame.shape[:-3] != batch_size and frame.shape[:-3].numel() == batch_size.numel():
            # In a batch of environments of batch size [1], each environment renders one frame without that dimension.
            frame = frame.reshape(*batch_size, *frame.shape[-3:])
        if frame.shape[: len(batch_size)] != batch_size:
            raise SpecError(
                f"PixelRenderTransform: an environment of batch size {list(batch_size)} rendered the shape "
                f"{list(frame.shape)}. Split the image into the frames of the environments with preproc, or keep it "
                "with as_non_tensor=True."
            )
        data.set(key, frame.to(data.device) if data.device is not None else frame)

    # -- specs ----------------------------------------------------------------------------------------------------

    def set_container(self, container: Any) -> None:
        super().set_container(container)
        env = self.container
        if env is not None and not isinstance(env, Transform):
            self._find_leaf(env.base_env)

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        if self._enabled and self._leaf is not None:
            observation_spec[self.out_keys[0]] = self._leaf.clone()
        return observation_spec

    def _find_leaf(self, base: Any) -> None:
        """Render once to find the spec of a frame, unless it is known already."""
        if self._leaf is not None and self._seen_env is not None and self._seen_env() is base:
            return
        self._seen_env = weakref.ref(base)
        known = None if self.preproc or self.kwargs or self.render_method != "render" else _known_shape(base)
        if known is not None:
            self._leaf = Unbounded(known, dtype=torch.uint8, device=base.device)
            return
        # Most libraries cannot render before the first reset.
        frame = self._rendered(base, base.reset())
        data = TensorDict({}, batch_size=base.batch_size, device=base.device)
        self._write(frame, data)
        if self.as_non_tensor:
            self._leaf = NonTensor(base.batch_size, device=base.device)
        else:
            self._leaf = Unbounded(data[self.out_keys[0]].shape, dtype=frame.dtype, device=base.device)

    def clone(self) -> Any:
        twin = super().clone()
        twin._leaf, twin._seen_env = self._leaf, self._seen_env
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_leaf": None, "_seen_env": None}

    def _repr_keys(self) -> Iterator[str]:
        yield from ("out_keys", "render_method", "as_non_tensor")


def _known_shape(env: Any) -> tuple[int, ...] | None:
    """Return the shape of the frames of gymnasium's MuJoCo environments.

    The first frame fixes the point that their camera looks at, so they must not be rendered to find the shape. Returns
    None for other environments.
    """
    inner = None if env.batch_size else getattr(env, "unwrapped", None)
    if inner is None or not hasattr(inner, "mujoco_renderer") or getattr(inner, "render_mode", None) != "rgb_array":
        return None
    return int(inner.height), int(inner.width), 3
