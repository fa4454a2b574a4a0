"""EnvFactory: an environment id as a callable that can be pickled for another process."""

from __future__ import annotations

from typing import Any

from . import manager
from .records import EnvMaker


class EnvFactory:
    """Make the environment of an id at each call.

    The process that calls it finds and imports the plugin. For an id that was registered with `register_env`, the
    factory holds the registered function, and is pickled with it by value.

    Args:
        id: the environment's id.
        kwargs: keyword arguments of `make_env`.
        make: the function of an id that was registered with `register_env`; None for an id of a plugin.
    """

    __slots__ = ("_make", "id", "kwargs")

    def __init__(self, id: str, kwargs: dict[str, object], make: EnvMaker | None = None) -> None:
        self.id = id
        self.kwargs = kwargs
        self._make = make

    def __call__(self, **kwargs: object) -> Any:
        """Make the environment.

        Args:
            **kwargs: more keyword arguments of `make_env`; they override the factory's.

        Raises:
            SteppeError: as `make_env`.
        """
        kwargs = {**self.kwargs, **kwargs}
        if self._make is not None:
            return self._make(**kwargs)
        return manager.current().make(self.id, kwargs)

    def __reduce__(self) -> tuple[object, ...]:
        if self._make is None and not self.kwargs:
            return EnvFactory, (self.id, {})
        import cloudpickle

        return _unpickle, (self.id, cloudpickle.dumps((self.kwargs, self._make)))

    def __repr__(self) -> str:
        arguments = "".join(f", {name}={value!r}" for name, value in self.kwargs.items())
        return f"env_factory({self.id!r}{arguments})"


def _unpickle(id: str, payload: bytes) -> EnvFactory:
    import cloudpickle

    kwargs, make = cloudpickle.loads(payload)
    return EnvFactory(id, kwargs, make)
