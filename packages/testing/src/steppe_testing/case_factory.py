"""CaseFactory: call a function with a conformance class, here or in a worker."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["CaseFactory"]


class CaseFactory:
    """Call ``function(case, *args)`` in this process or in a worker.

    The class is pickled by value, because workers cannot import the test modules that pytest has collected.

    Args:
        function: module-level function of an installed package.
        case: a class of a test file.
        *args: further arguments.
    """

    def __init__(self, function: Callable[..., Any], case: type[Any], *args: Any) -> None:
        self.function = function
        self.case = case
        self.args = args

    def __call__(self) -> Any:
        """Return the result of the function."""
        return self.function(self.case, *self.args)

    def __reduce__(self) -> Any:
        import cloudpickle

        module = sys.modules[self.case.__module__]
        cloudpickle.register_pickle_by_value(module)
        try:
            state = cloudpickle.dumps((self.function, self.case, *self.args))
        finally:
            cloudpickle.unregister_pickle_by_value(module)
        return _restored, (state,)


def _restored(state: bytes) -> CaseFactory:
    import pickle

    return CaseFactory(*pickle.loads(state))
