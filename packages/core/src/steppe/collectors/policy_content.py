"""The tensors and plain values of a policy, wherever it keeps them: modules, attributes, and what functions refer to.

A policy that is sent to a worker is copied with all of this. To bring the copy up to date, both processes look through
their policy in the same way and find the same names.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
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

#: Packages whose functions and classes refer to nothing of the user's.
_LIBRARIES = {"torch", "tensordict", "numpy", "steppe", *sys.stdlib_module_names} - {"__main__"}

_NUMBERS_AND_TEXT = (bool, int, float, complex, str, bytes, np.generic)
_WITHOUT_WEIGHTS = (
    *(type(None), type, Enum, ModuleType, torch.dtype, torch.device, torch.layout, slice, range, type(...)),
    *(MethodDescriptorType, WrapperDescriptorType, np.ufunc, itemgetter, attrgetter, methodcaller),
    *(random.Random, np.random.Generator, np.random.RandomState, torch.Generator, np.dtype, property),
    # An environment, an optimizer or a spec inside a policy is no part of what it learns.
    *(EnvBase, torch.optim.Optimizer, Spec, GetSetDescriptorType, MemberDescriptorType),
)
#: What every module has as attributes: the flag ``training`` may differ between a learner and its workers.
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))

#: Objects to look at before giving up: a policy refers to a few dozen, a data set in one of them has no end.
_MOST_OBJECTS = 20_000
#: Content further inside than this is not looked at: a global variable may lead to the whole program.
_MOST_LEVELS = 12
_MOST_ELEMENTS = 2_000


class PolicyContent:
    """What was found in a policy.

    Tensors are parameters and buffers of modules, tensors that require gradients, and the tensors and numpy arrays that
    the policy itself holds: as an attribute, in a closure, a default argument, an argument of ``functools.partial``, or
    a global variable that its code names. Tensors inside other objects (a replay buffer, say) are left out.

    Args:
        policy: a module, a function, or any callable object.

    Attributes:
        tensors: by name, each once. Names of a module are those of its state dict.
        aliases: further names of tensors, to the names in ``tensors``.
        values: numbers and text by name, which do not travel when weights are updated.
        unknown: names of objects whose content cannot be seen.
    """

    def __init__(self, policy: Any) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.aliases: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.unknown: list[str] = []
        self._names: dict[int, str] = {}
        self._seen: dict[int, Any] = {}  # the objects too, so that no id is used twice
        self._visit("", policy, own=True)

    def find(self, name: str, others: tuple[str, ...] = ()) -> torch.Tensor | None:
        """The tensor of a name, or of one of its other names; None without one."""
        for one in (name, *others):
            tensor = self.tensors.get(self.aliases.get(one, one))
            if tensor is not None:
                return tensor
        return None

    def changed_since(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Public values that differ from ``before``, by name."""
        changed = [name for name, value in self.values.items() if _differs(before.get(name, _NOTHING), value)]
        public = [name for name in changed if not any(part.startswith("_") for part in name.split("."))]
        return {name: self.values[name] for name in public}

    # -- objects --------------------------------------------------------------------------------------------------

    def _visit(self, name: str, value: Any, *, own: bool) -> None:
        """Look at an object.

        Args:
            name: where it was found.
            value: the object.
            own: whether the policy itself holds it, not an object inside.
        """
        kind = _kind(type(value))  # type: ignore[arg-type]
        if kind is _NUMBERS_AND_TEXT:
            self.values[name] = value
        elif kind is torch.Tensor:
            self._add(name, value, own=own)
        elif kind is not None and id(value) not in self._seen:
            if len(self._seen) >= _MOST_OBJECTS or name.count(".") > _MOST_LEVELS:
                self.unknown.append(name)
                return
            self._seen[id(value)] = value
            _LOOKS[kind](self, name, value, own)

    def _add(self, name: str, tensor: Any, *, own: bool) -> None:
        if not isinstance(tensor, torch.Tensor) or not (own or (tensor.requires_grad and tensor.is_leaf)):
            self.unknown.append(name)
            return
        first = self._names.get(id(tensor))
        if first is None:
            name = self._free(name)
            self._names[id(tensor)] = name
            self._seen[id(tensor)] = tensor
            self.tensors[name] = tensor
        elif name != first and name not in self.tensors:
            self.aliases[name] = first

    def _free(self, name: str) -> str:
        """A name that no other tensor has: two functions may each have a variable of one name."""
        free, number = name, 1
        while free in self.tensors:
            number += 1
            free = f"{name}#{number}"
        return free

    def _array(self, name: str, array: np.ndarray[Any, Any], own: bool) -> None:
        if not array.flags.writeable:
            return
        try:
            tensor = torch.from_numpy(array)
        except (TypeError, ValueError):  # of a dtype that torch lacks, or with negative strides
            self.unknown.append(name)
        else:
            self._add(name, tensor, own=own)

    def _method(self, name: str, method: Any, own: bool) -> None:
        self._visit(name, getattr(method, "__self__", None), own=own)
        self._visit(name, getattr(method, "__func__", None), own=own)

    def _partial(self, name: str, call: functools.partial[Any], own: bool) -> None:
        self._visit(name, call.func, own=own)
        self._elements(name, enumerate(call.args), own=own)
        self._elements(name, call.keywords.items(), own=own)

    def _of_tensordict(self, name: str, data: TensorDictBase, own: bool) -> None:
        for key, leaf in data.items(include_nested=True, leaves_only=True):
            self._add(_joined(name, key if isinstance(key, str) else ".".join(key)), leaf, own=own)

    def _container(self, name: str, value: Any, own: bool) -> None:
        if len(value) > _MOST_ELEMENTS:
            self.unknown.append(name)
        elif isinstance(value, (set, frozenset)):
            self.values[name] = frozenset(value)
        else:
            self._elements(name, value.items() if isinstance(value, Mapping) else enumerate(value), own=own)

    def _elements(self, name: str, elements: Any, *, own: bool) -> None:
        for at, (key, element) in enumerate(elements):
            self._visit(_joined(name, str(key) if isinstance(key, (str, int)) else f"[{at}]"), element, own=own)

    def _module(self, name: str, module: nn.Module, own: bool) -> None:
        state = vars(module)
        if not _keeps_its_tensors(module):
            for several in (module.named_parameters, module.named_buffers):
                for key, tensor in several(remove_duplicate=False):
                    self._add(_joined(name, key), tensor, own=True)
        else:
            for kind in ("_parameters", "_buffers"):
                for key, tensor in state[kind].items():
                    if tensor is not None:
                        self._add(_joined(name, key), tensor, own=True)
            for key, part in state["_modules"].items():
                if part is not None:
                    # One that was seen is looked at again, for the other names of its tensors.
                    self._module(_joined(name, key), part, own)
        self._seen[id(module)] = module
        for key, value in state.items():
            if key not in _OF_EVERY_MODULE:
                # What is to travel is registered: an attribute that is a plain tensor may be a cache.
                self._visit(_joined(name, key), value, own=False)
        self._class(name, type(module))

    def _instance(self, name: str, value: Any, own: bool) -> None:
        wrapped = getattr(value, "__wrapped__", None)
        attributes = dict(_attributes(value))
        if not attributes and not hasattr(value, "__dict__") and wrapped is None and not _has_slots(type(value)):
            self.unknown.append(name)
            return
        self._visit(name, wrapped, own=own)
        # What the callable object itself holds is its own; what objects inside hold is theirs.
        is_policy = not name and own
        for key, attribute in attributes.items():
            self._visit(_joined(name, key), attribute, own=is_policy)
        self._class(name, type(value))

    # -- code -----------------------------------------------------------------------------------------------------

    def _class(self, name: str, cls: type) -> None:
        """Look at the functions of a class, and at tensors and modules that all of its instances share."""
        for one in cls.__mro__:
            if id(one) in self._seen:
                continue
            self._seen[id(one)] = one
            if _is_of_a_library(one):
                continue
            for key, value in vars(one).items():
                function = getattr(value, "fget", getattr(value, "__func__", value))
                if isinstance(function, FunctionType):
                    self._visit(name, function, own=True)
                elif isinstance(value, (nn.Module, torch.Tensor, np.ndarray)):
                    self._visit(_joined(name, key), value, own=True)

    def _function(self, name: str, function: FunctionType, own: bool) -> None:
        """Look at what a function refers to: its closure, default arguments, and global variables."""
        code = function.__code__
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self._visit(_joined(name, variable), value, own=True)
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
                self._of_imported(_joined(name, variable), value, names)
            elif not (isinstance(value, FunctionType) and _is_of_a_library(value)):
                self._visit(_joined(name, variable), value, own=True)

    def _of_imported(self, name: str, module: ModuleType, names: list[str]) -> None:
        """Look at what code may mean by ``module.attribute``."""
        if module.__name__.partition(".")[0] in _LIBRARIES:
            return
        for key in names:
            value = vars(module).get(key)
            if isinstance(value, (nn.Module, torch.Tensor, np.ndarray, FunctionType)):
                self._visit(_joined(name, key), value, own=True)


def set_attributes(policy: Any, attributes: Mapping[str, Any]) -> None:
    """Assign attributes of a policy, all of them or none.

    Args:
        policy: the policy; a bound method is that of its object.
        attributes: values by name; ``"module.eps"`` is the attribute ``eps`` of ``policy.module``.

    Raises:
        PolicyError: the policy has no such attribute, or refuses the value.
    """
    places = [(*_place(policy, path), value) for path, value in attributes.items()]
    before = [getattr(owner, name) for owner, name, _ in places]
    for done, (owner, name, value) in enumerate(places):
        try:
            setattr(owner, name, value)
        except (AttributeError, TypeError) as error:
            for (changed, other, _), old in zip(places[:done], before, strict=False):
                setattr(changed, other, old)
            raise PolicyError(f"The policy does not take {name} = {value!r}: {error}") from error


#: How objects of a kind are looked at.
_LOOKS: dict[Any, Callable[[PolicyContent, str, Any, bool], None]] = {
    nn.Module: PolicyContent._module,
    FunctionType: PolicyContent._function,
    MethodType: PolicyContent._method,
    BuiltinFunctionType: PolicyContent._method,
    functools.partial: PolicyContent._partial,
    TensorDictBase: PolicyContent._of_tensordict,
    np.ndarray: PolicyContent._array,
    **dict.fromkeys((list, tuple, Mapping, set, frozenset), PolicyContent._container),
    object: PolicyContent._instance,
}


@functools.lru_cache(
    maxsize=1024
)  # a class of the environments answers slowly, and each update asks a few hundred times
def _kind(cls: type) -> Any:
    """What sort of object an instance of a class is; None for one without weights."""
    if issubclass(cls, _NUMBERS_AND_TEXT):
        return _NUMBERS_AND_TEXT
    if issubclass(cls, _WITHOUT_WEIGHTS) or hasattr(cls, "update_policy_weights_"):
        return None  # the latter is a collector
    return torch.Tensor if issubclass(cls, torch.Tensor) else next(kind for kind in _LOOKS if issubclass(cls, kind))


def check_attributes(policy: Any, names: Iterable[str]) -> None:
    """Raise a PolicyError if a policy lacks one of the attributes that :func:`set_attributes` would assign."""
    for path in names:
        _place(policy, path)


def _place(policy: Any, path: str) -> tuple[Any, str]:
    """The object that has an attribute, and the name there."""
    if not isinstance(path, str):
        raise PolicyError(f"Names of attributes are text, such as 'eps' or 'module.eps', found {path!r}.")
    owner = policy.__self__ if isinstance(policy, MethodType) else policy
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent, None)
    if owner is None or not _has_own(owner, name):
        known = sorted(one for one in PolicyContent(policy).values if one and _has_own_path(policy, one))
        raise PolicyError(
            f"The policy {type(policy).__name__} has no attribute {path!r} of its own. Attributes with numbers or "
            f"text: {known}."
        )
    return owner, name


def _has_own_path(policy: Any, path: str) -> bool:
    owner = policy.__self__ if isinstance(policy, MethodType) else policy
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent, None)
    return owner is not None and _has_own(owner, name)


def _has_own(owner: Any, name: str) -> bool:
    """Whether an assignment replaces an attribute: some modules show those of the module inside as theirs."""
    if isinstance(owner, nn.Module):
        registered = (*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False))
        if any(name == one for one, _ in registered):
            return True
    return name in getattr(owner, "__dict__", {}) or hasattr(type(owner), name)


class _Nothing:
    """Stands for a value that was not there."""


_NOTHING = _Nothing()


def _differs(before: Any, now: Any) -> bool:
    if type(before) is not type(now):
        return True
    return bool(before != now) and not (before != before and now != now)  # NaN is what it was


def _keeps_its_tensors(module: nn.Module) -> bool:
    """Whether a module has its tensors and parts where every module has them, and no class shows others."""
    cls = type(module)
    return (
        cls.named_parameters is nn.Module.named_parameters
        and cls.named_buffers is nn.Module.named_buffers
        and "_parameters" in vars(module)
        and not isinstance(module, torch.jit.ScriptModule)
    )


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _has_slots(cls: type) -> bool:
    return any("__slots__" in vars(one) for one in cls.__mro__)


def _is_of_a_library(value: type | Callable[..., Any]) -> bool:
    return str(value.__module__).partition(".")[0] in _LIBRARIES


def _names(code: CodeType) -> Iterator[str]:
    """Names of global variables and attributes in a function and in those that it defines."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
