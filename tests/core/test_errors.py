"""The exceptions of steppe: each is a built-in exception too, and the page of the module lists all."""

from __future__ import annotations

import builtins
import re

import pytest

from steppe import errors

CLASSES = [getattr(errors, name) for name in errors.__all__ if name not in ("add_note",)]


@pytest.mark.parametrize("cls", CLASSES)
def test_the_tree_lists_each_class_with_its_builtin(cls):
    line = re.search(rf"\b{cls.__name__}\b *(\(\w+\))?", errors.__doc__ or "")

    assert line is not None
    if line[1]:
        assert issubclass(cls, getattr(builtins, line[1].strip("()")))


def test_a_wrong_argument_is_no_wrong_data():
    assert issubclass(errors.ArgumentError, ValueError)
    assert not issubclass(errors.ArgumentError, errors.SpecError)


def test_an_error_of_a_worker_is_raised_again_with_its_place():
    first = errors.WorkerTimeout("slow", worker=2, env=7, remote_traceback="trace")
    again = first.again("closed")

    assert type(again) is errors.WorkerTimeout
    assert (str(again), again.worker, again.env, again.remote_traceback) == ("closed", 2, 7, "trace")
