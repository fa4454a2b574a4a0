"""Pickles for other processes: what they could not import travels by value."""

from __future__ import annotations

import importlib.machinery
import io
import pickle
import pickletools
import sys
from typing import Any

import cloudpickle

from steppe.errors import WorkerError
from steppe.workers.sharing import reduced_if_shared

__all__ = ["for_caller", "for_worker", "named_modules", "pickled"]


def for_worker(message: Any) -> bytes:
    """Pickle a message to a worker, by value where it has something of the script, which workers do not run."""
    payload = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    if b"__main__" not in payload:
        return payload
    return bytes(cloudpickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def for_caller(message: Any) -> bytes:
    """Pickle an answer of a worker, in which classes of the caller's script, sent by value, become the script's own."""
    try:
        return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError):
        buffer = io.BytesIO()
        _CallersPickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(message)
        return buffer.getvalue()


class _CallersPickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type) and value.__module__ == "__main__" and "<locals>" not in value.__qualname__:
            return _of_script, (value.__qualname__,)
        return super().reducer_override(value)


def _of_script(name: str) -> Any:
    """What the main module of this process calls so."""
    value: Any = sys.modules["__main__"]
    for part in name.split("."):
        value = getattr(value, part)
    return value


def pickled(value: Any) -> bytes:
    """Pickle by value whatever another process could not import: lambdas, closures, ``__main__``, loose modules.

    Tensors in shared memory (``tensor.share_memory_()``) stay where they are: the other process has the same memory.

    Raises:
        WorkerError: something in it cannot be pickled; the text says what.
    """
    registered: list[Any] = []
    try:
        while True:
            payload = _pickle(value)
            # By value they may name further modules, hence the loop.
            strangers = {name for name in named_modules(payload) if not _importable(name)}
            strangers -= cloudpickle.list_registry_pickle_by_value()
            if not strangers:
                return payload
            for name in strangers:
                cloudpickle.register_pickle_by_value(sys.modules[name])
                registered.append(sys.modules[name])
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        shared = reduced_if_shared(obj)
        return super().reducer_override(obj) if shared is None else shared


def _pickle(value: Any) -> bytes:
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception as error:
        raise WorkerError(
            f"A factory, policy or argument cannot be sent to a worker process: {type(error).__name__}: {error}. "
            "Make what cannot be pickled inside the function instead of outside it, or stay in this process: SerialEnv "
            "instead of ParallelEnv, a collector without workers."
        ) from error
    return buffer.getvalue()


def named_modules(payload: bytes) -> set[str]:
    """Modules of this process whose names are in a pickle, or in a pickle inside it; more than it needs, never less."""
    found: set[str] = set()
    for _, argument, _ in pickletools.genops(payload):
        if isinstance(argument, str):
            found.update(name for name in argument.split(" ") if name in sys.modules)
        elif isinstance(argument, bytes) and argument[:1] == b"\x80":
            try:
                found |= named_modules(argument)
            except Exception:
                continue  # bytes that only begin like a pickle
    return found


def _importable(name: str) -> bool:
    """Whether a new process with this ``sys.path`` would find the module; a module that only exists here is not."""
    top = name.partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names or top == "__main__":
        return True
    path: Any = None
    parts = name.split(".")
    for depth in range(len(parts)):
        spec = _find(".".join(parts[: depth + 1]), path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
        if path is None and depth < len(parts) - 1:
            return True  # submodules that a module makes itself (torch.ops): whoever imports the top has them
    module = sys.modules.get(name)
    own = getattr(getattr(module, "__spec__", None), "origin", None)
    return own is None or spec is None or spec.origin is None or spec.origin == own


def _find(name: str, path: Any) -> importlib.machinery.ModuleSpec | None:
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        if find_spec is None:
            continue
        try:
            spec: importlib.machinery.ModuleSpec | None = find_spec(name, path)
        except Exception:
            continue
        if spec is not None:
            return spec
    return None
