"""Policies for the command line."""

from __future__ import annotations

import pytest

from steppe.cli.output import UsageError
from steppe.cli.policy import import_policy


def test_a_policy_is_imported_by_its_path():
    assert import_policy("posixpath:join")("a", "b") == "a/b"
    assert import_policy("collections:OrderedDict.fromkeys")("ab") == {"a": None, "b": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policy", "takes module:callable"),
        (":act", "takes module:callable"),
        ("no_such_module:act", "cannot be imported: ModuleNotFoundError"),
        ("math:no_such_name", "cannot be imported: AttributeError"),
        ("math:pi", "is not callable: it is of type float"),
    ],
)
def test_a_wrong_path_is_named(text, message):
    with pytest.raises(UsageError, match=message):
        import_policy(text)
