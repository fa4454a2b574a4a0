"""PlainRoots: from the usual data of a step to the root of the next, with all that the specs decide decided before."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs.step_mdp import StepPlan
from steppe.storage import build_alike, build_td, parts_of

__all__ = ["PlainRoots"]

_TENSORS = frozenset((torch.Tensor,))


class PlainRoots:
    """Does what ``put_next`` and ``step_mdp`` do, for data of tensors by name, in half the time.

    A step of cheap environments costs less than what is around it, so that every lookup counts.

    Args:
        plan: which entries of the root and of ``next`` the next root does not have.
        names: of ``next``.
        batch_size: of all data.
        device: what it claims as its device.
    """

    def __init__(self, plan: StepPlan, names: list[str], batch_size: torch.Size, device: torch.device | None) -> None:
        assert plan.flat_names is not None
        dropped, left = plan.flat_names
        self._taken = [name for name in names if name not in left]
        self._dropped = {"next", *names, *dropped}
        self._size, self._device = batch_size, device
        # Names of the root of the last step, and those of them that the following one keeps.
        self._given: tuple[str, ...] = ()
        self._kept: tuple[str, ...] = ()

    @classmethod
    def of(cls, env: Any, names: list[Any]) -> PlainRoots | None:
        """Those of an environment whose ``next`` has these names; None where its data, or its roots, are more.

        Args:
            env: an environment whose class does not override ``step_mdp``.
            names: keys of all that ``next`` has.
        """
        if env.step_plan.flat_names is None or not all(isinstance(name, str) for name in names):
            return None
        return cls(env.step_plan, names, env.batch_size, env.device)

    def level_of(self, tensordict: TensorDictBase) -> dict[str, Any] | None:
        """The entries of the data that a step is given; None where it is not of the usual kind."""
        if type(tensordict) is not TensorDict:
            return None
        level, size, device, locked = parts_of(tensordict)
        if locked or size != self._size or device != self._device:
            return None
        if "next" in level or "_step" in level:
            return None
        given = tuple(level)
        if given != self._given:
            self._given, self._kept = given, tuple(name for name in given if name not in self._dropped)
        # Groups of entries are copied for the next root.
        return level if _TENSORS.issuperset([type(level[name]) for name in self._kept]) else None

    def put(
        self, tensordict: Any, level: dict[str, Any], following: dict[str, Any], fresh: dict[str, Any] | None
    ) -> TensorDictBase:
        """Write ``next`` into the data of a step, and make the next root.

        Args:
            tensordict: the data.
            level: what :meth:`level_of` returned of it.
            following: what ``next`` has; becomes a part of the data.
            fresh: entries of the next root in which some rows have begun anew; None for none.

        Returns:
            The next root.
        """
        root = {name: following[name] for name in self._taken}
        for name in self._kept:
            root[name] = level[name]
        if fresh is not None:
            root.update(fresh)
        level["next"] = build_td(following, self._size, self._device)
        return build_alike(root, tensordict)
