"""Helpers of the commands: numbers, tables, errors in one line."""

from __future__ import annotations

import argparse
import json

import pytest

from steppe.cli.output import natural, one_line, positive, print_json, print_pairs, print_table


@pytest.mark.parametrize(("parse", "text", "value"), [(positive, "3", 3), (natural, "0", 0), (natural, "12", 12)])
def test_numbers_are_parsed(parse, text, value):
    assert parse(text) == value


@pytest.mark.parametrize(("parse", "text"), [(positive, "0"), (positive, "-2"), (natural, "1.5"), (natural, "x")])
def test_other_text_is_refused(parse, text):
    with pytest.raises(argparse.ArgumentTypeError, match=f"got '{text}'"):
        parse(text)


def test_an_error_without_text_has_the_name_of_its_class():
    assert one_line(ValueError("two\n  lines")) == "two lines"
    assert one_line(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_columns_are_as_wide_as_needed(capsys):
    print_table(["name", "n"], [["long name", "1"], ["b", "22"]])
    print_pairs({"a": "1", "longer": "2"}, indent=" ")
    print_json({"a": [1]})
    *lines, text = capsys.readouterr().out.split("\n", 5)

    assert lines == ["NAME       N", "long name  1", "b          22", " a       1", " longer  2"]
    assert json.loads(text) == {"a": [1]}
