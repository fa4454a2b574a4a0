"""PluginConformance: tests of the package and the hooks of an environment plugin."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest
from packaging.requirements import Requirement

from steppe.errors import LibraryMissing, LibraryVersionError, PluginError
from steppe.registry import PluginRecord, Registry, current, list_envs, list_plugins, make_env

from .capabilities import CAPABILITY, require, skip_gated
from .fake_dists import FakeDists

__all__ = ["PluginConformance"]

_BLOCKED = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None
import {module}
"""


class PluginConformance:
    """Tests of one installed environment plugin.

    Subclass it with a name that begins with ``Test``::

        class TestPlugin(PluginConformance):
            namespace = "acme"
            smoke = ("Pendulum",)

    >>> from steppe_testing import PluginConformance
    >>> class TestGym(PluginConformance):  # in a test file; pytest runs its tests
    ...     namespace = "gym"
    ...     smoke = ("CartPole-v1",)
    >>> TestGym().test_one_package_provides_the_namespace()

    Attributes:
        namespace: prefix of its ids, before the colon.
        smoke: names of environments to make, reset and close.
        smoke_kwargs: arguments of ``make_env`` for them.
        lists_names: the plugin implements ``steppe_env_names``.
        wraps_library: the plugin wraps a library that may be missing or too old. None: it does if its package requires
            others than steppe, torch, tensordict and numpy, or if ``steppe_library()`` names one.
    """

    namespace: ClassVar[str]
    smoke: ClassVar[tuple[str, ...]] = ()
    smoke_kwargs: ClassVar[dict[str, Any]] = {}
    lists_names: ClassVar[bool] = True
    wraps_library: ClassVar[bool | None] = None

    @pytest.fixture
    def record(self) -> PluginRecord:
        """The metadata of the installed plugin."""
        records = self._records()
        if len(records) != 1:
            skip_gated(self, "test_one_package_provides_the_namespace", f"{len(records)} packages provide it")
        return records[0]

    def _records(self) -> list[PluginRecord]:
        return [plugin for plugin in list_plugins() if plugin.kind == "env" and plugin.name == self.namespace]

    # -- metadata -------------------------------------------------------------------------------------------------

    def test_one_package_provides_the_namespace(self) -> None:
        """Add ``[project.entry-points."steppe.envs"]`` with the namespace to pyproject.toml and install it."""
        records = self._records()
        if not records:
            list_envs(self.namespace)  # raises PluginNotFound, which names a misspelt group of entry points
        assert records, f"no installed package has an entry point {self.namespace!r} in steppe.envs"
        assert len(records) == 1, f"{[record.dist for record in records]} all provide {self.namespace!r}"
        target = records[0].target
        assert find_spec(_module(records[0])) is not None, f"the entry point names {target!r}: no such module"

    def test_steppe_is_required_with_an_upper_bound(self, record: PluginRecord) -> None:
        """Write ``dependencies = ["steppe>=0.1,<0.2"]``: the next series may change what the plugin relies on."""
        requirements = [Requirement(line) for line in record.requires if Requirement(line).name == "steppe"]
        assert requirements, f"{record.dist} does not require steppe"
        bounded = any(bound.operator in ("<", "<=", "~=", "==") for bound in requirements[0].specifier)
        assert bounded, f"{record.dist} requires {requirements[0]}, without an upper bound"

    def test_a_missing_library_says_how_to_install_it(self, record: PluginRecord, tmp_path: Path) -> None:
        """Require the library in ``dependencies``, or in extras that the extra ``any-of`` lists."""
        self._require_library(record)
        registry, copy = _only_plugin(record, tmp_path)
        with pytest.raises(LibraryMissing, match="pip install"):
            registry.check(copy)

    def test_an_old_library_says_which_is_needed(self, record: PluginRecord, tmp_path: Path) -> None:
        """Give the library's requirement a lower bound: the oldest version that the plugin was tested with."""
        self._require_library(record)
        registry, copy = _only_plugin(record, tmp_path, libraries="0.0.0.dev0")
        requires = [str(library) for library in _libraries(record)]
        fix = f'write the oldest version that the plugin was tested with: "{_libraries(record)[0].name}>=..."'
        with suppress(LibraryVersionError):
            registry.check(copy)
            raise AssertionError(f"{record.dist} requires {requires}, which allows version 0.0.0.dev0: {fix}")

    def _require_library(self, record: PluginRecord) -> None:
        """Skip the test if the plugin wraps no library.

        Fail if it wraps one without requiring it.
        """
        if self.wraps_library is not None:
            require(self, "wraps_library")
        if _libraries(record):
            return
        named = _named_library(record)
        name = type(self).__name__
        if named is None and self.wraps_library is None:
            pytest.skip(f"{CAPABILITY}{name}.wraps_library: {record.dist} requires no library, and names none")
        wraps = f"its steppe_library() names {named!r}" if named is not None else f"{name}.wraps_library is True"
        raise AssertionError(
            f"{record.dist} requires no library, and {wraps}. Write it into `dependencies` of pyproject.toml; or, "
            f"if no library can be missing or too old, write `wraps_library = False` in {name}."
        )

    # -- the module -----------------------------------------------------------------------------------------------

    def test_its_module_imports_neither_its_library_nor_torch(self, record: PluginRecord) -> None:
        """Import the library, torch, and modules that import them, inside the hooks."""
        blocked = ["torch", "tensordict", *_library_modules(record)]
        code = _BLOCKED.format(blocked=blocked, module=_module(record))
        path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, env=path)
        last = done.stderr.strip().splitlines()[-1:]
        assert done.returncode == 0, f"import {_module(record)} fails if {blocked} are missing: {last}"

    def test_its_hooks_fit(self, record: PluginRecord) -> None:
        """Name the hooks and their arguments as :mod:`steppe.registry` does."""
        try:
            plugin = current().plugins.load(record)
        except (LibraryMissing, LibraryVersionError) as error:
            pytest.skip(f"its library cannot be used: {error}")
        except PluginError as error:
            raise AssertionError(str(error)) from error
        assert hasattr(plugin, "steppe_make_env"), f"{record.target} has no steppe_make_env(name, kwargs)"

    def test_it_imports_public_names_of_steppe_only(self, record: PluginRecord) -> None:
        """Write ``from steppe.envs import EnvBase``, not ``from steppe.envs.base import EnvBase``."""
        wrong = [
            f"{file.name}:{line} imports {name}"
            for file, line, name in _imports(record)
            if name.split(".")[0] == "steppe" and len(name.split(".")) > 2
        ]
        assert not wrong, "; ".join(wrong)

    def test_it_imports_no_other_plugin(self, record: PluginRecord) -> None:
        """Require the other plugin in ``dependencies``, or do without it."""
        needed = {Requirement(line).name.replace("_", "-").lower() for line in record.requires}
        others = {
            _module(plugin).split(".")[0]: plugin.dist
            for plugin in list_plugins()
            if plugin.dist != record.dist and plugin.dist.replace("_", "-").lower() not in needed
        }
        wrong = [
            f"{file.name}:{line} imports {name} of {others[name.split('.')[0]]}"
            for file, line, name in _imports(record)
            if name.split(".")[0] in others
        ]
        assert not wrong, "; ".join(wrong)

    # -- environments ---------------------------------------------------------------------------------------------

    def _usable(self, record: PluginRecord) -> None:
        try:
            current().plugins.load(record)
        except PluginError as error:
            skip_gated(self, "test_its_hooks_fit", str(error))

    def test_names_are_listed(self, record: PluginRecord) -> None:
        """Return the names from ``steppe_env_names``, without the namespace; or set ``lists_names = False``."""
        require(self, "lists_names")
        self._usable(record)
        names = list_envs(self.namespace)
        assert names, "steppe_env_names() is missing or returns no names"
        wrong = [name for name in names if not isinstance(name, str) or name.startswith(f"{self.namespace}:")]
        assert not wrong, f"steppe_env_names() must return strings without the namespace, found {wrong[:5]}"
        unlisted = [name for name in self.smoke if name not in names]
        assert not unlisted, f"steppe_env_names() returns {len(names)} names without {unlisted}, which smoke lists"

    def test_an_unknown_name_is_not_found(self, record: PluginRecord) -> None:
        """Raise ``env_not_found(namespace, name)`` of :mod:`steppe.registry`."""
        from steppe.errors import EnvNotFound

        self._usable(record)
        with pytest.raises(EnvNotFound):
            make_env(f"{self.namespace}:NoSuchEnvironment-v999", **self.smoke_kwargs)

    def test_smoke_names_are_built(self, record: PluginRecord) -> None:
        """Return an environment from ``steppe_make_env`` that can be reset and closed."""
        from steppe.envs import EnvBase

        if not self.smoke:
            pytest.skip("smoke is empty")
        self._usable(record)
        for name in self.smoke:
            env = make_env(f"{self.namespace}:{name}", **self.smoke_kwargs)
            assert isinstance(env, EnvBase), f"make_env({name!r}) returned a {type(env).__name__}, expected an EnvBase"
            env.reset()
            env.close()


def _module(record: PluginRecord) -> str:
    return record.target.partition(":")[0]


def _libraries(record: PluginRecord) -> list[Requirement]:
    lines = [*record.requires, *(line for choice in record.alternatives for line in choice.requires)]
    skipped = ("steppe", "torch", "tensordict", "numpy")
    return [lib for lib in map(Requirement, lines) if lib.name not in skipped and not lib.name.startswith("steppe-")]


def _named_library(record: PluginRecord) -> str | None:
    """Return the library that the hook of the plugin names.

    Returns None if it names none or fails.
    """
    try:
        info = current().library(record.name)
    except PluginError:
        return None
    except ImportError as error:  # the library itself is not installed
        return error.name
    return None if info is None else info.dist


def _library_modules(record: PluginRecord) -> list[str]:
    libraries = {library.name.replace("_", "-").lower() for library in _libraries(record)}
    return sorted(
        module
        for module, dists in packages_distributions().items()
        if any(dist.replace("_", "-").lower() in libraries for dist in dists)
    )


def _only_plugin(record: PluginRecord, folder: Path, *, libraries: str | None = None) -> tuple[Registry, PluginRecord]:
    """Return a registry with only this plugin and its record there.

    ``libraries`` is the version of its libraries; None if they are not installed.
    """
    dists = FakeDists(folder)
    extras = {choice.install: f"choice{i}" for i, choice in enumerate(record.alternatives)}
    lines = [line for line in record.requires if not Requirement(line).name.startswith("steppe")]
    for choice in record.alternatives:
        lines += [
            f"{line} ; extra == '{extra}'" for line in choice.requires for extra in (extras[choice.install], "any-of")
        ]
    dists(
        record.dist,
        record.version,
        envs={record.name: record.target},
        requires=lines,
        extras=[*extras.values(), *(["any-of"] if extras else [])],
    )
    if libraries is not None:
        for name in {library.name for library in _libraries(record)}:
            dists(name, libraries)
    registry = Registry(path=[str(folder)])
    return registry, next(copy for copy in registry.records() if copy.name == record.name)


def _imports(record: PluginRecord) -> Iterator[tuple[Path, int, str]]:
    """Yield the imports of the plugin's package: file, line and module."""
    spec = find_spec(_module(record).split(".")[0])
    assert spec is not None
    roots = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [file for root in roots for file in root.rglob("*.py")] or [Path(str(spec.origin))]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((file, node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield file, node.lineno, node.module
