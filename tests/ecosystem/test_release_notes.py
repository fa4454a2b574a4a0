"""The notes of a release are its section of the changelog."""

from __future__ import annotations

import pytest

from tools.release_notes import CHANGELOG, notes

TEXT = """# Changelog

## 0.2.0

One more library.

### Fixed

* A hang.

## 0.1.0: first release

Everything.
"""


def test_a_tag_gets_the_section_of_its_version():
    assert notes(TEXT, "v0.1.0") == "Everything.\n"
    assert notes(TEXT, "0.2.0") == "One more library.\n\n### Fixed\n\n* A hang.\n"


@pytest.mark.parametrize("tag", ["v0.1", "v0.3.0", "v0.2.0.1"])
def test_a_tag_without_a_section_is_refused(tag):
    with pytest.raises(SystemExit, match="has no section"):
        notes(TEXT, tag)


def test_the_changelog_has_a_section_for_the_first_release():
    assert len(notes(CHANGELOG.read_text(encoding="utf-8"), "v0.1.0")) > 100
