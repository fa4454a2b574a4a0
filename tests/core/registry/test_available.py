"""AvailableEnvs: names of environments as a property of a class."""

from __future__ import annotations

import pytest

from steppe.errors import BackendError
from steppe.registry import AvailableEnvs


def test_the_class_lists_names_without_an_instance():
    class Library:
        available_envs = AvailableEnvs(lambda: ["walk", "run"])

    assert Library.available_envs == ["walk", "run"]


@pytest.mark.parametrize("error", [ImportError, BackendError])
def test_a_missing_library_has_no_names(error):
    def names():
        raise error("not installed")

    class Library:
        available_envs = AvailableEnvs(names)

    assert Library.available_envs == []
