"""Arguments that have no effect, and arguments that do not exist."""

from __future__ import annotations

import warnings

import pytest

from steppe.arguments import ignored_argument, unknown_argument
from steppe.errors import IgnoredArgumentWarning


def heard(calls):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for owner, name in calls:
            ignored_argument(owner, name, "it is always so")
    return found


def test_an_argument_without_effect_is_said_once():
    found = heard([("Batch", "daemon"), ("Batch", "daemon"), ("Batch", "memmap"), ("Other", "daemon")])

    assert [str(each.message).partition(" has")[0] for each in found] == [
        "Batch: the argument daemon",
        "Batch: the argument memmap",
        "Other: the argument daemon",
    ]
    assert {each.category for each in found} == {IgnoredArgumentWarning}


def test_the_warning_points_at_the_line_of_the_user():
    (found,) = heard([("Batch", "pin_memory")])

    assert found.filename == __file__


def test_the_warning_can_be_filtered_by_its_class():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", IgnoredArgumentWarning)

        ignored_argument("Batch", "consolidate", "it is always so")


@pytest.mark.parametrize(
    ("name", "hint"), [("num_proceses", "did you mean 'num_processes'?"), ("zzz", "it takes num_processes, device.")]
)
def test_an_unknown_argument_is_an_error_with_a_suggestion(name, hint):
    error = unknown_argument("Batch", name, ["num_processes", "device"])

    assert isinstance(error, TypeError)
    assert str(error) == f"Batch has no argument {name!r}: {hint}"


def test_a_part_of_a_name_suggests_the_whole_name():
    names = ["frames_per_batch", "total_frames", *(f"option_{i}" for i in range(20))]

    assert str(unknown_argument("Collector", "total", names)).endswith("did you mean 'total_frames'?")
    assert str(unknown_argument("Collector", "zzz", names)).endswith("help(Collector) lists its arguments.")
