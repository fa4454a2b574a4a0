"""Rules for docstrings: which members are shown, how arguments are read, and where names lead.

A class has one entry in the reference, ``steppe.Composite``, and several paths: ``steppe.specs.Composite``,
``steppe.specs.composite.Composite``, and ``Composite`` alone in its own module.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

__all__ = ["resolve", "signature_of_init", "skip_foreign", "split_shared_entries"]

_SHARED = re.compile(r"^(    )(\*{0,2}\w+(?:, \*{0,2}\w+)+): ")


def split_shared_entries(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Give each argument of an entry such as ``args, kwargs: ...`` an entry, because napoleon reads one name only."""
    result: list[str] = []
    entry: list[str] | None = None
    names: list[str] = []

    def flush() -> None:
        nonlocal entry
        for each in names if entry is not None else []:
            result.append(f"    {each}: {entry[0]}")
            result.extend(entry[1:])
        entry = None

    for line in lines:
        found = _SHARED.match(line)
        if found:
            flush()
            names, entry = found.group(2).split(", "), [line[found.end() :]]
        elif entry is not None and line.startswith("     "):
            entry.append(line)
        else:
            flush()
            result.append(line)
    flush()
    lines[:] = result


def signature_of_init(
    app: Any, what: str, name: str, value: Any, options: Any, signature: str, returns: str
) -> tuple[str, str] | None:
    """Show the arguments of ``__init__`` where a metaclass hides them behind ``*args, **kwargs``."""
    if what != "class" or not str(signature).startswith("(*args"):
        return None
    from sphinx.util.inspect import stringify_signature

    found = inspect.signature(value.__init__)
    own = found.replace(parameters=list(found.parameters.values())[1:])
    return stringify_signature(own, show_return_annotation=False, unqualified_typehints=True), returns


def skip_foreign(app: Any, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Skip members of classes that another project wrote: tensorclasses have the methods of TensorDict."""
    function = getattr(value, "__func__", getattr(value, "fget", value))
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return True if code is not None and "/src/steppe" not in Path(code.co_filename).as_posix() else None


def resolve(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Return the reference for a role of the Python domain whose target Sphinx has not found, or None."""
    if node.get("refdomain") != "py":
        return None
    domain = env.get_domain("py")
    for path in _paths(node.get("reftarget", ""), node.get("py:module"), node.get("py:class")):
        value, rest = _imported(path)
        if value is None:
            continue
        name = _documented(domain, value)
        if name is None:
            continue
        for full in (".".join([name, *rest]), name):
            if full in domain.objects:
                entry = domain.objects[full]
                from sphinx.util.nodes import make_refnode

                return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, full)
    return None


def _paths(target: str, module: str | None, of: str | None) -> list[str]:
    paths = [target]
    if module:
        paths += [f"{module}.{target}", *([f"{module}.{of}.{target}"] if of else [])]
    if "." not in target or target.split(".")[0].istitle() or target[:1].isupper():
        paths.append(f"steppe.{target}")
    return paths


def _imported(path: str) -> tuple[Any, list[str]]:
    """Return the class or function of a path, and the rest of the path: the name of a member."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except Exception:
            continue
        rest = parts[length:]
        if not rest:
            return None, []
        try:
            owner: Any = getattr(value, rest[0])
        except Exception:
            return None, []
        return (owner, rest[1:]) if inspect.isclass(owner) or inspect.isroutine(owner) else (None, [])
    return None, []


def _documented(domain: Any, value: Any) -> str | None:
    """Return the name under which the reference has a class or function."""
    known: dict[str, str] = domain.data.setdefault("steppe_names", {})
    if not known:
        for name in domain.objects:
            found, rest = _imported(name)
            if found is not None and not rest:
                known.setdefault(_key(found), name)
    return known.get(_key(value))


def _key(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', repr(value))}"
