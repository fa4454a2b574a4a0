"""Add a tiled camera to the configuration of a task of Isaac Lab."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

from steppe.errors import ArgumentError, LibraryMissing

__all__ = ["add_tiled_camera_config"]

#: The configuration of each renderer other than Isaac Lab's own: its module, and its class.
_RENDERERS = {
    "newton_warp": ("isaaclab_newton.renderers", "NewtonWarpRendererCfg"),
    "ovrtx": ("isaaclab_ov.renderers", "OVRTXRendererCfg"),
}


def add_tiled_camera_config(
    env_cfg: Any,
    *,
    sensor_name: str = "tiled_camera",
    data_type: str = "rgb",
    renderer_backend: Literal["isaac_rtx", "newton_warp", "ovrtx"] | None = None,
    renderer_cfg: Any = None,
    width: int = 320,
    height: int = 240,
    pos: tuple[float, float, float] = (-7.0, 0.0, 3.0),
    rot: tuple[float, float, float, float] = (0.9945, 0.0, 0.1045, 0.0),
    convention: Literal["opengl", "ros", "world"] = "world",
    focal_length: float = 24.0,
    focus_distance: float = 400.0,
    horizontal_aperture: float = 20.955,
    clipping_range: tuple[float, float] = (0.1, 100.0),
    render_interval: int | None = None,
) -> Any:
    """Add a tiled camera to each environment of a configuration, before the environment is made.

    The environment is then wrapped with ``from_tiled_camera=True``, which adds the images to its data. Isaac Sim must
    have been started with ``enable_cameras=True``.

    Args:
        env_cfg: configuration of a task, which is changed.
        sensor_name: name of the sensor in ``env.scene.sensors``.
        data_type: type of the images.
        renderer_backend: ``"newton_warp"``, ``"ovrtx"``, or ``"isaac_rtx"``, the default of Isaac Lab.
        renderer_cfg: configuration of a renderer, instead of ``renderer_backend``.
        width, height: size of the images in pixels.
        pos: position of the camera, in meters from the origin of its environment.
        rot: orientation of the camera, a quaternion in the order of Isaac Lab's version.
        convention: the axes that ``rot`` is given for.
        focal_length, focus_distance, horizontal_aperture: lens of the camera.
        clipping_range: nearest and farthest distance that is seen, in meters.
        render_interval: steps of physics between two images. ``None``: as configured.

    Returns:
        ``env_cfg``.

    Raises:
        ArgumentError: an unknown ``renderer_backend``, or one together with ``renderer_cfg``.
        LibraryMissing: the package of the renderer is not installed.
    """
    if renderer_backend is not None and renderer_cfg is not None:
        raise ArgumentError("renderer_backend and renderer_cfg exclude each other: pass one of them.")
    if renderer_backend not in (None, "isaac_rtx", *_RENDERERS):
        names = ["isaac_rtx", *_RENDERERS]
        raise ArgumentError(f"renderer_backend must be one of {names} or None, found {renderer_backend!r}.")
    if renderer_backend in _RENDERERS:
        module, name = _RENDERERS[renderer_backend]
        try:
            renderer_cfg = getattr(import_module(module), name)()
        except ModuleNotFoundError as error:
            package = module.split(".")[0]
            raise LibraryMissing(
                f"renderer_backend={renderer_backend!r} needs the package {package} of Isaac Lab, which is not "
                "installed. Install it as Isaac Lab's guide says, or leave renderer_backend out."
            ) from error
    # Importable only while Isaac Sim runs.
    from isaaclab.sensors import TiledCameraCfg
    from isaaclab.sim import PinholeCameraCfg

    camera = TiledCameraCfg(
        prim_path="{ENV_REGEX_NS}/Camera",
        offset=TiledCameraCfg.OffsetCfg(pos=pos, rot=rot, convention=convention),
        data_types=[data_type],
        spawn=PinholeCameraCfg(
            focal_length=focal_length,
            focus_distance=focus_distance,
            horizontal_aperture=horizontal_aperture,
            clipping_range=clipping_range,
        ),
        width=width,
        height=height,
        **({} if renderer_cfg is None else {"renderer_cfg": renderer_cfg}),
    )
    setattr(env_cfg.scene, sensor_name, camera)
    if render_interval is not None:
        env_cfg.sim.render_interval = render_interval
    return env_cfg
