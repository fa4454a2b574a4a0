"""What a worker process takes over from the registry of the process that started it."""

from __future__ import annotations

from typing import Any

from ..errors import StateError
from . import manager, messages
from .registrations import Registration


def worker_state() -> dict[str, Any]:
    """What the registry of a worker process needs to behave like this one: a dict that plain pickle takes.

    It holds which plugins are hidden, and the names registered in process with their functions, pickled by value. A
    function that cannot be pickled does not stop the others; using its name in the worker says why.
    """
    registry = manager.current()
    registered: dict[str, tuple[bytes | None, str]] = {}
    for name, registration in registry.registrations.all().items():
        import cloudpickle

        try:
            registered[name] = (cloudpickle.dumps(registration), "")
        except Exception as error:  # pickling runs the code of whatever the function refers to
            registered[name] = (None, f"{type(error).__name__}: {error}")
    return {"settings": registry.providers.settings, "registered": registered}


def apply_worker_state(state: dict[str, Any], *, worker: int | None = None) -> None:
    """Take over the state of the parent process; called once, at the start of a worker.

    Args:
        state: what `worker_state` gave in the parent.
        worker: index of this worker process. Where it is given, every plugin's ``steppe_worker_setup`` is called with
            it, once, before the plugin makes its first environment here.
    """
    registered = {name: _restored(name, *value) for name, value in state["registered"].items()}
    manager.current().enter_worker(settings=state["settings"], registered=registered, worker=worker)


def _restored(name: str, payload: bytes | None, cause: str) -> Registration:
    if payload is not None:
        import cloudpickle

        restored: Registration = cloudpickle.loads(payload)
        return restored
    return Registration(_Refusal(name, cause), None, takes_name=False)


class _Refusal:
    """Stands for a function that did not reach this process."""

    def __init__(self, name: str, cause: str) -> None:
        self._text = messages.not_carried(name, cause=cause)

    def __call__(self, **kwargs: Any) -> Any:
        raise StateError(self._text)
