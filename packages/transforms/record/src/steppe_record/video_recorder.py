"""VideoRecorder: record the frames of an environment and log them as a video."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, NonTensorData, NonTensorStack, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import Composite, NonTensor
from steppe.transforms import EnvSpecs, Hooks, ObservationTransform

from .pixel_render import PixelRenderTransform
from .video.frames import Layout, chw_frames, grid, layout_of

__all__ = ["VideoRecorder"]


class VideoRecorder(ObservationTransform):
    """Record the frames of resets and steps, and log them as a video at ``dump``.

    The data stays unchanged. A rollout of T steps has T + 1 frames, and one more for each further episode. Pixels are
    uint8, in colour or grey, with the channels first or last.

    For a batch of environments, put the recorder around the batch: each frame is then a grid of the frames of all
    environments, about as wide as high. If only some environments are reset, the others show their last frame. A
    recorder inside the batch records its own environment; it calls ``dump`` when the batch is closed, or at the end of
    each episode with ``dump_on_done``. Each of these recorders needs its own logger, because two loggers cannot write
    the same file.

    After a :class:`PixelRenderTransform` that is switched off, it records nothing.

    >>> from steppe import TransformedEnv, VideoRecorder, make_env
    >>> from steppe_record import VideoFileLogger
    >>> logger = VideoFileLogger("cartpole.mp4")
    >>> recorder = VideoRecorder(logger, "cartpole", skip=1)
    >>> env = TransformedEnv(make_env("gym:CartPole-v1", from_pixels=True), recorder)
    >>> _ = env.rollout(5)
    >>> env.transform.dump()
    >>> logger.frames
    6
    >>> logger.close()

    Args:
        logger: any object with ``log_video(name, video, step=None, **kwargs)``, where ``video`` is ``[1, T, 3, H, W]``
            uint8. If it has a method ``client()``, the result of that is used. None keeps the frames in ``obs`` until
            ``dump`` clears it.
        tag: name of the video.
        in_keys: key of the pixels. Default: ``["pixels"]``.
        skip: record every ``skip``-th frame since the last ``dump``, beginning with number ``skip``. Default: 2 in a
            single environment, 1 in a batch or without an environment.
        center_crop: record a square of this size from the middle.
        make_grid: tile the frames of a batch into one; otherwise they follow each other. Default: True in an
            environment, False for data that comes from no environment.
        out_keys: also write the pixels to this key.
        fps: frames per second, for the logger. Default: that of the logger.
        max_frames: largest number of frames between two calls of ``dump``.
        dump_on_done: call ``dump`` when an episode ends; in a batch, when all episodes end in one step.
        **kwargs: more arguments of ``log_video``.

    Raises:
        SpecError: a number is not positive, or more than one key was passed.
        SpecError: the environment lacks the entry, or its shape or dtype is not that of images.

    Attributes:
        obs: recorded frames, each ``[3, H, W]`` uint8 on the CPU. A clone of the recorder shares the list.
        count: number of frames since the last ``dump``.
        iter: number of calls of ``dump``, which is the default ``step`` of the logger.
    """

    writes_done = False
    keeps_nothing = True  # frames are copied

    def __init__(
        self,
        logger: object,
        tag: str | None,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        skip: int | None = None,
        center_crop: int | None = None,
        make_grid: bool | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        fps: float | None = None,
        max_frames: int | None = None,
        dump_on_done: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(["pixels"] if in_keys is None else in_keys, out_keys)
        if len(self.in_keys) != 1:
            raise SpecError(
                f"VideoRecorder records one entry, found in_keys={self.in_keys}. Use a recorder with a tag for each."
            )
        for name, value in (("skip", skip), ("center_crop", center_crop), ("max_frames", max_frames)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise SpecError(f"VideoRecorder takes a positive integer as {name}, found {value!r}.")
        client = getattr(logger, "client", None)
        self.logger: Any = client() if callable(client) else logger
        if self.logger is not None and not callable(getattr(self.logger, "log_video", None)):
            raise SpecError(f"A logger has log_video(name, video, step=None, **kwargs), found {logger!r}.")
        if self.logger is not None and not isinstance(tag, str):
            raise SpecError(f"VideoRecorder needs a name for its videos, tag='rollout', found {tag!r}.")
        self.tag = tag
        self.center_crop = center_crop
        self.max_frames = max_frames
        self.dump_on_done = dump_on_done
        self.video_kwargs = dict(kwargs) if fps is None else {**kwargs, "fps": fps}
        self.iter = 0
        self.count = 0
        self.obs: list[torch.Tensor] = []
        self._skip, self._make_grid = skip, make_grid
        self._layout: Layout | None = None
        self._in_batch = False
        #: The last frame of each row of a batch, for resets of some rows.
        self._last: torch.Tensor | None = None

    @property
    def skip(self) -> int:
        """Distance between recorded frames: 2 records every second frame."""
        if self._skip is not None:
            return self._skip
        env = self.container
        return 1 if env is None or env is self or _batch_size(env) else 2

    @skip.setter
    def skip(self, value: int | None) -> None:
        self._skip = value

    @property
    def make_grid(self) -> bool:
        """Whether the frames of a batch are tiled into one."""
        return self.container is not None if self._make_grid is None else self._make_grid

    @make_grid.setter
    def make_grid(self, value: bool | None) -> None:
        self._make_grid = value

    # -- in an environment ----------------------------------------------------------------------------------------

    def hooks(self, specs: EnvSpecs) -> Hooks:
        key = self.in_keys[0]
        leaf = specs.observation.get(key, None)
        if leaf is None and self._is_switched_off(key):
            return Hooks()
        self._check(leaf, key, specs)
        hooks = super().hooks(specs)
        hooks.reads_root = False
        return hooks

    def _check(self, leaf: Any, key: Any, specs: EnvSpecs) -> None:
        what = f"VideoRecorder: the pixels {key!r}"
        if leaf is None:
            existing = sorted(map(str, specs.observation.keys(include_nested=True, leaves_only=True)))
            raise SpecError(
                f"{what} are missing. Make the environment with frames, make_env(..., from_pixels=True), or render "
                "them: make_env(..., render_mode='rgb_array') with a PixelRenderTransform before the VideoRecorder. "
                f"To record another entry, name it with in_keys. The environment has {existing}."
            )
        if isinstance(leaf, NonTensor):
            return
        shape = leaf.shape[len(specs.batch_size) :]
        self._layout = layout_of(shape, what)
        chw_frames(torch.zeros(shape, dtype=leaf.dtype, device="cpu"), self._layout, what)
        height, width = _size(shape, self._layout)
        if self.center_crop is not None and self.center_crop > min(height, width):
            raise SpecError(f"{what} are {width}x{height}: center_crop={self.center_crop} is larger.")

    def _is_switched_off(self, key: Any) -> bool:
        env = self.container
        return any(
            isinstance(part, PixelRenderTransform) and not part.enabled and key in part.out_keys
            for part in _parts(getattr(env, "transform", None))
        )

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        key, out_key = self.in_keys[0], self.out_keys[0]
        leaf = observation_spec.get(key, None)
        if out_key != key and leaf is not None:
            observation_spec[out_key] = leaf.clone()
        return observation_spec

    def _check_batched_worker_compat(self) -> None:
        super()._check_batched_worker_compat()
        self._in_batch = True

    def close(self) -> None:
        """Log the remaining frames, if the recorder is inside a batch."""
        if self._in_batch:
            self.dump()

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        next_tensordict = self._call(next_tensordict)
        if self.dump_on_done and _all_done(next_tensordict):
            self.dump()
        return next_tensordict

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        value = tensordict_reset.get(self.in_keys[0], None)
        if value is None:
            return tensordict_reset
        self._record(value, None if mask is None or bool(mask.all()) else mask)
        return tensordict_reset.set(self.out_keys[0], value)

    # -- frames ---------------------------------------------------------------------------------------------------

    def _apply_transform(self, observation: Any) -> Any:
        self._record(observation, None)
        return observation

    def _record(self, observation: Any, mask: torch.Tensor | None) -> None:
        self.count += 1
        kept = self.count % self.skip == 0 and (self.max_frames is None or len(self.obs) < self.max_frames)
        # Resets of some rows of a batch need the last frames of the others.
        of_batch = self.container is not None and getattr(observation, "ndim", 0) > (2 if self._layout == "hw" else 3)
        if not kept and not of_batch:
            return
        frames = self._frames(observation)
        if mask is not None and self._last is not None and self._last.shape == frames.shape:
            # Rows that are not reset show their last frame.
            rows = mask.reshape(mask.shape[:1] + (-1,)).any(-1) if mask.ndim > 1 else mask
            rows = rows.to("cpu").reshape(-1, *[1] * (frames.ndim - 1))
            frames = torch.where(rows, frames, self._last)
        if of_batch:
            self._last = frames
        if not kept:
            return
        if frames.ndim == 3:
            self._keep(frames)
        elif self.make_grid:
            self._keep(grid(frames.flatten(0, -4)))
        else:
            room = None if self.max_frames is None else self.max_frames - len(self.obs)
            for frame in frames.flatten(0, -4)[:room]:
                self._keep(frame)

    def _frames(self, observation: Any) -> torch.Tensor:
        """Return a copy of the pixels: ``[*lead, 3, H, W]`` uint8 on the CPU."""
        what = f"VideoRecorder: the pixels {self.in_keys[0]!r}"
        if isinstance(observation, NonTensorStack):
            observation = torch.stack([_tensor(image) for image in observation.tolist()])
        elif isinstance(observation, NonTensorData):
            observation = _tensor(observation.data)
        layout = self._layout or layout_of(observation.shape, what)
        frames = chw_frames(observation.detach(), layout, what)
        if self.center_crop is not None:
            frames = _cropped(frames, self.center_crop, what)
        return frames.to("cpu", copy=True)

    def _keep(self, frame: torch.Tensor) -> None:
        if self.obs and self.obs[0].shape != frame.shape:
            sizes = [f"{image.shape[-1]}x{image.shape[-2]}" for image in (self.obs[0], frame)]
            raise SpecError(
                f"VideoRecorder: all frames of a video have one size, found {sizes[1]} after {sizes[0]}. Call dump() "
                "where the size changes."
            )
        self.obs.append(frame)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Record the frames of data that comes from no environment, of any batch size."""
        return self._call(tensordict)

    # -- videos ---------------------------------------------------------------------------------------------------

    def dump(self, suffix: str | None = None, step: int | None = None) -> None:
        """Log the frames as one video and clear them; without frames, nothing is logged.

        Args:
            suffix: appended to the tag after an underscore.
            step: step for the logger. Default: number of earlier calls of ``dump``.

        Raises:
            Exception: the logger has raised it. The frames are kept then.
        """
        if self.obs and self.logger is not None:
            name = self.tag if suffix is None else f"{self.tag}_{suffix}"
            video = torch.stack(self.obs).unsqueeze(0)
            self.logger.log_video(name=name, video=video, step=self.iter if step is None else step, **self.video_kwargs)
        self.iter += 1
        self.count = 0
        self.obs.clear()

    def _repr_keys(self) -> Iterator[str]:
        yield from ("tag", "in_keys", "skip", "max_frames", "dump_on_done")


def _tensor(image: Any) -> torch.Tensor:
    return image if isinstance(image, torch.Tensor) else torch.from_numpy(np.asarray(image))


def _batch_size(env: Any) -> Any:
    return getattr(env, "batch_size", ())


def _size(shape: Any, layout: Layout) -> tuple[int, int]:
    return tuple(shape[-3:-1] if layout == "hwc" else shape[-2:])


def _cropped(frames: torch.Tensor, side: int, what: str) -> torch.Tensor:
    height, width = frames.shape[-2:]
    if side > min(height, width):
        raise SpecError(f"{what} are {width}x{height}: center_crop={side} is larger.")
    top, left = (height - side) // 2, (width - side) // 2
    return frames[..., top : top + side, left : left + side]


def _all_done(data: TensorDictBase) -> bool:
    dones = [
        value
        for key, value in data.items(include_nested=True, leaves_only=True)
        if (key if isinstance(key, str) else key[-1]) == "done"
    ]
    return bool(dones) and all(bool(done.all()) for done in dones)


def _parts(transform: Any) -> Iterator[Any]:
    if transform is None:
        return
    if hasattr(transform, "transforms"):
        for part in transform:
            yield from _parts(part)
    else:
        yield transform
