"""Arguments of TorchRL's classes are here too, or on the page for its users."""

from __future__ import annotations

import inspect

import pytest

import steppe_record
from tools.workspace import ROOT

PAGE = (ROOT / "docs/migrating-from-torchrl.md").read_text(encoding="utf-8")

# As torchrl 0.14.1 has them, without self and **kwargs.
ARGUMENTS = {
    "VideoRecorder": "logger tag in_keys skip center_crop make_grid out_keys fps max_frames dump_on_done",
    "VideoRecorder.dump": "suffix step",
    "PixelRenderTransform": "out_keys preproc as_non_tensor render_method pass_tensordict",
    "PixelRenderTransform.switch": "mode",
    "TensorDictRecorder": "out_file_base skip_reset skip in_keys",
    "TensorDictRecorder.dump": "suffix",
    "CSVLogger": "exp_name log_dir video_format video_fps",
    "TensorboardLogger": "exp_name log_dir",
    "WandbLogger": "exp_name offline save_dir id project base_url video_fps log_env_packages",
    "WandbLogger.log_scalar": "name value step commit override_global_step",
    "WandbLogger.log_metrics": "metrics step keys_sep override_global_step",
    "MLFlowLogger": "exp_name tracking_uri tags artifact_location video_fps",
    **{
        f"{logger}.{method}": arguments
        for logger in ("CSVLogger", "TensorboardLogger", "WandbLogger", "MLFlowLogger")
        for method, arguments in {
            "log_scalar": "name value step",
            "log_video": "name video",
            "log_hparams": "cfg",
            "log_histogram": "name data",
            "log_metrics": "metrics step keys_sep",
        }.items()
        if (logger, method) not in {("WandbLogger", "log_scalar"), ("WandbLogger", "log_metrics")}
    },
    "generate_exp_name": "model_name experiment_name",
}
# Those that are not taken have their place on the page.
NAMED = {
    "VideoRecorder.to_animation": "title interval repeat_delay clear",
    "get_logger": "state_dict service_backend service_backend_options use_ray_service ray_actor_options trackio_kwargs",
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_have_the_names_and_places_of_torchrl(name):
    owner, _, method = name.partition(".")
    found = getattr(steppe_record, owner)
    parameters = list(inspect.signature(getattr(found, method) if method else found).parameters)

    expected = ARGUMENTS[name].split()
    assert [each for each in parameters if each in expected] == expected


@pytest.mark.parametrize("name", NAMED)
def test_unsupported_arguments_are_on_the_migration_page(name):
    assert f"`{name}" in PAGE
    assert [each for each in NAMED[name].split() if each not in PAGE] == []
