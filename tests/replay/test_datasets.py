"""load_dataset finds the format of an id, and its errors name the fix."""

from __future__ import annotations

from typing import Any

import pytest

import steppe
from steppe.errors import ClassNotFound, LibraryMissing, PluginNotFound, SpecError
from steppe_replay import ReplayBuffer, load_dataset

SOURCE = """
from steppe_replay import LazyTensorStorage, ReplayBuffer

class HerdFormat:
    def load(self, name, **kwargs):
        buffer = ReplayBuffer(storage=LazyTensorStorage(3), **kwargs)
        buffer.name = name
        return buffer
"""


@pytest.fixture
def herd(fake_dist: Any) -> None:
    """A package with a format of data sets."""
    entry_points = {"steppe.datasets": {"herd": "fake_herd:HerdFormat"}}
    fake_dist("steppe-herd", "0.1.0", entry_points=entry_points, files={"fake_herd.py": SOURCE})


def test_an_id_is_loaded_by_the_format_of_its_namespace(herd: None, steppe_registry: Any) -> None:
    buffer = load_dataset("herd:sheep/two:black-v0", batch_size=7)
    assert isinstance(buffer, ReplayBuffer)
    assert (vars(buffer)["name"], buffer.batch_size) == ("sheep/two:black-v0", 7)


def test_a_similar_namespace_is_suggested(herd: None, steppe_registry: Any) -> None:
    with pytest.raises(PluginNotFound) as caught:
        load_dataset("heard:sheep")
    assert str(caught.value) == (
        "No plugin provides data sets 'heard:'. Did you mean 'herd'? Installed formats: herd. 'steppe plugins' lists "
        "them."
    )


def test_a_missing_package_is_named(steppe_registry: Any) -> None:
    with pytest.raises(ClassNotFound, match=r"steppe-minari: pip install 'steppe\[minari\]'"):
        load_dataset("minari:D4RL/pen/human-v2")
    with pytest.raises(PluginNotFound, match="Installed formats: none"):
        load_dataset("quarry:stones")


def test_a_missing_library_is_named(fake_dist: Any, steppe_registry: Any) -> None:
    entry_points = {"steppe.datasets": {"herd": "fake_herd:HerdFormat"}}
    requires = ["shepherd>=3"]
    fake_dist("steppe-herd", "0.1.0", entry_points=entry_points, requires=requires, files={"fake_herd.py": SOURCE})
    with pytest.raises(LibraryMissing, match="shepherd"):
        load_dataset("herd:sheep")


@pytest.mark.parametrize("id", ["pen-human-v2", "minari:", ":pen", ""])
def test_an_id_needs_a_namespace_and_a_name(id: str) -> None:
    with pytest.raises(SpecError, match="'namespace:name', such as 'minari:D4RL/pen/human-v2'; found"):
        load_dataset(id)


def test_formats_are_listed_with_the_plugins(herd: None, steppe_registry: Any, capsys: Any) -> None:
    from steppe.cli import main

    assert main(["plugins"]) == 0
    assert any("dataset" in line and "herd" in line for line in capsys.readouterr().out.splitlines())


def test_load_dataset_is_a_name_of_steppe() -> None:
    assert steppe.load_dataset is load_dataset
