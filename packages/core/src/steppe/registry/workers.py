"""The state of the registry that worker processes take over from the process that started them."""

from __future__ import annotations

from typing import NoReturn

from ..errors import StateError
from . import manager
from .registrations import Registration

#: By registered name the pickled registration, or None and the error of pickling it.
WorkerState = dict[str, tuple[bytes | None, str]]


def worker_state() -> WorkerState:
    """Return the state that makes the registry of a worker process behave like this one.

    The dict has the names that were registered with `register_env`, with their functions pickled by value. If a
    function cannot be pickled, using its name in the worker raises an error. The variables that hide plugins are not in
    it: a worker has the environment variables of its caller.
    """
    registry = manager.current()
    registered: WorkerState = {}
    for name, registration in registry.registrations.all().items():
        import cloudpickle

        try:
            registered[name] = (cloudpickle.dumps(registration), "")
        except Exception as error:  # pickling may run code of any object that the function refers to
            registered[name] = (None, f"{type(error).__name__}: {error}")
    return registered


def apply_worker_state(state: WorkerState, *, worker: int | None = None) -> None:
    """Take over the state of the parent process; called once, at the start of a worker.

    Args:
        state: the result of `worker_state` in the parent.
        worker: index of this worker process. Unless it is None, every plugin's ``steppe_worker_setup`` is called with
            it, once, before the plugin makes its first environment here.
    """
    registry = manager.current()
    registry.registrations.update({name: _restored(name, *value) for name, value in state.items()})
    registry.plugins.enter_worker(worker)


def _restored(name: str, payload: bytes | None, cause: str) -> Registration:
    if payload is not None:
        import cloudpickle

        restored: Registration = cloudpickle.loads(payload)
        return restored
    return Registration(_Refusal(name, cause))


class _Refusal:
    """Replace a function that could not be pickled: raise an error when it is called."""

    def __init__(self, name: str, cause: str) -> None:
        self._text = (
            f"{name!r} was registered in the parent process with a function that cannot be sent to a worker: {cause}."
        )

    def __call__(self, *name: str, **kwargs: object) -> NoReturn:
        raise StateError(self._text)
