"""Names that first-party packages provide, installed or not."""

from __future__ import annotations

from steppe.registry import known


def test_known_names_have_packages():
    assert known.FIRST_PARTY.of("env")["dm"] == "steppe-dm-control"
    assert known.FIRST_PARTY.of("transform")["TensorDictPrimer"] == "steppe-time"
    assert known.Known().of("logger") == {}


def test_the_extra_is_the_package_without_prefix():
    assert known.install("steppe-mo-gym") == "pip install 'steppe[mo-gym]'"


def test_names_of_libraries_are_namespaces():
    assert set(known.LIBRARIES.values()) <= set(known.FIRST_PARTY.of("env"))
    assert not set(known.LIBRARIES) & set(known.FIRST_PARTY.of("env"))
