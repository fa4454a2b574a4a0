from __future__ import annotations

import pytest
from packaging.version import Version

from steppe.versions import VersionRange


@pytest.mark.parametrize(
    ("bounds", "version", "inside"),
    [
        (("0.13", "0.26"), "0.13", True),
        (("0.13", "0.26"), "0.26.0", False),
        (("0.13", "0.26"), "0.9", False),
        ((None, "1.0.0"), "1.0.0rc1", True),
        (("1.0.0", None), "1.0.0rc1", False),
        (("1.0.0a0", None), "1.0.0rc1", True),
        (("1.0.0", None), "1.0.0.post1", True),
        (("2.0", None), "2.0+cpu", True),
        (("0.9", None), "0.10", True),
        ((None, None), "0.0.1.dev0", True),
    ],
)
def test_a_range_holds_its_lower_bound_and_not_its_upper_one(bounds, version, inside):
    assert (Version(version) in VersionRange.parse(*bounds)) is inside


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [
        (("0.1", "0.2"), ("0.2", "0.3"), False),
        (("0.1", "0.3"), ("0.2", "0.4"), True),
        ((None, "0.2"), ("0.1", None), True),
        ((None, "0.2"), ("0.2", None), False),
        ((None, None), ("0.1", "0.2"), True),
        (("1.0rc1", "2.0"), (None, "1.0"), True),
    ],
)
def test_overlap_is_symmetric_and_half_open(first, second, overlap):
    first, second = VersionRange.parse(*first), VersionRange.parse(*second)

    assert first.overlaps(second) is overlap
    assert second.overlaps(first) is overlap


def test_equal_bounds_written_differently_are_one_range():
    assert VersionRange.parse("0.26", None) == VersionRange.parse("0.26.0", None)


@pytest.mark.parametrize(
    ("bounds", "text"),
    [(("0.13", "0.26"), ">=0.13,<0.26"), ((None, "1"), "<1"), (("1", None), ">=1"), ((None, None), "")],
)
def test_a_range_prints_as_a_requirement(bounds, text):
    assert str(VersionRange.parse(*bounds)) == text


def test_an_invalid_bound_is_refused():
    with pytest.raises(ValueError, match="'newest' is not a version"):
        VersionRange.parse("newest", None)


@pytest.mark.parametrize("bounds", [("0.2", "0.1"), ("0.2", "0.2.0")])
def test_an_empty_range_is_refused(bounds):
    with pytest.raises(ValueError, match="to_version must be above from_version"):
        VersionRange.parse(*bounds)
