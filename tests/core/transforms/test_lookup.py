"""Transforms of other packages, looked up in steppe.transforms."""

from __future__ import annotations

import subprocess

import pytest

import steppe
import steppe.transforms
from steppe.errors import TransformNotFound
from steppe.registry import Registry, list_classes, use
from steppe.registry.known import FIRST_PARTY
from tests.forked import python
from tests.limits import CHILD

MISSING = "Resize"


def is_installed() -> bool:
    return MISSING in list_classes("transform")


@pytest.mark.skipif(is_installed(), reason="steppe-vision is installed")
def test_a_known_name_that_is_not_installed_says_how_to_get_it():
    text = r"No installed package has the transform 'Resize'\. It is in steppe-vision: pip install 'steppe\[vision\]'\."

    with pytest.raises(TransformNotFound, match=text):
        steppe.transforms.Resize  # noqa: B018
    with pytest.raises(ImportError, match=text):
        from steppe.transforms import Resize  # noqa: F401
    with pytest.raises(TransformNotFound):
        hasattr(steppe.transforms, MISSING)


def test_an_unknown_name_suggests_a_close_one():
    with pytest.raises(AttributeError, match=r"has no attribute 'StepConter'\. Did you mean 'StepCounter'"):
        steppe.transforms.StepConter  # noqa: B018
    assert not hasattr(steppe.transforms, "_private")


def test_importing_the_transforms_loads_no_plugin():
    code = "import sys, steppe.imports; steppe.imports.import_tensordict(); import steppe.transforms; "
    code += "print([m for m in sys.modules if m.startswith('steppe_')])"

    assert subprocess.run([*python(), "-c", code], capture_output=True, text=True, timeout=CHILD).stdout == "[]\n"


MOVED = ("CallableTransform", "DoubleToFloat", "RenameTransform", "ConditionalSkip", "AutoResetTransform")


@pytest.mark.parametrize("name", MOVED)
def test_a_name_that_left_the_core_is_found_in_steppe(name):
    if name in list_classes("transform"):
        assert getattr(steppe, name) is getattr(steppe.transforms, name)


@pytest.mark.parametrize("module", ["steppe", "steppe.transforms"])
@pytest.mark.parametrize("name", MOVED)
def test_a_name_that_left_the_core_says_what_to_install(name, module):
    package = FIRST_PARTY.of("transform")[name]
    extra = package.removeprefix("steppe-")
    text = rf"No installed package has the transform '{name}'\. It is in {package}: pip install 'steppe\[{extra}\]'"

    with use(Registry(path=[])), pytest.raises(TransformNotFound, match=text):
        exec(f"from {module} import {name}")


def test_a_function_needs_the_package_of_callable_transforms():
    text = r"It is in steppe-tensor: pip install 'steppe\[tensor\]'"

    with use(Registry(path=[])), pytest.raises(TransformNotFound, match=text):
        steppe.transforms.Compose(lambda td: td)
