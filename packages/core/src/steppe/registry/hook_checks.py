"""Compares the hooks of an imported plugin with their declarations, and registers it with pluggy."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pluggy

from ..errors import PluginIncompatible
from . import hooks, loader
from .messages import joined, suggestion
from .records import PluginRecord


def register(manager: pluggy.PluginManager, record: PluginRecord, plugin: object, *, steppe_version: str) -> None:
    """Register an imported plugin; a plugin with two namespaces is registered once.

    Args:
        manager: the manager, which knows the declarations of the hooks.
        record: the plugin's record.
        plugin: its module, or another object with its hooks.
        steppe_version: the running steppe, for the error.

    Raises:
        PluginIncompatible: a hook has another signature than the declared one, or is unknown.
    """
    if manager.is_registered(plugin):
        return
    problem = next(_problems(manager, record, plugin), None)
    cause: Exception | None = None
    if problem is None:
        try:
            manager.register(plugin, name=record.target)
            manager.check_pending()
            return
        except pluggy.PluginValidationError as error:
            if manager.is_registered(plugin):
                manager.unregister(plugin)
            problem, cause = " ".join(str(error).split()), error
    raise PluginIncompatible(f"{record.label} does not fit steppe {steppe_version}: {problem}.") from cause


def _problems(manager: pluggy.PluginManager, record: PluginRecord, plugin: object) -> Iterator[str]:
    specs = {name: getattr(manager.hook, name).spec for name in dir(hooks) if name.startswith("steppe_")}
    implemented = set()
    for attribute in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, attribute)
        if options is None:
            function = getattr(plugin, attribute) if attribute in specs else None
            # A plugin may import the declarations of the hooks without implementing them.
            if inspect.isroutine(function) and function.__module__ != hooks.__name__:
                place = _place(record, function)
                yield f"{attribute} has no @hookimpl. Write @hookimpl above it, from steppe import hookimpl{place}"
            continue
        implementation = pluggy.HookImpl(plugin, record.target, getattr(plugin, attribute), options)
        name = options.get("specname") or attribute
        implemented.add(name)
        if name not in specs:
            if not implementation.optionalhook:
                close = suggestion(name, specs)
                hint = f"; did you mean {close!r}?" if close else ""
                yield f"there is no hook {name!r}{hint}{_place(record, implementation.function)}"
            continue
        takes = specs[name].argnames
        unknown = [argument for argument in implementation.argnames if argument not in takes]
        if unknown:
            arguments = joined([repr(argument) for argument in unknown])
            place = _place(record, implementation.function)
            yield f"{name} takes ({', '.join(takes)}), the plugin's function takes {arguments}{place}"
    if "steppe_make_env" not in implemented:
        arguments = ", ".join(specs["steppe_make_env"].argnames)
        yield f"it has no steppe_make_env. Write @hookimpl, def steppe_make_env({arguments})"


def _place(record: PluginRecord, function: object) -> str:
    """The line of a function, as ``" (acme_sim/plugin.py:3)"``; "" if it has none."""
    code = getattr(function, "__code__", None)
    package = record.module.partition(".")[0]
    return f" ({loader.place(code.co_filename, code.co_firstlineno, package)})" if code else ""
