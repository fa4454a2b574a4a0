"""TensorDictRow: the row of an environment that steps on TensorDicts."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from steppe.batched.loose_entries import LooseRows
from steppe.errors import SpecError
from steppe.specs import below_next
from steppe.storage import Storage, TensorDictBuilder

__all__ = ["TensorDictRow"]


class TensorDictRow:
    """Steps and resets one environment on TensorDicts made of its row of storage.

    Args:
        env: the environment.
        storage: rows of root and ``("next", ...)`` leaves.
        row: the row to read and write.
        loose: the entries without a place in storage; None if there are none.
        loose_row: the number of the row in ``loose``.
    """

    def __init__(self, env: Any, storage: Storage, row: int, loose: LooseRows | None, loose_row: int) -> None:
        self.env, self.row = env, row
        self._loose, self._loose_row = loose, loose_row
        spec = storage.spec.exclude("next")
        self._build = TensorDictBuilder(spec)
        self._build_without_info = TensorDictBuilder(spec.exclude("env_info"))
        views = {key: tensor[row] for key, tensor in storage.tensors.items()}
        root = {key: view for key, view in views.items() if _names(key)[0] != "next"}
        self._masks = {key: view for key, view in root.items() if _names(key)[-1] == "_reset"}
        self._step_mask = root.get("_step")
        self._info = {key: view for key, view in root.items() if _names(key)[0] == "env_info"}
        self._inputs = [(key, view) for key, view in root.items() if _names(key)[-1] not in ("_reset", "_step")]
        obs, done, reward = env.observation_keys, env.done_keys, env.reward_keys
        self._root_out = [(key, views[key]) for key in (*obs, *done) if key in views]
        self._next_out = [
            (key, view)
            for key in dict.fromkeys((*obs, *reward, *done))
            if (view := views.get(below_next(key))) is not None
        ]
        # The observations of the next root, in case the caller's data lacks them because a transform replaced them.
        self._root_inputs = [(views[key], views[below_next(key)]) for key in obs if key in views]

    def _root(self, has_info: bool) -> TensorDict:
        build = self._build if has_info else self._build_without_info
        td = build({key: view.clone() for key, view in self._inputs})
        if self._loose is not None:
            self._loose.read(self._loose_row, td)
        return td

    def step(self, *, reset: bool, partial: bool, has_info: bool) -> TensorDict | None:
        """Step the environment.

        Args:
            reset: whether the caller resets what has ended.
            partial: whether the step mask of the row applies.
            has_info: whether the row has an ``env_info``.

        Returns:
            The next root, with masks of what has ended, for ``begin_anew``; None if nothing has ended.
        """
        env = self.env
        td = self._root(has_info)
        if partial and self._step_mask is not None:
            td.set("_step", self._step_mask.clone())
        td = env.step(td)
        self._write(td.get("next"), self._next_out, "next")
        for root_view, next_view in self._root_inputs:
            root_view.copy_(next_view)
        if not reset:
            return None
        root: TensorDict = env.step_mdp(td)
        return root if env.any_done(root) else None

    def begin_anew(self, root: TensorDict) -> None:
        """Reset what the masks in ``root`` select."""
        self._write(self.env.reset(root, select_reset_only=True), self._root_out, "root")

    def reset(self, *, on_data: bool, by_masks: bool, has_info: bool) -> None:
        """Begin an episode, at the state in the row if ``on_data``; either option resets only what its masks select."""
        env = self.env
        if on_data or by_masks:
            td = self._root(has_info)
            for key, mask in self._masks.items():
                td.set(key, mask.clone())
            fresh = env.reset(td, select_reset_only=not on_data)
        elif has_info:
            td = self._root(True).select("env_info")
            fresh = env.reset(env_info=td.get("env_info"))
        else:
            fresh = env.reset()
        self._write(fresh, self._root_out, "root")

    def _write(self, data: Any, targets: list[tuple[Any, torch.Tensor]], where: str) -> None:
        for key, target in targets:
            value = data.get(key, None)
            if value is None:
                raise self._missing(key, where)
            if value.shape != target.shape:  # copy_ would repeat what is smaller
                raise SpecError(
                    f"The entry {key!r} ({where}) of environment {self.row} must have shape {tuple(target.shape)}, as "
                    f"its spec says, found {tuple(value.shape)}. check_env_specs(env) lists all differences."
                )
            if value.dtype is not target.dtype:
                raise SpecError(
                    f"The entry {key!r} ({where}) of environment {self.row} must have dtype {target.dtype}, as its "
                    f"spec says, found {value.dtype}. Convert it in the environment."
                )
            target.copy_(value.detach())
        if self._loose is not None:
            missing = self._loose.write_data(data, self._loose_row, root=where == "root")
            if missing is not None:
                raise self._missing(missing, where)

    def _missing(self, key: Any, where: str) -> SpecError:
        return SpecError(f"The entry {key!r} ({where}) is missing in what environment {self.row} returned.")


def _names(key: Any) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)
