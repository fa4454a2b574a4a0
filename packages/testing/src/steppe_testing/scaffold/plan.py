"""Plan: the names of a new plugin, checked for all places that use them."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from steppe.cli import UsageError
from steppe.errors import EnvIdError
from steppe.registry import EnvId, current

# Names of distributions that PEP 508 allows.
_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_MAKE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

# Requirements that the conformance kit does not count as a plugin's library.
_OURS = ("steppe", "torch", "tensordict", "numpy")


@dataclass(frozen=True)
class Plan:
    """The names of a new plugin.

    Attributes:
        namespace: prefix of its ids, before the colon; for transforms, the name of the family.
        distribution: name of the package for pip, and of its folder.
        package: name of the package to import.
        names: names of its environments, without the namespace; empty for transforms.
        transforms: names of its transform classes.
        library: the wrapped package with its versions, or None.
        make: ``"module:name"`` of the simulator class or factory, or None.
        methods: the simulator's methods for ``"reset"`` and ``"step"``.
        kind: ``"single"`` for one agent, ``"group"`` for groups of agents, ``"batch"`` for environments that the
            simulator steps together, ``"transforms"`` without environments.
    """

    namespace: str
    distribution: str
    package: str
    names: tuple[str, ...]
    transforms: tuple[str, ...]
    library: Requirement | None = None
    make: str | None = None
    methods: Mapping[str, str] = field(default_factory=lambda: {"reset": "reset", "step": "step"})
    kind: str = "single"

    @classmethod
    def of(
        cls,
        name: str,
        *,
        kind: str = "single",
        library: str | None = None,
        make: str | None = None,
        names: str | None = None,
        transforms: str | None = None,
        methods: Mapping[str, str] | None = None,
    ) -> Plan:
        """Make a plan from the arguments of the command.

        Raises:
            UsageError: an argument is invalid; the text, one line, says what is valid.
        """
        namespace = _namespace(name)
        package = f"{namespace.replace('-', '_')}_steppe"
        if not package.isidentifier():
            raise UsageError(f"{name!r} gives the module {package!r}, which cannot be imported: begin with a letter")
        transform_names = _listed(transforms, "--transform") if transforms is not None else ()
        if kind == "transforms" and not transform_names:
            transform_names = (_camel(namespace),)
        for transform in transform_names:
            _check_transform(transform)
        if kind != "transforms":
            _check_namespace(namespace, name)
        if make is not None and not _MAKE.fullmatch(make):
            raise UsageError(f"--make {make!r} is not a class or function of a module: write --make module:Class")
        methods = methods or {"reset": "reset", "step": "step"}
        for option, method in methods.items():
            if not method.isidentifier() or keyword.iskeyword(method):
                raise UsageError(f"--{option} {method!r} is not the name of a method: write --{option} begin")
        if library is None and make is None and dict(methods) != {"reset": "reset", "step": "step"}:
            raise UsageError("--reset and --step name methods of a simulator: add --library or --make, which names it")
        return cls(
            namespace=namespace,
            distribution=f"{namespace}-steppe",
            package=package,
            names=_env_names(namespace, names) if kind != "transforms" else (),
            transforms=transform_names,
            library=None if library is None else _library(library),
            make=make,
            methods=methods,
            kind=kind,
        )

    @property
    def env_class(self) -> str:
        """The name of the environment's class."""
        return f"{_camel(self.namespace)}Env"

    @property
    def wraps_library(self) -> bool:
        """Whether the conformance kit counts a requirement as the plugin's library."""
        return self.library is not None and self.library.name not in _OURS


def _namespace(name: str) -> str:
    if not _DISTRIBUTION.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a package: letters, digits, '-', '_' and '.', with a letter or digit at "
            "both ends"
        )
    namespace: str = canonicalize_name(name)
    for affix in ("steppe-", "-steppe"):
        namespace = namespace.removeprefix(affix) if affix.endswith("-") else namespace.removesuffix(affix)
    if namespace == "steppe":
        raise UsageError("'steppe' is the core: name the plugin after the library that it wraps, or after what it does")
    return namespace


def _check_namespace(namespace: str, name: str) -> None:
    taken = current().known_package("env", namespace)
    if taken is not None:
        raise UsageError(
            f"'{namespace}:' is the namespace of {taken}, and with both installed neither would be found: "
            f"choose another name, such as my-{name}"
        )


def _listed(text: str, option: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise UsageError(f"{option} {text!r} has an empty name: write {option} first,second")
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise UsageError(f"{option} {text!r} names {', '.join(duplicates)} twice")
    return names


def _env_names(namespace: str, text: str | None) -> tuple[str, ...]:
    names = ("small", "large") if text is None else _listed(text, "--names")
    for name in names:
        if name.startswith(f"{namespace}:"):
            raise UsageError(
                f"--names must not contain the namespace: write {name.removeprefix(f'{namespace}:')!r}, not {name!r}"
            )
        try:
            EnvId.parse(f"{namespace}:{name}")
        except EnvIdError as error:
            raise UsageError(f"--names {name!r}: {error}") from None
        if not name.isprintable() or any(char in "\\\"'" or char.isspace() for char in name):
            raise UsageError(f"--names {name!r} has a space, a quote or a backslash, which ids should not contain")
    return names


def _check_transform(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise UsageError(f"--transform {name!r} is not the name of a public class: write --transform GridOneHot")
    if name in _core_transforms():
        raise UsageError(f"{name!r} is a transform of the core, which takes precedence: choose another name")
    taken = current().known_package("transform", name)
    if taken is not None:
        raise UsageError(
            f"{name!r} is a transform of {taken}, and with both installed neither would be found: choose another name"
        )


def _core_transforms() -> Sequence[str]:
    """Return the public names of ``steppe.transforms``.

    They are parsed from the source, because an import needs torch.
    """
    spec = find_spec("steppe.transforms")
    source = Path(spec.origin).read_text(encoding="utf-8") if spec is not None and spec.origin else ""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def _library(text: str) -> Requirement:
    try:
        library = Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(f"--library {text!r} is not a requirement ({str(error).splitlines()[0]}): {_BOUNDS}") from None
    if canonicalize_name(library.name) == "steppe":
        raise UsageError("--library is the package that the plugin wraps; steppe itself is always required")
    if library.url or library.marker:
        raise UsageError(f"--library {text!r} has an address or a marker: {_BOUNDS}")
    operators = {bound.operator for bound in library.specifier}
    if not operators & {">=", ">", "~=", "=="}:
        raise UsageError(
            f"--library {text!r} has no lower bound, the oldest version that the plugin supports: {_BOUNDS}"
        )
    if not operators & {"<", "<=", "~=", "=="}:
        raise UsageError(
            f"--library {text!r} has no upper bound, the first version that may break the plugin: {_BOUNDS}"
        )
    return library


_BOUNDS = "write --library 'warehouse>=1,<2'"


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[-_.]", name))
