"""TensorDictRow: the row of an environment that steps on TensorDicts."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from steppe.batched.loose_entries import LooseRows
from steppe.envs import ROOT_METHODS, Ended, Progress
from steppe.errors import SpecError
from steppe.specs import as_path, below_next
from steppe.storage import Storage, TensorDictBuilder

__all__ = ["TensorDictRow"]

_ENDED: Ended = [(0, False, False)]  # how it ended is in storage


class TensorDictRow:
    """Step and reset one environment on TensorDicts made of its row of storage.

    Args:
        env: the environment.
        storage: rows of root and ``("next", ...)`` leaves.
        row: the row to read and write.
        progress: notes that this row is being stepped.
        loose: the entries without a place in storage.
    """

    def __init__(self, env: Any, storage: Storage, row: int, progress: Progress, loose: LooseRows) -> None:
        self.env, self.row, self._progress, self._loose = env, row, progress, loose
        #: Whether the environment makes the root of its next step: with a method of its own, or on rows, in less time.
        self._makes_roots = bool(env.overridden_methods & ROOT_METHODS) or (not env.batch_size and env.row_steps)
        #: The root after a step that ended something, until :meth:`begin_anew`.
        self._ended: TensorDict | None = None
        spec = storage.spec.exclude("next")
        self._build = TensorDictBuilder(spec)
        self._build_without_info = TensorDictBuilder(spec.exclude("env_info"))
        views = {key: tensor[row] for key, tensor in storage.tensors.items()}
        root = {key: view for key, view in views.items() if as_path(key)[0] != "next"}
        self._masks = {key: view for key, view in root.items() if as_path(key)[-1] == "_reset"}
        self._step_mask = root.get("_step")
        self._info = {key: view for key, view in root.items() if as_path(key)[0] == "env_info"}
        self._inputs = [(key, view) for key, view in root.items() if as_path(key)[-1] not in ("_reset", "_step")]
        obs, done, reward = env.observation_keys, env.done_keys, env.reward_keys
        self._root_out = [(key, views[key]) for key in (*obs, *done) if key in views]
        self._next_out = [
            (key, view)
            for key in dict.fromkeys((*obs, *reward, *done))
            if (view := views.get(below_next(key))) is not None
        ]
        # The observations of the next root, in case the caller's data lacks them because a transform replaced them.
        self._root_inputs = [(views[key], views[below_next(key)]) for key in obs if key in views]

    def _begin_work(self) -> None:
        self._progress.words[self._progress.at] = self.row + 1

    def _root(self, has_info: bool) -> TensorDict:
        build = self._build if has_info else self._build_without_info
        td = build({key: view.clone() for key, view in self._inputs})
        self._loose.read(self.row, td)
        return td

    def step(self, at: list[int] | None, infos: Any, *, reset: bool) -> Ended:
        """Step the environment; returns its row 0 if the root of the next step is not ``next``.

        Args:
            at: ``[0]`` if the step mask of the row applies, None if not.
            infos: the ``env_info`` of the row in a list, or None.
            reset: whether the caller resets the ended row.
        """
        self._begin_work()
        env = self.env
        td = self._root(_has_info(infos))
        if at is not None and self._step_mask is not None:
            td.set("_step", self._step_mask.clone())
        if reset and self._makes_roots:
            td, root = env.step_and_maybe_reset(td)
            self._write(td.get("next"), self._next_out, "next")
            self._write(root, self._root_out, "root")
            return _ENDED
        td = env.step(td)
        self._write(td.get("next"), self._next_out, "next")
        for root_view, next_view in self._root_inputs:
            root_view.copy_(next_view)
        if not reset:
            return []
        root = env.step_mdp(td)
        self._ended = root if env.any_done(root) else None
        return [] if self._ended is None else _ENDED

    def begin_anew(self, rows: list[int], infos: Any) -> None:
        """Reset the row if the last step has ended it."""
        if self._makes_roots:
            return  # the environment has reset itself
        root, self._ended = self._ended, None
        self._write(self.env.reset(root, select_reset_only=True), self._root_out, "root")

    def reset(self, at: list[int], infos: Any, *, on_data: bool, by_masks: bool) -> None:
        """Begin an episode, at the state in the row if ``on_data``; either option resets only the rows of its masks."""
        self._begin_work()
        env, has_info = self.env, _has_info(infos)
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
            if value.shape != target.shape:  # copy_ would repeat a smaller value
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
        missing = self._loose.write_data(data, self.row, root=where == "root")
        if missing is not None:
            raise self._missing(missing, where)

    def _missing(self, key: Any, where: str) -> SpecError:
        return SpecError(f"The entry {key!r} ({where}) is missing in what environment {self.row} returned.")


def _has_info(infos: Any) -> bool:
    return infos is not None and infos[0] is not None
