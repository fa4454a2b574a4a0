"""PixelRenderTransform: frames that the environment renders, as an entry of its data."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorData, TensorDict, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import Composite, NonTensor, Unbounded
from steppe.transforms import Transform, takes_leaf

__all__ = ["PixelRenderTransform"]


class PixelRenderTransform(Transform):
    """Renders the environment at each step and reset, and writes the frame as an entry.

    For environments that render and have no argument for it, and for batches: around a batch of n environments the
    frames are ``[n, H, W, 3]``, each rendered where the environment is. An environment that ends is rendered
    before it is reset.

    To learn the shape of a frame it resets the environment that it is put into, and renders it: so seed it afterwards.

    Args:
        out_keys: the one entry to write, ``["pixels"]`` by default.
        preproc: function of a rendered frame; its result is written.
        as_non_tensor: write the frame as ``NonTensorData``, so that it needs no batch size. By default so where a batch
            renders one image.
        render_method: the method of the environment that renders.
        pass_tensordict: give that method the data of the step or reset as its first argument.
        **kwargs: arguments of that method.

    Raises:
        SpecError: there is not one key; (in an environment) it has no such method, or it renders nothing.
    """

    # A batch must not reset rows before their last frame is rendered.
    writes_done = True

    def __init__(
        self,
        out_keys: Any = None,
        preproc: Callable[[Any], Any] | None = None,
        as_non_tensor: bool | None = None,
        render_method: str = "render",
        pass_tensordict: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_keys=[], out_keys=["pixels"] if out_keys is None else out_keys)
        if len(self.out_keys) != 1:
            raise SpecError(f"PixelRenderTransform writes one entry, found out_keys={self.out_keys}.")
        self.preproc = preproc
        self.as_non_tensor = as_non_tensor
        self.render_method = render_method
        self.pass_tensordict = pass_tensordict
        self.kwargs = kwargs
        self._enabled = True
        #: The format of a frame, and the environment that it belongs to.
        self._leaf: Any = None
        self._seen_env: Any = None

    @property
    def enabled(self) -> bool:
        """Whether it renders."""
        return self._enabled

    def switch(self, mode: str | bool | None = None) -> None:
        """Render, or not; without an argument the other of the two. It holds from the next step or reset on.

        While it is off, neither specs nor ``next`` have the entry; a root that had a frame keeps it, like everything
        that an environment does not write. An environment inside a batch is switched before the batch is made.

        Args:
            mode: ``"on"``, ``"off"``, True or False.

        Raises:
            SpecError: it is something else.
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
            return next_tensordict  # in no environment there is nothing to render
        self._write(self._rendered(env.base_env, next_tensordict), next_tensordict)
        return next_tensordict

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        return self._call(tensordict_reset)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return data that is there already as it is: only an environment can be rendered."""
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
        if isinstance(frame, (list, tuple)) and len(frame) and not any(one is None for one in frame):
            frame = torch.stack(list(frame)) if isinstance(frame[0], torch.Tensor) else np.stack(frame)
        if isinstance(frame, np.ndarray):
            frame = torch.from_numpy(np.array(frame))  # a copy: libraries draw into one buffer
        if not isinstance(frame, torch.Tensor) and not self.as_non_tensor:
            found = "None" if frame is None else type(frame).__name__
            raise SpecError(
                f"PixelRenderTransform: {self.render_method}() of {type(env).__name__} returned {found}, and not an "
                "image. Make the environment so that it renders arrays: make_env(..., render_mode='rgb_array')."
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
            # A batch of environments that are batches of one themselves renders one frame of each.
            frame = frame.reshape(*batch_size, *frame.shape[-3:])
        if frame.shape[: len(batch_size)] != batch_size:
            raise SpecError(
                f"PixelRenderTransform: an environment of batch size {list(batch_size)} rendered the shape "
                f"{list(frame.shape)}. Give each environment its frame with preproc, or keep the image as it is with "
                "as_non_tensor=True."
            )
        data.set(key, frame.to(data.device) if data.device is not None else frame)

    # -- specs ----------------------------------------------------------------------------------------------------

    def set_container(self, container: Any) -> None:
        super().set_container(container)
        env = self.container
        if env is not None and not isinstance(env, Transform):
            self._look_at(env.base_env)

    @takes_leaf
    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        if self._enabled and self._leaf is not None:
            observation_spec[self.out_keys[0]] = self._leaf.clone()
        return observation_spec

    def _look_at(self, base: Any) -> None:
        """Render once to learn the format of a frame; clones in parents of the same environment use the result."""
        if self._leaf is not None and self._seen_env is not None and self._seen_env() is base:
            return
        self._seen_env = weakref.ref(base)
        known = None if self.preproc or self.kwargs or self.render_method != "render" else _known_shape(base)
        if known is not None:
            self._leaf = Unbounded(known, dtype=torch.uint8, device=base.device)
            return
        # Most libraries render nothing before the first reset.
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
    """The shape of a frame of one of gymnasium's MuJoCo environments, which say it themselves.

    Their camera looks at where things are when it first renders: that is left to the first episode.
    """
    inner = None if env.batch_size else getattr(env, "unwrapped", None)
    if inner is None or not hasattr(inner, "mujoco_renderer") or getattr(inner, "render_mode", None) != "rgb_array":
        return None
    return int(inner.height), int(inner.width), 3
