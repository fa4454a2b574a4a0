"""Every exception that steppe raises on purpose, and its warnings.

Each class is also a subclass of the built-in exception that a caller would catch::

    SteppeError
    ├── EnvIdError              (ValueError)           an id that is not "namespace:name"
    ├── EnvNotFound             (LookupError)          the plugin has no such environment
    ├── PluginError
    │   ├── PluginNotFound      (LookupError)          no installed package provides the namespace
    │   ├── PluginConflict                             two packages provide the same name
    │   ├── PluginBlocked                              hidden by STEPPE_DISABLE_PLUGINS
    │   ├── PluginBroken                               its module fails to import
    │   ├── PluginIncompatible                         written for another steppe
    │   ├── LibraryMissing      (ImportError)          the wrapped library is not installed
    │   └── LibraryVersionError (ImportError)          the wrapped library is outside the plugin's range
    ├── ClassNotFound           (ImportError)          the package with this class is not installed
    │   └── TransformNotFound                          the package with this transform is not installed
    ├── BackendError            (ValueError)           an unknown or missing backend
    ├── NoImplementation        (NotImplementedError)  implement_for has no implementation for this version
    ├── NotSupported            (NotImplementedError)  this object does not support the call
    ├── ArgumentError           (ValueError)           an argument of a constructor or call has a wrong value
    ├── SpecError               (ValueError)           data that does not match its spec
    │   ├── ActionError                                the action is missing, or does not match its spec
    │   └── InfoError           (KeyError)             information for a reset lacks an entry, or has an unknown one
    ├── PolicyError             (ValueError)           a policy that does not fit its environment
    ├── FileExists              (FileExistsError)      a file exists and overwriting was not requested
    ├── ClosedError             (RuntimeError)         use after close
    ├── StateError              (RuntimeError)         a call at the wrong time
    └── WorkerError             (RuntimeError)         a worker process or thread raised or died
        └── WorkerTimeout       (TimeoutError)         an environment did not answer in time

Warnings, each a class of its own so that a filter can name it::

    IgnoredArgumentWarning      (UserWarning)          an argument that has no effect
"""

from __future__ import annotations

__all__ = [
    "ActionError",
    "ArgumentError",
    "BackendError",
    "ClassNotFound",
    "ClosedError",
    "EnvIdError",
    "EnvNotFound",
    "FileExists",
    "IgnoredArgumentWarning",
    "InfoError",
    "LibraryMissing",
    "LibraryVersionError",
    "NoImplementation",
    "NotSupported",
    "PluginBlocked",
    "PluginBroken",
    "PluginConflict",
    "PluginError",
    "PluginIncompatible",
    "PluginNotFound",
    "PolicyError",
    "SpecError",
    "StateError",
    "SteppeError",
    "TransformNotFound",
    "WorkerError",
    "WorkerTimeout",
    "add_note",
]


def add_note(error: BaseException, note: str) -> BaseException:
    """Add a note to the printed error, on Python 3.11 or newer; returns the error."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    return error


class SteppeError(Exception):
    """Base of every exception that steppe raises on purpose."""


class EnvIdError(SteppeError, ValueError):
    """An environment id that is not ``"namespace:name"``."""


class EnvNotFound(SteppeError, LookupError):
    """A plugin has no environment with the requested name."""


class PluginError(SteppeError):
    """Base of all errors of plugins."""


class PluginNotFound(PluginError, LookupError):
    """No installed package provides the requested namespace."""


class PluginConflict(PluginError):
    """Two installed packages provide the same name."""


class PluginBlocked(PluginError):
    """The plugin is installed, but hidden by ``STEPPE_DISABLE_PLUGINS``."""


class PluginBroken(PluginError):
    """The module of a plugin cannot be imported."""


class PluginIncompatible(PluginError):
    """A plugin that was written for another version of steppe."""


class LibraryMissing(PluginError, ImportError):
    """The library that a plugin wraps is not installed."""


class LibraryVersionError(PluginError, ImportError):
    """The library that a plugin wraps is installed in a version outside the plugin's range."""


class ClassNotFound(SteppeError, ImportError):
    """A known class, such as a collector, an agent, an environment or a logger, whose package is not installed."""


class TransformNotFound(ClassNotFound):
    """A known transform whose package is not installed."""


class BackendError(SteppeError, ValueError):
    """A backend that is unknown, or whose library is not installed."""


class NoImplementation(SteppeError, NotImplementedError):
    """``implement_for`` has no implementation for the installed version of the library."""


class NotSupported(SteppeError, NotImplementedError):
    """This environment, spec or transform does not support the call."""


class ArgumentError(SteppeError, ValueError):
    """An argument has a wrong value, or an environment lacks one, and no spec is involved: ``num_workers=0``."""


class SpecError(SteppeError, ValueError):
    """Data that does not match its spec, or specs that contradict each other."""


class ActionError(SpecError):
    """An action that is missing, has a wrong shape or value, or cannot be converted to its spec's dtype."""


class InfoError(SpecError, KeyError):
    """Information for a reset of agents or environments lacks an entry, or has an undeclared one."""

    __str__ = Exception.__str__  # KeyError.__str__ would put the text in quotes


class PolicyError(SteppeError, ValueError):
    """A policy that does not fit its environment."""


class FileExists(SteppeError, FileExistsError):
    """A file exists, and overwriting was not requested."""


class ClosedError(SteppeError, RuntimeError):
    """An environment, pool or collector was used after ``close()``."""


class StateError(SteppeError, RuntimeError):
    """A call at the wrong time, such as ``recv`` without ``send``."""


class WorkerError(SteppeError, RuntimeError):
    """A worker raised, or died.

    Attributes:
        worker: index of the worker process or thread.
        env: index of the environment in the batch, or None if no single one is at fault.
        remote_traceback: the traceback in the worker, or "" if the worker died without one.
    """

    def __init__(
        self, message: str, *, worker: int | None = None, env: int | None = None, remote_traceback: str = ""
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.env = env
        self.remote_traceback = remote_traceback

    def again(self, message: str) -> WorkerError:
        """Return an error of the same class and place with another message, for calls after the first."""
        return type(self)(message, worker=self.worker, env=self.env, remote_traceback=self.remote_traceback)


class WorkerTimeout(WorkerError, TimeoutError):
    """An environment did not answer within ``step_timeout``."""


class IgnoredArgumentWarning(UserWarning):
    """An argument without an effect was passed.

    The warning says what is done instead, once for each argument. To silence it::

        warnings.simplefilter("ignore", steppe.errors.IgnoredArgumentWarning)
    """
