"""Fill the templates and write the folder, completely or not at all."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template

import steppe
from steppe.cli import UsageError
from steppe.registry import requirement_text

from .plan import Plan
from .simulator import Simulator

_DEFAULT_VERSION = "0.1"  # if steppe runs without being installed


def write(plan: Plan, simulator: Simulator, folder: Path) -> list[str]:
    """Write the package.

    The files are written to a temporary folder, which is then renamed, so that no incomplete package can be left.

    Args:
        plan: names of the package.
        simulator: simulator that its environment wraps.
        folder: the new folder; must not exist.

    Returns:
        The files, relative to the folder, sorted.

    Raises:
        UsageError: the folder cannot be written.
    """
    texts = rendered(plan, simulator)
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{plan.distribution}-", dir=folder.parent))
    except OSError as error:
        raise UsageError(f"{folder.parent} cannot be written to: {error.strerror or error}") from None
    try:
        for name, text in texts.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        temporary.chmod(0o777 & ~_umask())  # mkdtemp gives access to the owner only
        temporary.rename(folder)  # fails if the folder was created in the meantime
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return sorted(texts)


def rendered(plan: Plan, simulator: Simulator) -> dict[str, str]:
    """Return the files of the package: path -> text."""
    files = {"pyproject.toml": "pyproject.toml", "README.md": "README.md", ".gitignore": "gitignore"}
    source = f"src/{plan.package}"
    files[f"{source}/__init__.py"] = "init.py"
    files["tests/test_conformance.py"] = "test_conformance.py"
    if plan.names:
        files[f"{source}/plugin.py"] = "plugin.py"
        files[f"{source}/env.py"] = simulator.template
        if simulator.stands_in:
            kind = "" if plan.kind == "single" else f"_{plan.kind}"
            files[f"{source}/simulator.py"] = f"simulator{kind}.py"
    if plan.transforms:
        files[f"{source}/transforms.py"] = "transforms.py"
    values = _values(plan, simulator)
    return {path: _filled(template, values) for path, template in files.items()}


def _filled(template: str, values: dict[str, str]) -> str:
    source = resources.files(__package__).joinpath("templates", f"{template}.tmpl").read_text(encoding="utf-8")
    # A line with only a placeholder is removed if its value is empty, and so are the blank lines that remain.
    text = re.sub(r"^[ ]*\$\{(\w+)\}\n", lambda m: m[0] if values[m[1]] else "", source, flags=re.MULTILINE)
    text = re.sub(r"^([ ]*)\$\{(\w+)\}$", lambda m: _indented(m[1], values[m[2]]), text, flags=re.MULTILINE)
    text = Template(text).substitute(values)
    text = re.sub(r"\n{4,}", "\n\n\n", text)
    return text.rstrip("\n") + "\n"


def _indented(indent: str, block: str) -> str:
    return "\n".join(f"{indent}{line}" if line else "" for line in block.split("\n")).replace("$", "$$")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _values(plan: Plan, simulator: Simulator) -> dict[str, str]:
    version = steppe.__version__
    major, minor = (version if re.match(r"\d+\.\d+", version) else _DEFAULT_VERSION).split(".")[:2]
    bounds = f">={major}.{minor},<{major}.{int(re.sub(r'[^0-9].*', '', minor)) + 1}"
    library = "" if plan.library is None else requirement_text(plan.library)
    first = plan.names[0] if plan.names else ""
    values = {
        "namespace": plan.namespace,
        "distribution": plan.distribution,
        "package": plan.package,
        "env_class": plan.env_class,
        "bounds": bounds,
        "first": first,
        "names_table": _names_table(plan, simulator),
        "agents_line": '"steppe-multi-agent",  # group_agents' if plan.kind == "group" else "",
        "library": library,
        "library_line": f'"{library}",  # the supported versions, stated only here' if library else "",
        "env_entry": f'[project.entry-points."steppe.envs"]\n{_toml_key(plan.namespace)} = "{plan.package}.plugin"'
        if plan.names
        else "",
        "transform_entries": '[project.entry-points."steppe.transforms"]\n'
        + "\n".join(f'{name} = "{plan.package}.transforms:{name}"' for name in plan.transforms)
        if plan.transforms
        else "",
        "what": _what(plan),
        "exports": _exports(plan),
        "sizes": ", ".join(f'"{name}": {5 + 2 * i}' for i, name in enumerate(plan.names)),
        "transform_classes": "\n\n\n".join(
            _part("transform_class", {"name": name, "key": simulator.first_key}) for name in plan.transforms
        ),
        "transform_all": ", ".join(f'"{name}"' for name in plan.transforms),
        "plugin_tests": "",
        "env_tests": "",
        "transform_tests": "",
        "readme_env": "",
        "readme_transform": "",
        "test_imports": _test_imports(plan),
        **simulator.lines(),
    }
    if plan.names:
        identifiers = _identifiers(plan.names)
        classes = [
            f'class Test{identifier}(Test{identifiers[0]}):\n    env_id = "{plan.namespace}:{name}"'
            for name, identifier in zip(plan.names[1:], identifiers[1:], strict=True)
        ]
        values["class_name"] = identifiers[0]
        values["wraps_library"] = (
            "wraps_library = True  # it requires a package that may be missing or too old"
            if plan.wraps_library
            else "wraps_library = False  # no required package can be missing or too old"
        )
        values["plugin_tests"] = _filled("part_test_plugin.py", values).rstrip("\n")
        values["env_tests"] = "\n\n\n".join([_filled("part_test_env.py", values).rstrip("\n"), *classes])
        values["readme_env"] = _filled("part_readme_env.md", values).rstrip("\n")
    if plan.transforms:
        values["transform_tests"] = "\n\n\n".join(
            _part("part_test_transform.py", {"name": name}) for name in plan.transforms
        )
        values["readme_transform"] = _part(
            "part_readme_transform.md", {"name": plan.transforms[0], "key": simulator.first_key}
        )
    return values


def _part(template: str, values: dict[str, str]) -> str:
    return _filled(template, values).rstrip("\n")


def _names_table(plan: Plan, simulator: Simulator) -> str:
    """Return the names of the plugin, with arguments of the simulator where it takes no name."""
    if not simulator.stands_in and not simulator.answer["takes_name"] and len(plan.names) > 1:
        arguments = ", ".join(f'"{name}": {{}}' for name in plan.names)
        return f"{{{arguments}}}  # the arguments of the simulator by name"
    return "(" + ", ".join(f'"{name}"' for name in plan.names) + ("," if len(plan.names) == 1 else "") + ")"


def _what(plan: Plan) -> str:
    library = f" of {plan.library.name}" if plan.library is not None else ""
    if plan.names and plan.transforms:
        return f"Environments{library} and transforms for steppe"
    return f"Environments{library} for steppe" if plan.names else "Transforms for steppe"


def _exports(plan: Plan) -> str:
    names = {"env": [plan.env_class] if plan.names else [], "transforms": plan.transforms}
    return ", ".join(
        f'"{module}": [' + ", ".join(f'"{name}"' for name in each) + "]" for module, each in names.items() if each
    )


def _test_imports(plan: Plan) -> str:
    kit = ["EnvConformance", "PluginConformance"] if plan.names else []
    kit += ["TransformConformance"] if plan.transforms else []
    lines = ["from steppe import Categorical"] if plan.transforms else []
    lines.append(f"from steppe_testing import {', '.join(kit)}")
    own = [f"from {plan.package}.plugin import NAMES"] if plan.names else []
    if plan.transforms:
        own += [f"from {plan.package}.transforms import {', '.join(sorted(plan.transforms))}"]
    lines += ["", *own]
    return "\n".join(lines)


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def _identifiers(names: Sequence[str]) -> list[str]:
    """Return a unique part of a class name for each name."""
    identifiers: list[str] = []
    for name in names:
        parts = re.findall(r"[A-Za-z0-9]+", name)
        word = "".join(part[:1].upper() + part[1:] for part in parts) or "Env"
        identifiers.append(word if word not in identifiers else f"{word}{len(identifiers)}")
    return identifiers
