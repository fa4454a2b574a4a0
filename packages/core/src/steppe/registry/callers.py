"""Callers: validates, calls and traces the hooks of imported plugins."""

from __future__ import annotations

import inspect
import os
import sys
from typing import Any, Final, NoReturn

import pluggy

from ..errors import PluginIncompatible
from . import hooks, loader
from .messages import joined, suggestion
from .records import PluginRecord


class Callers:
    """The hooks of the plugins that have been imported.

    Args:
        steppe_version: the running steppe, for error texts.
    """

    def __init__(self, *, steppe_version: str) -> None:
        self._steppe_version: Final = steppe_version
        self._manager: Final = pluggy.PluginManager(hooks.PROJECT)
        self._manager.add_hookspecs(hooks)

    def add(self, record: PluginRecord, plugin: object) -> None:
        """Register an imported plugin; a plugin with two namespaces is registered once.

        Raises:
            PluginIncompatible: a hook of the plugin has another signature than the declared one.
        """
        if self._manager.is_registered(plugin):
            return
        implemented = self._check(record, plugin)
        if "steppe_make_env" not in implemented:
            arguments = ", ".join(self._specs()["steppe_make_env"].argnames)
            self._refuse(record, f"it has no steppe_make_env. Write @hookimpl, def steppe_make_env({arguments})", None)
        try:
            self._manager.register(plugin, name=record.target)
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:
            if self._manager.is_registered(plugin):
                self._manager.unregister(plugin)
            raise self._mismatch(record, " ".join(str(error).split())) from error

    def call(self, plugin: object, hook: str, /, **kwargs: object) -> Any:
        """Call a hook of one plugin; returns None if the plugin does not implement it."""
        others = [other for other in self._manager.get_plugins() if other is not plugin]
        caller = self._manager.subset_hook_caller(hook, others)
        if tracing() and caller.get_hookimpls():
            arguments = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
            trace(f"{hook}({arguments}) of {self._manager.get_name(plugin)}")
        return caller(**kwargs)

    def _check(self, record: PluginRecord, plugin: object) -> set[str]:
        specs = self._specs()
        implemented = set()
        for attribute in dir(plugin):
            options = self._manager.parse_hookimpl_opts(plugin, attribute)
            if options is None:
                function = getattr(plugin, attribute) if attribute in specs else None
                # A plugin may import the declarations of the hooks without implementing them.
                if inspect.isroutine(function) and function.__module__ != hooks.__name__:
                    text = f"{attribute} has no @hookimpl. Write @hookimpl above it, from steppe import hookimpl"
                    self._refuse(record, text, function)
                continue
            implementation = pluggy.HookImpl(plugin, record.target, getattr(plugin, attribute), options)
            name = options.get("specname") or attribute
            implemented.add(name)
            if name not in specs:
                if not implementation.optionalhook:
                    close = suggestion(name, specs)
                    hint = f"; did you mean {close!r}?" if close else ""
                    self._refuse(record, f"there is no hook {name!r}{hint}", implementation.function)
                continue
            takes = specs[name].argnames
            unknown = [argument for argument in implementation.argnames if argument not in takes]
            if unknown:
                arguments = joined([repr(argument) for argument in unknown])
                text = f"{name} takes ({', '.join(takes)}), the plugin's function takes {arguments}"
                self._refuse(record, text, implementation.function)
        return implemented

    def _specs(self) -> dict[str, Any]:
        return {name: getattr(self._manager.hook, name).spec for name in dir(hooks) if name.startswith("steppe_")}

    def _refuse(self, record: PluginRecord, mismatch: str, function: object) -> NoReturn:
        code = getattr(function, "__code__", None)
        package = record.module.partition(".")[0]
        where = f" ({loader.place(code.co_filename, code.co_firstlineno, package)})" if code else ""
        raise self._mismatch(record, f"{mismatch}{where}")

    def _mismatch(self, record: PluginRecord, mismatch: str) -> PluginIncompatible:
        return PluginIncompatible(f"{record.label} does not fit steppe {self._steppe_version}: {mismatch}.")


def tracing() -> bool:
    """Whether ``STEPPE_TRACE_PLUGINS`` is set: every import and hook call is then printed to stderr."""
    return os.environ.get("STEPPE_TRACE_PLUGINS", "") not in ("", "0")


def trace(text: str) -> None:
    print(f"steppe: {text}", file=sys.stderr, flush=True)
