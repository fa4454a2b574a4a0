"""The packages whose types a commit checks."""

from __future__ import annotations

from tools.changed_types import sources


def test_files_give_the_packages_that_they_are_in():
    files = [
        "packages/core/src/steppe/errors.py",
        "packages/core/src/steppe/envs/base.py",
        "packages/envs/gym/src/steppe_gym/env.py",
    ]

    assert sources(files) == ["packages/core/src", "packages/envs/gym/src"]


def test_other_files_give_no_package():
    assert sources(["tests/core/test_errors.py", "README.md", "tools/sync.py"]) == []
