"""SpecViews: the specs of an environment, their short forms, key lists and lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from tensordict import NestedKey

from steppe.envs.done import complete_done_spec, done_groups
from steppe.envs.state import BaseState
from steppe.errors import SpecError
from steppe.specs import INPUT_KINDS, OUTPUT_KINDS, SPEC_KINDS, Composite, Spec, Unbounded, as_path, conversion_hint

__all__ = ["SpecViews"]

_T = TypeVar("_T")


def _depth_then_name(key: NestedKey) -> tuple[int, tuple[str, ...]]:
    parts = as_path(key)
    return len(parts), parts


def _spec(kind: str, *, full: bool) -> property:
    """Return the property of all leaves of a kind, or of its short form: the leaf, if its only key is the kind.

    Observations and states have no short form, because they need their keys.
    """
    composite = full or kind in ("observation", "state")

    def get(self: SpecViews) -> Spec:
        spec = self._full_spec(kind)
        leaf = not composite and list(spec.keys(include_nested=True, leaves_only=True)) == [kind]
        return spec[kind] if leaf else spec

    def set_(self: SpecViews, spec: Any) -> None:
        self.assign_spec(kind, spec)

    if full:
        get.__doc__ = f"Composite of all {kind} leaves; shapes start with ``batch_size``. Assigning replaces it."
    elif composite:
        get.__doc__ = f"The same as ``full_{kind}_spec``, a Composite."
    else:
        get.__doc__ = (
            f"The {kind} leaf if it is the only one and its key is {kind!r}, otherwise the full Composite. "
            f"Assigning takes a leaf (put at {kind!r}) or a Composite."
        )
    return property(get, set_)


def _packed(kinds: tuple[str, ...]) -> property:
    def get(self: SpecViews) -> Composite:
        spec = Composite({f"full_{kind}_spec": self._full_spec(kind) for kind in kinds}, shape=self.batch_size)
        return spec.lock_() if self.is_spec_locked else spec

    get.__doc__ = f"{', '.join(f'``full_{kind}_spec``' for kind in kinds)} in one Composite, to read."
    return property(get)


def _unbatched(view: str) -> property:
    def get(self: SpecViews) -> Spec:
        spec: Spec = getattr(self, view)
        for _ in range(len(self.batch_size)):
            spec = spec[0]
        return spec

    def set_(self: SpecViews, spec: Any) -> None:
        setattr(self, view, spec.expand(torch.Size((*self.batch_size, *spec.shape))))

    get.__doc__ = f"``{view}`` without the batch dimensions. Assigning expands by ``batch_size``."
    return property(get, set_)


def _keys(kind: str) -> property:
    def get(self: SpecViews) -> list[Any]:
        return self.cached(
            f"{kind}_keys",
            lambda: sorted(self._full_spec(kind).keys(include_nested=True, leaves_only=True), key=_depth_then_name),
        )

    get.__doc__ = f"Keys of all {kind} leaves, by depth and then by name."
    return property(get)


def _key(kind: str) -> property:
    def get(self: SpecViews) -> Any:
        keys = getattr(self, f"{kind}_keys")
        if len(keys) != 1:
            raise KeyError(f"{kind}_key: this environment has {len(keys)} {kind} keys, {keys}. Use {kind}_keys.")
        return keys[0]

    get.__doc__ = f"The only {kind} key. Raises a KeyError if there are several."
    return property(get)


class SpecViews:
    """The specs of :class:`~steppe.envs.EnvBase`. Not an environment by itself.

    Specs can be edited in place (``self.observation_spec["x"] = ...``) until the end of the outermost ``__init__``.
    Then they are locked, unless the environment was made with ``spec_locked=False``: a locked Composite cannot be
    edited in place, because key lists and plans are derived from it once. Assign a new one instead.
    """

    base_state: BaseState
    batch_size: torch.Size
    makes_its_envs: bool

    full_observation_spec = _spec("observation", full=True)
    full_reward_spec = _spec("reward", full=True)
    full_done_spec = _spec("done", full=True)
    full_action_spec = _spec("action", full=True)
    full_state_spec = _spec("state", full=True)

    observation_spec = _spec("observation", full=False)
    reward_spec = _spec("reward", full=False)
    done_spec = _spec("done", full=False)
    action_spec = _spec("action", full=False)
    state_spec = _spec("state", full=False)

    full_observation_spec_unbatched = _unbatched("full_observation_spec")
    full_reward_spec_unbatched = _unbatched("full_reward_spec")
    full_done_spec_unbatched = _unbatched("full_done_spec")
    full_action_spec_unbatched = _unbatched("full_action_spec")
    full_state_spec_unbatched = _unbatched("full_state_spec")
    observation_spec_unbatched = _unbatched("observation_spec")
    reward_spec_unbatched = _unbatched("reward_spec")
    done_spec_unbatched = _unbatched("done_spec")
    action_spec_unbatched = _unbatched("action_spec")
    state_spec_unbatched = _unbatched("state_spec")
    output_spec_unbatched = _unbatched("output_spec")
    input_spec_unbatched = _unbatched("input_spec")

    observation_keys = _keys("observation")
    reward_keys = _keys("reward")
    done_keys = _keys("done")
    action_keys = _keys("action")
    state_keys = _keys("state")
    reward_key = _key("reward")
    action_key = _key("action")

    @property
    def done_key(self) -> Any:
        """The only key whose last part is ``"done"``. Raises a KeyError if there are several groups."""
        keys = [key for key in self.done_keys if (key if isinstance(key, str) else key[-1]) == "done"]
        if len(keys) != 1:
            raise KeyError(f"done_key: this environment has {len(keys)} done keys, {keys}. Use done_keys.")
        return keys[0]

    @property
    def done_keys_groups(self) -> list[list[Any]]:
        """Done keys: a list for each level that ends by itself, the root first."""
        return self.cached("done_groups", lambda: [list(group.keys) for group in done_groups(self.full_done_spec)])

    @property
    def reset_keys(self) -> list[Any]:
        """The mask that resets each done level: same prefix, last part ``"_reset"``."""
        return self.cached("reset_keys", lambda: [group.reset_key for group in done_groups(self.full_done_spec)])

    # A subclass that computes its specs from another environment overrides the next two methods.
    def _full_spec(self, kind: str) -> Composite:
        specs = self.base_state.specs
        if kind not in specs:
            self.assign_spec(kind, self._default_spec(kind))
            self.base_state.undeclared.add(kind)
        return specs[kind]

    def _default_spec(self, kind: str) -> Composite:
        shape = (*self.batch_size, 1)
        device = self.base_state.device
        if kind == "reward" and self.base_state.constructed:
            return Composite({"reward": Unbounded(shape=shape, device=device)}, shape=self.batch_size, device=device)
        return Composite({}, shape=self.batch_size, device=device)

    def assign_spec(self, kind: str, spec: Any) -> None:
        """Assign the spec of a kind: ``"observation"``, ``"reward"``, ``"done"``, ``"action"`` or ``"state"``."""
        batch_size = self.batch_size
        if spec is None and kind == "state":
            spec = Composite({}, shape=batch_size)
        if not isinstance(spec, Spec):
            raise SpecError(
                f"{kind}_spec takes a Spec or a Composite, not {type(spec).__name__}.{conversion_hint(spec)}"
            )
        if not isinstance(spec, Composite):
            spec = Composite({kind: spec}, shape=batch_size)
        elif tuple(spec.shape) != tuple(batch_size) and len(spec.shape) == 0:
            spec = Composite(dict(spec.items()), shape=batch_size, device=spec.device)
        self._check_spec(kind, spec)
        # The copy is locked, and not the caller's spec; later edits of the caller's spec change nothing here.
        # A batch has the done entries of its environments, of which a transform may have renamed some.
        spec = complete_done_spec(spec) if kind == "done" and not self.makes_its_envs else spec.clone()
        state = self.base_state
        device = state.device
        if device is not None and spec.device != device:
            spec = spec.to(device)
        if self.is_spec_locked:
            spec.lock_()
        state.specs[kind] = spec
        state.undeclared.discard(kind)
        self.specs_changed()

    def _assign_specs_again(self, change: Callable[[Composite], Composite] | None = None) -> None:
        """Assign all specs again after batch size or device have changed, with ``change`` applied to each."""
        undeclared = set(self.base_state.undeclared)
        for kind, spec in list(self.base_state.specs.items()):
            self.assign_spec(kind, spec if change is None else change(spec))
        self.base_state.undeclared = undeclared
        self.specs_changed()

    def _check_spec(self, kind: str, spec: Composite) -> None:
        """Raise a SpecError if a shape does not begin with the batch size, or a done entry has another name."""
        batch_size = self.batch_size
        if tuple(spec.shape[: len(batch_size)]) != tuple(batch_size):
            raise SpecError(
                f"full_{kind}_spec must have a shape that starts with the batch size {tuple(batch_size)}, "
                f"found {tuple(spec.shape)}. Expand it: spec.expand(*batch_size)."
            )
        for key, leaf in spec.items(include_nested=True, leaves_only=True):
            if leaf is None:
                continue
            if tuple(leaf.shape[: len(batch_size)]) != tuple(batch_size):
                raise SpecError(
                    f"The {kind} entry {key!r} must have a shape that starts with the batch size {tuple(batch_size)}, "
                    f"found {tuple(leaf.shape)}."
                )
            if kind in ("reward", "done") and len(leaf.shape) == len(batch_size):
                raise SpecError(
                    f"The {kind} entry {key!r} needs a last dimension beside the batch: shape {(*batch_size, 1)}, "
                    f"found {tuple(leaf.shape)}."
                )
        if kind == "done":
            done_groups(spec)

    def settle_specs(self) -> None:
        """Check and lock the specs at the end of ``__init__``, where they may have been edited in place."""
        specs = self.base_state.specs
        for kind in list(specs):
            if kind in self.base_state.undeclared and specs[kind].is_empty():
                del specs[kind]  # it was read, but not assigned
                continue
            self._check_spec(kind, specs[kind])
            if kind == "done":
                specs[kind] = complete_done_spec(specs[kind])
            if self.is_spec_locked:
                specs[kind].lock_()
        self.specs_changed()

    def specs_changed(self) -> None:
        """Clear everything that was derived from the specs. While they may be edited in place, nothing is cached."""
        self.base_state.cache = {} if self.base_state.constructed else None

    def cached(self, name: str, make: Callable[[], _T]) -> _T:
        """Return the result of ``make``, which is called again only after the specs have changed."""
        cache = self.base_state.cache
        if cache is None:
            return make()
        if name in cache:
            result: _T = cache[name]
            return result
        value = make()
        # Reading a spec that was never assigned makes a default, which replaces the cache.
        if self.base_state.cache is not None:
            self.base_state.cache[name] = value
        return value

    output_spec = _packed(OUTPUT_KINDS)
    input_spec = _packed(INPUT_KINDS)

    @property
    def specs(self) -> Composite:
        """``input_spec`` and ``output_spec`` in one Composite, from which buffers are made."""
        return Composite({"input_spec": self.input_spec, "output_spec": self.output_spec}, shape=self.batch_size)

    @property
    def is_spec_locked(self) -> bool:
        """Whether the specs cannot be edited in place; False until the end of the outermost ``__init__``."""
        return self.base_state.constructed and self.base_state.spec_locked

    @is_spec_locked.setter
    def is_spec_locked(self, mode: bool) -> None:
        self.set_spec_lock_(mode)

    def set_spec_lock_(self, mode: bool = True) -> Any:
        """Lock or unlock all specs, clear everything that was derived from them, and return the environment.

        Inside ``__init__`` it decides whether they are locked at its end.
        """
        self.base_state.spec_locked = bool(mode)
        for spec in self.base_state.specs.values():
            spec.lock_() if self.is_spec_locked else spec.unlock_()
        self.specs_changed()
        return self

    def _check_disjoint(self) -> None:
        """Raise a SpecError if two specs have the same key. Runs once, when the environment is first used."""
        for kinds in (OUTPUT_KINDS, INPUT_KINDS):
            seen: dict[Any, str] = {}
            for kind in kinds:
                for key in getattr(self, f"{kind}_keys"):
                    if key in seen:
                        raise SpecError(
                            f"The key {key!r} is in both full_{seen[key]}_spec and full_{kind}_spec: rename one."
                        )
                    seen[key] = kind


def _underscored(kind: str) -> property:
    def refuse(self: SpecViews, spec: Any) -> None:
        raise AttributeError(
            f"_{kind}_spec is not a spec of {type(self).__name__} and would be ignored: assign self.{kind}_spec."
        )

    return property(None, refuse)


# Set after the class body, so that a method of that name in a subclass is not reported as an override.
for _kind in SPEC_KINDS:
    setattr(SpecViews, f"_{_kind}_spec", _underscored(_kind))
