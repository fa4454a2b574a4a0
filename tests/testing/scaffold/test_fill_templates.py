"""The package that ``steppe new-plugin`` writes."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from steppe.registry import Registry
from tests.testing.scaffold.conftest import sources

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_a_package_is_written_and_the_next_commands_are_said(new_plugin, tmp_path):
    status, out, err = new_plugin("warehouse", "--transform", "GridOneHot")

    assert (status, err) == (0, "")
    files = sources(tmp_path / "warehouse-steppe")
    assert set(files) == {
        *("pyproject.toml", "README.md", ".gitignore", "tests/test_conformance.py"),
        *(f"src/warehouse_steppe/{name}.py" for name in ("__init__", "plugin", "env", "simulator", "transforms")),
    }
    assert [line for line in out.splitlines() if line.startswith("  ")][-4:] == [
        f"  cd {tmp_path / 'warehouse-steppe'}",
        "  python -m pip install -e '.[test]'",
        "  steppe check warehouse:small",
        "  python -m pytest",
    ]
    assert list(tmp_path.iterdir()) == [tmp_path / "warehouse-steppe"], "nothing is left beside it"


def test_its_metadata_has_both_entry_points_and_all_bounds(new_plugin, tmp_path):
    new_plugin("warehouse", "--library", "warehouse<2,>=1", "--transform", "GridOneHot,GridFlip")

    project = tomllib.loads((tmp_path / "warehouse-steppe/pyproject.toml").read_text())["project"]
    assert project["name"] == "warehouse-steppe"
    assert project["dependencies"] == ["steppe>=0.1,<0.2", "warehouse>=1,<2"]
    assert project["entry-points"] == {
        "steppe.envs": {"warehouse": "warehouse_steppe.plugin"},
        "steppe.transforms": {
            "GridOneHot": "warehouse_steppe.transforms:GridOneHot",
            "GridFlip": "warehouse_steppe.transforms:GridFlip",
        },
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("acme-sim",),
        ("acme-sim", "--names", "one"),
        ("acme-sim", "--names", "a-b,a.b,A-B/v0", "--transform", "Flip"),
        ("acme-sim", "--library", "acme~=2.1"),
        ("steppe-acme-sim", "--kind", "transforms"),
        ("acme-sim", "--kind", "transforms", "--transform", "Flip,Flop"),
        ("acme-sim", "--kind", "group", "--library", "acme~=2.1"),
        ("acme-sim", "--kind", "batch", "--names", "one", "--make", "acme:Engine"),
    ],
)
def test_every_generated_file_compiles_and_has_no_placeholders(new_plugin, tmp_path, arguments):
    assert new_plugin(*arguments).status == 0

    files = sources(tmp_path / "acme-sim-steppe")
    for name, text in files.items():
        assert "$" not in text, name
        assert max(map(len, text.splitlines()), default=0) <= 120, name
        assert text == text.rstrip("\n") + "\n", name
        if name.endswith(".py"):
            names = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
            assert len(names) == len(set(names)), name


def test_its_plugin_is_found_without_torch_and_says_what_it_has(new_plugin, tmp_path, fake_dist, monkeypatch):
    new_plugin("warehouse", "--names", "small,large")
    source = tmp_path / "warehouse-steppe/src"
    for module in ("torch", "tensordict", "numpy"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.syspath_prepend(str(source))
    fake_dist("warehouse-steppe", "0.1.0", envs={"warehouse": "warehouse_steppe.plugin"}, requires=["steppe"])
    registry = Registry(path=[str(fake_dist.path)])

    try:
        assert registry.env_names("warehouse") == ["large", "small"]
        with pytest.raises(LookupError, match=r"has no environment 'smal'\. Did you mean 'small'\?"):
            registry.make("warehouse:smal", {})
    finally:
        for module in ("warehouse_steppe", "warehouse_steppe.plugin"):
            sys.modules.pop(module, None)


def test_an_existing_folder_is_left_unchanged(new_plugin, tmp_path):
    kept = tmp_path / "warehouse-steppe"
    kept.mkdir()
    (kept / "notes.txt").write_text("mine")

    status, out, err = new_plugin("warehouse")

    assert (status, out) == (2, "")
    assert err.startswith(f"steppe new-plugin: {kept} exists, and nothing is overwritten:")
    assert sources(kept) == {"notes.txt": "mine"}


def test_where_writing_fails_nothing_half_written_is_left(new_plugin, tmp_path, monkeypatch):
    written = []

    def full(path, text, encoding):
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    status, _, err = new_plugin("warehouse")

    assert (status, err.count("\n")) == (2, 1)
    assert err.endswith("cannot be written: No space left on device\n")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_to_write_into_must_be_there(steppe, installed, tmp_path):
    status, _, err = steppe("new-plugin", "warehouse", "--dir", str(tmp_path / "nowhere"))

    assert status == 2
    assert err == f"steppe new-plugin: {tmp_path / 'nowhere'} cannot be written to: No such file or directory\n"
