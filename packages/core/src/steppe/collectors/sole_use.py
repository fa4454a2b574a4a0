"""SoleUse: detect that others have stepped or reset the environment of a collector."""

from __future__ import annotations

from types import TracebackType

from steppe.envs import EnvBase, Uses
from steppe.errors import StateError

__all__ = ["OWN_ENV", "SoleUse"]

#: The advice in errors and warnings about shared environments.
OWN_ENV = "Give an evaluation, a second collector or another thread an environment of its own."


class SoleUse:
    """Detect uses of an environment by others, between the runs of its collector and during them.

    A run (a batch, a request) is a context. It compares counts of uses at its beginning and end, so steps cost nothing.

    Args:
        env: the environment. If it is not ``batch_locked``, it keeps no state and may be used by anyone at any time.

    Raises:
        StateError: at the beginning of a run if the environment is in use; at the end of a run if another thread used
            the environment during it.
    """

    def __init__(self, env: EnvBase) -> None:
        envs = [module for module in env.modules() if isinstance(module, EnvBase)] if env.batch_locked else []
        self._uses: list[Uses] = list(dict.fromkeys(each.base_state.uses for each in envs))
        self._after_last_run: list[int] | None = None
        self._before = 0

    @property
    def is_broken(self) -> bool:
        """Whether others have used the environment since the last run."""
        return self._after_last_run is not None and self._after_last_run != [uses.changes for uses in self._uses]

    def __enter__(self) -> None:
        for uses in self._uses:
            # A run of this object that is still registered was interrupted.
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
        self._after_last_run = [uses.claim(self) for uses in self._uses]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Only the outer environment is checked: it may step the inner ones in threads of its own.
        others_used = bool(self._uses) and self._uses[0].changes != self._before
        self._end()
        if others_used and kind is None:
            raise StateError(
                "Something else used the collector's environment while a batch was being collected, so the batch joins "
                f"data of two episodes and is dropped. {OWN_ENV}"
            )
