from __future__ import annotations

import sys

import pytest
from packaging.version import Version

from steppe.versions import library_version


def test_the_version_comes_from_metadata_without_an_import(library):
    library("acme_meta", "1.2.3", module="raise RuntimeError('imported')")

    assert library_version("acme_meta") == Version("1.2.3")


def test_a_distribution_of_another_name_is_found(library):
    library("acme_short", "4.5", dist="acme_long", module="raise RuntimeError('imported')")

    assert library_version("acme_short") == Version("4.5")


def test_a_module_without_metadata_is_asked(library):
    library("acme_bare", None, module="__version__ = '0.7'")

    assert library_version("acme_bare") == Version("0.7")


@pytest.mark.parametrize("module", ["", "__version__ = 'today'"])
def test_a_library_without_a_readable_version_is_an_error(library, module):
    library("acme_vague", None, module=module)

    with pytest.raises(ValueError, match="acme_vague is installed, but its version cannot be read"):
        library_version("acme_vague")


def test_a_missing_library_has_no_version_until_it_is_installed(library):
    assert library_version("acme_late") is None

    library("acme_late", "1.0")

    assert library_version("acme_late") == Version("1.0")


def test_a_blocked_module_counts_as_missing(library, monkeypatch):
    library("acme_blocked", "1.0")
    monkeypatch.setitem(sys.modules, "acme_blocked", None)

    assert library_version("acme_blocked") is None
