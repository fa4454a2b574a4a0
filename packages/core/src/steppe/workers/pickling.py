"""Pickles for other processes: objects of modules that these cannot import are pickled by value."""

from __future__ import annotations

import importlib.machinery
import io
import pickle
import pickletools
import sys
from collections.abc import Sequence
from types import ModuleType

import cloudpickle

from steppe.errors import WorkerError
from steppe.workers.sharing import reduce_shared

__all__ = ["for_caller", "for_worker", "named_modules", "pickled"]


def for_worker(message: object) -> bytes:
    """Pickle a message to a worker; lambdas, and objects of the main script, which workers do not run, by value."""
    try:
        payload = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        by_value = b"__main__" in payload
    except (pickle.PicklingError, AttributeError):
        by_value = True
    return bytes(cloudpickle.dumps(message, pickle.HIGHEST_PROTOCOL)) if by_value else payload


def for_caller(message: object) -> bytes:
    """Pickle an answer of a worker; classes that the caller's script has sent by value become the script's classes."""
    try:
        return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError):
        buffer = io.BytesIO()
        _CallersPickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(message)
        return buffer.getvalue()


class _CallersPickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, value: object) -> object:
        if isinstance(value, type) and value.__module__ == "__main__" and "<locals>" not in value.__qualname__:
            return _from_main, (value.__qualname__,)
        return super().reducer_override(value)


def _from_main(name: str) -> object:
    """Return the object with this qualified name in the main module."""
    value: object = sys.modules["__main__"]
    for part in name.split("."):
        value = getattr(value, part)
    return value


def pickled(value: object) -> bytes:
    """Pickle by value what another process cannot import: lambdas, closures, ``__main__``, modules made at run time.

    Tensors in shared memory (``tensor.share_memory_()``) are not copied: the other process maps the same memory.

    Raises:
        WorkerError: a part of the value cannot be pickled; the text says which.
    """
    registered: list[ModuleType] = []
    try:
        while True:
            payload = _pickle(value)
            # Objects that are pickled by value may refer to further modules, hence the loop.
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
    def reducer_override(self, obj: object) -> object:
        shared = reduce_shared(obj)
        return super().reducer_override(obj) if shared is None else shared


def _pickle(value: object) -> bytes:
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
    """Return at least all modules of this process that a pickle, or a pickle inside it, needs.

    The module of a function that is pickled by value is not among them, unless something else in the pickle is of it.
    """
    names: set[str] = set()
    memo: dict[int | None, object] = {}
    value: object = None
    for opcode, argument, _ in pickletools.genops(payload):
        if opcode.name == "MEMOIZE" or "PUT" in opcode.name:
            memo[len(memo) if argument is None else argument] = value
            continue
        key, value = value, memo.get(argument) if "GET" in opcode.name else argument
        if isinstance(value, str) and key not in ("__module__", "__name__", "__package__"):
            names.update(name for name in value.split(" ") if name in sys.modules)
        elif isinstance(value, bytes) and value[:1] == b"\x80":
            try:
                names |= named_modules(value)
            except Exception:
                continue  # bytes that begin like a pickle by chance
    return names


def _importable(name: str) -> bool:
    """Whether a new process with this ``sys.path`` finds this module; False for modules made at run time."""
    top = name.partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names or top == "__main__":
        return True
    path: Sequence[str] | None = None
    parts = name.split(".")
    for depth in range(len(parts)):
        spec = _find(".".join(parts[: depth + 1]), path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
        if path is None and depth < len(parts) - 1:
            return True  # a module that makes its submodules when it is imported, such as torch.ops
    module = sys.modules.get(name)
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return origin is None or spec is None or spec.origin is None or spec.origin == origin


def _find(name: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
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
