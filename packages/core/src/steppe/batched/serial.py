"""SerialEnv: a batch in the caller's process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from steppe.batched.backends.in_process import InProcess
from steppe.batched.base import BatchedEnv
from steppe.batched.ignored import IGNORED, IGNORED_IN_ONE_PROCESS, take_ignored

__all__ = ["SerialEnv"]


class SerialEnv(BatchedEnv):
    """A batch whose environments are stepped one after another, in this process.

    An exception of an environment reaches the caller unchanged, with a note that names the environment. Gradients flow
    through differentiable environments, from observations and rewards back to actions that require them. See
    :class:`BatchedEnv` for the arguments.
    """

    _differentiable = True
    _ignored: ClassVar[dict[str, tuple[Any, str]]] = {**IGNORED, **IGNORED_IN_ONE_PROCESS}

    def configure_parallel(self, **kwargs: Any) -> SerialEnv:
        """Take the arguments of :meth:`ParallelEnv.configure_parallel`, with a warning: there are no workers here.

        Raises:
            StateError: the environments have been made.
            TypeError: an argument does not exist.
        """
        self._check_not_started("configure_parallel")
        ignored_values = take_ignored(type(self), kwargs, self._ignored, [])
        self._given.update(ignored_values)
        return self

    def _make_backend(self, factories: list[Callable[[], Any]]) -> InProcess:
        return InProcess(factories)
