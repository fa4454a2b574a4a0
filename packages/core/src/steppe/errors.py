"""Every exception that steppe raises on purpose, and its warnings.

Each class is also the built-in that a caller would catch::

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
    ├── TransformNotFound       (ImportError)          the package with this transform is not installed
    ├── CollectorNotFound       (ImportError)          the package with this collector or agent is not installed
    ├── LoggerNotFound          (ImportError)          the package with this logger is not installed
    ├── BackendError            (ValueError)           an unknown or missing backend
    ├── NoImplementation        (NotImplementedError)  implement_for has no row for this version
    ├── NotSupported            (NotImplementedError)  something that this object cannot do
    ├── SpecError               (ValueError)           data that is not what its spec says
    │   ├── ActionError                                the action is missing, of another shape, or none that there is
    │   └── InfoError           (KeyError)             what a request says lacks an entry, or has an unknown one
    ├── PolicyError             (ValueError)           a policy that does not fit its environment
    ├── FileExists              (FileExistsError)      a file that is there, and was not to be overwritten
    ├── ClosedError             (RuntimeError)         use after close
    ├── StateError              (RuntimeError)         calls in an order that has no meaning
    └── WorkerError             (RuntimeError)         a worker process or thread raised or died
        └── WorkerTimeout       (TimeoutError)         an environment did not answer in time

Warnings, each a class of its own so that a filter can name it::

    IgnoredArgumentWarning      (UserWarning)          an argument that only chooses how, and has no effect here
"""

from __future__ import annotations

__all__ = [
    "ActionError",
    "BackendError",
    "ClosedError",
    "CollectorNotFound",
    "EnvIdError",
    "EnvNotFound",
    "FileExists",
    "IgnoredArgumentWarning",
    "InfoError",
    "LibraryMissing",
    "LibraryVersionError",
    "LoggerNotFound",
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
    """Add a line to what is printed of an error, where this Python can (3.11 or newer); returns the error."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    return error


class SteppeError(Exception):
    """Base of every exception that steppe raises on purpose."""


class EnvIdError(SteppeError, ValueError):
    """An environment id that is not ``"namespace:name"``."""


class EnvNotFound(SteppeError, LookupError):
    """A plugin was asked for an environment that it does not have."""


class PluginError(SteppeError):
    """Base of everything that can be wrong with a plugin."""


class PluginNotFound(PluginError, LookupError):
    """No installed package provides the namespace that was asked for."""


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


class TransformNotFound(SteppeError, ImportError):
    """A known transform whose package is not installed."""


class CollectorNotFound(SteppeError, ImportError):
    """A known collector, agent or actor whose package is not installed."""


class LoggerNotFound(SteppeError, ImportError):
    """A known logger whose package is not installed."""


class BackendError(SteppeError, ValueError):
    """A backend that is unknown, or whose library is not installed."""


class NoImplementation(SteppeError, NotImplementedError):
    """``implement_for`` has no function for the installed version of the library."""


class NotSupported(SteppeError, NotImplementedError):
    """Something that this environment, spec or transform cannot do."""


class SpecError(SteppeError, ValueError):
    """Data that is not what its spec says, or specs that contradict each other."""


class ActionError(SpecError):
    """An action that is missing, has another shape, loses something in its spec's dtype, or is none that there is."""


class InfoError(SpecError, KeyError):
    """What a request tells agents or environments lacks an entry, or has one that nobody declares."""

    __str__ = Exception.__str__  # that of KeyError would quote the text


class PolicyError(SteppeError, ValueError):
    """A policy that does not fit the environment it was given."""


class FileExists(SteppeError, FileExistsError):
    """A file that is there already, where overwriting was not asked for."""


class ClosedError(SteppeError, RuntimeError):
    """An environment, pool or collector was used after ``close()``."""


class StateError(SteppeError, RuntimeError):
    """Calls in an order that has no meaning, such as ``recv`` with nothing sent."""


class WorkerError(SteppeError, RuntimeError):
    """A worker raised, or died.

    Attributes:
        worker: index of the worker process or thread.
        env: index of the environment in the batch, or None where no single one is at fault.
        remote_traceback: the traceback as the worker printed it, or "" where it died without one.
    """

    def __init__(
        self, message: str, *, worker: int | None = None, env: int | None = None, remote_traceback: str = ""
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.env = env
        self.remote_traceback = remote_traceback


class WorkerTimeout(WorkerError, TimeoutError):
    """An environment did not answer within ``step_timeout``."""


class IgnoredArgumentWarning(UserWarning):
    """An argument that only chooses how something is done was given, and has no effect.

    It says what is done instead, once for each argument. To silence it::

        warnings.simplefilter("ignore", steppe.errors.IgnoredArgumentWarning)
    """
