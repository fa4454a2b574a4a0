"""lazy_exports: names of a package that are imported at their first use."""

from __future__ import annotations

import sys

import pytest

from steppe.errors import TransformNotFound


@pytest.fixture
def hall(tmp_path, monkeypatch):
    """The package ``hall``, whose module ``door`` counts its imports."""
    (tmp_path / "hall").mkdir()
    (tmp_path / "hall/__init__.py").write_text(
        "from steppe.imports import lazy_exports\n"
        "__getattr__, __dir__, __all__ = lazy_exports(__name__, {'door': ['Knob', 'Lock']})\n"
    )
    (tmp_path / "hall/door.py").write_text("Knob, Lock, Hinge = object(), object(), object()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import hall

    yield hall
    for name in ("hall", "hall.door"):
        sys.modules.pop(name, None)


def test_a_module_is_imported_at_the_first_use_of_a_name(hall):
    assert "hall.door" not in sys.modules
    assert dir(hall) == ["Knob", "Lock"] == hall.__all__

    assert hall.Lock is sys.modules["hall.door"].Lock
    assert vars(hall)["Lock"] is hall.Lock, "the second use looks nothing up"
    assert "Knob" not in vars(hall)


def test_unlisted_names_of_a_module_are_unknown(hall):
    with pytest.raises(AttributeError, match=r"^module 'hall' has no attribute 'Hinge'$"):
        hall.Hinge  # noqa: B018
    assert "hall.door" not in sys.modules


def test_classes_of_other_packages_are_found_by_kind(hall, monkeypatch):
    from steppe.imports import lazy_exports
    from steppe.registry import Registry, use

    find, names, exported = lazy_exports("hall", {"door": ["Knob"]}, kind="transform")

    with use(Registry(path=[])), pytest.raises(TransformNotFound, match="It is in steppe-vision"):
        find("Resize")
    with use(Registry(path=[])):
        assert names() == ["Knob", "Lock"]
    assert exported == ["Knob"]
    assert find("Knob") is hall.Knob
