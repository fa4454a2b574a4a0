"""SerialEnv: a batch in the caller's process."""

from __future__ import annotations

import warnings

import torch

from steppe import SerialEnv
from steppe.errors import IgnoredArgumentWarning
from steppe_testing import ArrayCountingEnv


def warned(found: list[warnings.WarningMessage]) -> list[str]:
    assert {each.category for each in found} <= {IgnoredArgumentWarning}
    return [str(each.message).partition(" argument ")[2].partition(" ")[0] for each in found]


def test_a_serial_env_accepts_arguments_of_workers() -> None:
    of_workers = {"num_threads": 3, "num_sub_threads": 2, "mp_start_method": "spawn", "shutdown_timeout": 1.0}
    before = torch.get_num_threads()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        env = SerialEnv(2, ArrayCountingEnv, **of_workers)
        env.configure_parallel(use_buffers=True)
    with env:
        assert env.rollout(3).shape == (2, 3)

    assert warned(found) == [*of_workers, "use_buffers"]
    assert (env.mp_start_method, env.use_buffers) == ("spawn", True)
    assert torch.get_num_threads() == before
