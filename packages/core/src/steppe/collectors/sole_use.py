"""Whether a collector's environment is where the collector has left it, or others have used it since."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from steppe.envs import EnvBase, Uses
from steppe.errors import StateError

__all__ = ["OWN_ENV", "SoleUse"]

#: What errors and warnings advise.
OWN_ENV = "Give an evaluation, a second collector or another thread an environment of its own."


class SoleUse:
    """Notices uses of an environment by others: between the runs of its collector, and by other threads within one.

    A run is a context. It counts uses at its beginning and end, so steps cost nothing.

    Args:
        env: the environment. One that is not ``batch_locked`` keeps no state, so anybody may use it at any time.

    Raises:
        StateError: from a run: the environment is in use when it begins, or another thread used it meanwhile.
    """

    def __init__(self, env: EnvBase) -> None:
        inside: list[Any] = [one for one in env.modules() if isinstance(one, EnvBase)]
        uses = [one.base_state.uses for one in inside] if env.batch_locked else []
        self._uses: list[Uses] = list(dict.fromkeys(uses))
        self._left: list[int] | None = None
        self._before = 0

    @property
    def is_broken(self) -> bool:
        """Whether others have used the environment since the last run."""
        return self._left is not None and self._left != [uses.changes for uses in self._uses]

    def __enter__(self) -> None:
        for uses in self._uses:
            # A run of its own that is still noted was interrupted.
            if uses.runs and uses.runs != {self}:
                raise StateError(f"The collector's environment is being stepped by someone else right now. {OWN_ENV}")
        try:
            for uses in self._uses:
                uses.note()
                uses.runs.add(self)
            if self._uses:
                self._before = self._uses[0].changes
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        for uses in self._uses:
            uses.runs.discard(self)
        self._left = [uses.claim(self) for uses in self._uses]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Environments inside another one may be stepped by threads of its own, so only the outer one is asked.
        meddled = bool(self._uses) and self._uses[0].changes != self._before
        self._end()
        if meddled and kind is None:
            raise StateError(
                "Something else used the collector's environment while a batch was being collected, so the batch joins "
                f"data of two episodes and is dropped. {OWN_ENV}"
            )
