"""PolicyContent: find the tensors and numbers of a policy in its modules, attributes, closures and global variables.

A worker gets a copy of the policy with all of these. To update the copy, both processes search their policy in the same
way, and find the same names.
"""

from __future__ import annotations

import functools
import inspect
import random
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from operator import attrgetter, itemgetter, methodcaller
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import nn

from steppe.envs import EnvBase
from steppe.errors import PolicyError
from steppe.specs import Spec

__all__ = ["PolicyContent", "check_attributes", "set_attributes"]

#: Packages whose functions and classes refer to no tensors of the user.
_LIBRARIES = {"torch", "tensordict", "numpy", "steppe", *sys.stdlib_module_names} - {"__main__"}

_NUMBERS_AND_TEXT = (bool, int, float, complex, str, bytes, np.generic)
_WITHOUT_WEIGHTS = (
    *(type(None), type, Enum, ModuleType, torch.dtype, torch.device, torch.layout, slice, range, type(...)),
    *(MethodDescriptorType, WrapperDescriptorType, np.ufunc, itemgetter, attrgetter, methodcaller),
    *(random.Random, np.random.Generator, np.random.RandomState, torch.Generator, np.dtype, property),
    # Environments, optimizers and specs inside a policy have tensors that are not weights of the policy.
    *(EnvBase, torch.optim.Optimizer, Spec, GetSetDescriptorType, MemberDescriptorType),
)
#: Attributes of every module. Among them is ``training``, which may differ between a learner and its workers.
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))

#: Maximum number of objects to search. A policy refers to a few dozen, a data set inside it to any number.
_MOST_OBJECTS = 20_000
#: Maximum depth of the search, because a global variable may refer to the whole program.
_MOST_LEVELS = 12
#: Maximum size of a container that is searched.
_MOST_ELEMENTS = 2_000


class _NumberOrText:
    """The kind of objects in ``values``."""


class PolicyContent:
    """The tensors and plain values of a policy, by name.

    Tensors are the parameters and buffers of modules, tensors that require gradients, and the tensors and numpy arrays
    of the policy itself: attributes, closures, default arguments, arguments of ``functools.partial``, and global
    variables that its code names. Tensors inside other objects (such as a replay buffer) are not included.

    Args:
        policy: a module, a function, or any callable object.

    Attributes:
        tensors: tensors by name, each once. Tensors of a module have their names in its state dict.
        aliases: further names of tensors, mapped to the names in ``tensors``.
        values: numbers and text by name. Updates of the weights do not include them.
        unknown: names of objects whose content cannot be read.
    """

    def __init__(self, policy: object) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.aliases: dict[str, str] = {}
        self.values: dict[str, object] = {}
        self.unknown: list[str] = []
        self._names: dict[int, str] = {}
        self._seen: dict[int, object] = {}  # keeps the objects alive, so that no id is used twice
        self._search("", policy, own=True)

    @property
    def by_name(self) -> dict[str, torch.Tensor]:
        """The tensors by all of their names."""
        return {**self.tensors, **{alias: self.tensors[name] for alias, name in self.aliases.items()}}

    def changed_since(self, before: Mapping[str, object]) -> dict[str, object]:
        """Return the public values that differ from ``before``, by name."""
        changed = [name for name, value in self.values.items() if _differs(before.get(name, _MISSING), value)]
        public = [name for name in changed if not any(part.startswith("_") for part in name.split("."))]
        return {name: self.values[name] for name in public}

    # -- objects --------------------------------------------------------------------------------------------------

    def _search(self, name: str, value: object, *, own: bool) -> None:
        """Add the content of an object; ``own``: the policy itself refers to it, not another object inside."""
        kind = _kind(type(value))  # type: ignore[arg-type]
        if kind is _NumberOrText:
            self.values[name] = value
        elif kind is torch.Tensor:
            self._add(name, value, own=own)
        elif kind is not None and id(value) not in self._seen:
            if len(self._seen) >= _MOST_OBJECTS or name.count(".") > _MOST_LEVELS:
                self.unknown.append(name)
                return
            self._seen[id(value)] = value
            _SEARCHES[kind](self, name, value, own)

    def _add(self, name: str, tensor: object, *, own: bool) -> None:
        if not isinstance(tensor, torch.Tensor) or not (own or (tensor.requires_grad and tensor.is_leaf)):
            self.unknown.append(name)
            return
        first = self._names.get(id(tensor))
        if first is None:
            name = self._unused(name)
            self._names[id(tensor)] = name
            self._seen[id(tensor)] = tensor
            self.tensors[name] = tensor
        elif name != first and name not in self.tensors:
            self.aliases[name] = first

    def _unused(self, name: str) -> str:
        """Return ``name`` with a number if another tensor has it: two functions may use the same variable name."""
        unused, number = name, 1
        while unused in self.tensors:
            number += 1
            unused = f"{name}#{number}"
        return unused

    def _array(self, name: str, array: np.ndarray[Any, Any], own: bool) -> None:
        if not array.flags.writeable:
            return
        try:
            tensor = torch.from_numpy(array)
        except (TypeError, ValueError):  # a dtype that torch has not, or negative strides
            self.unknown.append(name)
        else:
            self._add(name, tensor, own=own)

    def _method(self, name: str, method: MethodType | BuiltinFunctionType, own: bool) -> None:
        self._search(name, getattr(method, "__self__", None), own=own)
        self._search(name, getattr(method, "__func__", None), own=own)

    def _partial(self, name: str, call: functools.partial[Any], own: bool) -> None:
        self._search(name, call.func, own=own)
        self._elements(name, enumerate(call.args), own=own)
        self._elements(name, call.keywords.items(), own=own)

    def _leaves(self, name: str, data: TensorDictBase, own: bool) -> None:
        for key, leaf in data.items(include_nested=True, leaves_only=True):
            self._add(_joined(name, key if isinstance(key, str) else ".".join(key)), leaf, own=own)

    def _container(self, name: str, value: Collection[object], own: bool) -> None:
        if len(value) > _MOST_ELEMENTS:
            self.unknown.append(name)
        elif isinstance(value, (set, frozenset)):
            self.values[name] = frozenset(value)
        else:
            self._elements(name, value.items() if isinstance(value, Mapping) else enumerate(value), own=own)

    def _elements(self, name: str, elements: Iterable[tuple[object, object]], *, own: bool) -> None:
        for at, (key, element) in enumerate(elements):
            self._search(_joined(name, str(key) if isinstance(key, (str, int)) else f"[{at}]"), element, own=own)

    def _module(self, name: str, module: nn.Module, own: bool) -> None:
        # A module inside that was searched before is searched again, for further names of its tensors.
        for tensors in (module.named_parameters, module.named_buffers):
            for key, tensor in tensors(remove_duplicate=False):
                self._add(_joined(name, key), tensor, own=True)
        for path, part in module.named_modules():
            self._seen[id(part)] = part
            for key, value in vars(part).items():
                if key not in _OF_EVERY_MODULE:
                    # A module registers its weights; a tensor that is a plain attribute may be a cache.
                    self._search(_joined(_joined(name, path), key), value, own=False)
            self._class(_joined(name, path), type(part))

    def _instance(self, name: str, value: object, own: bool) -> None:
        # functools caches: the wrapped function is the policy. An object that answers every name has no wrapped
        # object.
        wraps = inspect.getattr_static(value, "__wrapped__", None) is not None
        wrapped = getattr(value, "__wrapped__", None) if wraps else None
        attributes = dict(_attributes(value))
        if not attributes and not hasattr(value, "__dict__") and wrapped is None and not _has_slots(type(value)):
            self.unknown.append(name)
            return
        self._search(name, wrapped, own=own)
        # Attributes of the policy itself are its own, attributes of the objects inside are not.
        is_policy = not name and own
        for key, attribute in attributes.items():
            self._search(_joined(name, key), attribute, own=is_policy)
        self._class(name, type(value))

    # -- code -----------------------------------------------------------------------------------------------------

    def _class(self, name: str, cls: type) -> None:
        """Search the functions of a class, and the tensors and modules among its attributes."""
        for base in cls.__mro__:
            if id(base) in self._seen:
                continue
            self._seen[id(base)] = base
            if _is_of_a_library(base):
                continue
            for key, value in vars(base).items():
                function = getattr(value, "fget", getattr(value, "__func__", value))
                if isinstance(function, FunctionType):
                    self._search(name, function, own=True)
                elif isinstance(value, (nn.Module, torch.Tensor, np.ndarray)):
                    self._search(_joined(name, key), value, own=True)

    def _function(self, name: str, function: FunctionType, own: bool) -> None:
        """Search the closure, default arguments, attributes and global variables of a function."""
        code = function.__code__
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # the variable is not assigned yet
                continue
            self._search(_joined(name, variable), value, own=True)
        if function.__defaults__:
            arguments = code.co_varnames[: code.co_argcount][-len(function.__defaults__) :]
            self._elements(name, zip(arguments, function.__defaults__, strict=True), own=True)
        self._elements(name, (function.__kwdefaults__ or {}).items(), own=True)
        self._elements(name, vars(function).items(), own=True)
        if _is_of_a_library(function):
            return
        names = list(dict.fromkeys(_names(code)))
        for variable in names:
            if variable not in function.__globals__:
                continue
            value = function.__globals__[variable]
            if isinstance(value, ModuleType):
                self._imported(_joined(name, variable), value, names)
            elif not (isinstance(value, FunctionType) and _is_of_a_library(value)):
                self._search(_joined(name, variable), value, own=True)

    def _imported(self, name: str, module: ModuleType, names: list[str]) -> None:
        """Search the attributes of an imported module that the code of a function names."""
        if module.__name__.partition(".")[0] in _LIBRARIES:
            return
        for key in names:
            value = vars(module).get(key)
            if isinstance(value, (nn.Module, torch.Tensor, np.ndarray, FunctionType)):
                self._search(_joined(name, key), value, own=True)


def set_attributes(policy: object, attributes: Mapping[str, object]) -> None:
    """Assign attributes of a policy. If one assignment fails, none takes effect.

    Args:
        policy: the policy; of a bound method, the attributes of its object are assigned.
        attributes: values by name; ``"module.eps"`` is the attribute ``eps`` of ``policy.module``.

    Raises:
        PolicyError: the policy has no such attribute, or refuses the value.
    """
    targets = [(*_owner(policy, path), value) for path, value in attributes.items()]
    before = [getattr(owner, name) for owner, name, _ in targets]
    for done, (owner, name, value) in enumerate(targets):
        try:
            setattr(owner, name, value)
        except (AttributeError, TypeError) as error:
            for (changed, changed_name, _), old in zip(targets[:done], before, strict=False):
                setattr(changed, changed_name, old)
            raise PolicyError(f"The policy does not take {name} = {value!r}: {error}") from error


#: The method that searches objects of a type; the first type that fits is used.
_SEARCHES: dict[type, Callable[[PolicyContent, str, Any, bool], None]] = {
    nn.Module: PolicyContent._module,
    FunctionType: PolicyContent._function,
    MethodType: PolicyContent._method,
    BuiltinFunctionType: PolicyContent._method,
    functools.partial: PolicyContent._partial,
    TensorDictBase: PolicyContent._leaves,
    np.ndarray: PolicyContent._array,
    **dict.fromkeys((list, tuple, Mapping, set, frozenset), PolicyContent._container),
    object: PolicyContent._instance,
}


# Cached, because classes of environments answer issubclass slowly, and each update has a few hundred objects.
@functools.lru_cache(maxsize=1024)
def _kind(cls: type) -> type | None:
    """Return the type under which instances of a class are searched; None for objects without weights."""
    if issubclass(cls, _NUMBERS_AND_TEXT):
        return _NumberOrText
    if issubclass(cls, _WITHOUT_WEIGHTS) or hasattr(cls, "update_policy_weights_"):  # the latter is a collector
        return None
    return torch.Tensor if issubclass(cls, torch.Tensor) else next(kind for kind in _SEARCHES if issubclass(cls, kind))


def check_attributes(policy: object, names: Iterable[str]) -> None:
    """Raise a PolicyError if the policy has not all attributes that :func:`set_attributes` would assign."""
    for path in names:
        _owner(policy, path)


def _owner(policy: object, path: str) -> tuple[object, str]:
    """Return the object that has the attribute of a dotted path, and the name of the attribute there."""
    if not isinstance(path, str):
        raise PolicyError(f"Names of attributes are text, such as 'eps' or 'module.eps', found {path!r}.")
    owner = _find_owner(policy, path)
    if owner is None:
        known = sorted(name for name in PolicyContent(policy).values if name and _find_owner(policy, name) is not None)
        raise PolicyError(
            f"The policy {type(policy).__name__} has no attribute {path!r} of its own. Attributes with numbers or "
            f"text: {known}."
        )
    return owner, path.rpartition(".")[2]


def _find_owner(policy: object, path: str) -> object | None:
    owner = policy.__self__ if isinstance(policy, MethodType) else policy
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent, None)
    return owner if owner is not None and _has_own(owner, name) else None


def _has_own(owner: object, name: str) -> bool:
    """Whether an assignment would replace the attribute. Some modules forward attributes of a module inside."""
    if isinstance(owner, nn.Module):
        registered = (*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False))
        if any(name == each for each, _ in registered):
            return True
    return name in getattr(owner, "__dict__", {}) or hasattr(type(owner), name)


#: Stands for a missing value in comparisons.
_MISSING = object()


def _differs(before: Any, now: Any) -> bool:
    if type(before) is not type(now):
        return True
    return bool(before != now) and not (before != before and now != now)  # NaN equals NaN here


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    """Yield the attributes of an object, those in slots included."""
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _has_slots(cls: type) -> bool:
    return any("__slots__" in vars(base) for base in cls.__mro__)


def _is_of_a_library(value: type | Callable[..., Any]) -> bool:
    return str(value.__module__).partition(".")[0] in _LIBRARIES


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of global variables and attributes in a function and in the functions that it defines."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
