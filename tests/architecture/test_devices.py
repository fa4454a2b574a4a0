"""All tensors of steppe have an explicit device.

So torch.set_default_device has no effect.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.utils._device import _device_constructors

from tools.workspace import ROOT, packages

MAKERS = {function.__name__ for function in _device_constructors()}
# Templates are not code of steppe, and doubles are written like their libraries.
FILES = [
    path
    for package in packages()
    for path in sorted((package.path / "src").rglob("*.py"))
    if not {"templates", "doubles"} & set(path.parts)
]


def calls(path: Path) -> Iterator[ast.Call]:
    """Return the calls in a file that make tensors on the default device."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MAKERS:
            root = node.func.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id == "torch":
                yield node


def follows(call: ast.Call) -> bool:
    """Whether a call names no device, or the device of data, which may be None."""
    device = next((keyword.value for keyword in call.keywords if keyword.arg == "device"), None)
    return device is None or ast.unparse(device) in (
        "None",
        "td.device",
        "data.device",
        "tensordict.device",
        "self.device",
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "packages")))
def test_tensors_are_made_on_a_device_that_is_named(path: Path) -> None:
    assert [f"{path}:{call.lineno}: {ast.unparse(call)}" for call in calls(path) if follows(call)] == []
