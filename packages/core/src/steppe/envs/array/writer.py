"""Row writers: what steps environments and writes their rows. The only place where ``step_into`` is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from steppe.envs.array.layout import Key, RowLayout
from steppe.envs.array.rows import Ended, Progress, Rows
from steppe.errors import SpecError

__all__ = ["BoundWriter", "EnvRows", "Overheard", "RowWriter", "StepsInto", "writer_of_one"]


class BoundWriter(Protocol):
    """A writer and the rows that it writes."""

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        """Act, and write observations, rewards and done entries of ``next``.

        Args:
            actions: what ``RowWriter.decode`` made of the actions of the rows in ``at``.
            at: which rows, in order; all of them by default.

        Returns:
            The rows that ended.
        """
        ...

    def reset(self, at: Sequence[int], env_info: Sequence[dict[str, Any] | None] | None = None) -> None:
        """Begin episodes, and write observations and done entries of the root.

        Args:
            at: which rows.
            env_info: for each of them what the caller passed for this reset; None for nothing.
        """
        ...


class RowWriter(Protocol):
    """Steps n environments and writes their data into rows that the caller owns.

    What an environment has as its array way: ``env.row_writer``. One environment without a batch is one row; one whose
    batch size is ``(n,)`` is n. A plugin whose library is a batch itself writes its own.

    Attributes:
        n: how many rows it writes.
        layout: what each row holds.
        inverts: whether ``decode`` does more than ``layout.actions`` does.
        on_arrays: whether a step is numpy alone, so that it is worth its while for a single TensorDict too.
    """

    n: int
    layout: RowLayout
    inverts: bool
    on_arrays: bool

    def decode(self, actions: dict[Key, np.ndarray[Any, Any]]) -> Any:
        """Turn actions ``{key: [k, *shape]}`` of rows or steps into ``k`` native ones, a list or an array.

        Raises:
            ActionError: one is outside its spec.
        """
        ...

    def bind(self, rows: Rows, progress: Progress) -> BoundWriter:
        """Prepare to write these rows, noting in ``progress`` which one is at work."""
        ...


def writer_of_one(env: Any) -> RowWriter | None:
    """The row writer of an environment without a batch; None where it has none, or has a batch."""
    writer: RowWriter | None = None if env.batch_size else env.row_writer
    return writer


class StepsInto(Protocol):
    """The methods of an array environment that a writer calls; see :class:`~steppe.envs.ArrayEnv`."""

    def step_into(self, action: Any, out: dict[Key, np.ndarray[Any, Any]]) -> tuple[bool, bool]: ...

    def bind_step(self, out: dict[Key, np.ndarray[Any, Any]]) -> Callable[[Any, Any], tuple[bool, bool]]: ...

    def reset_into(
        self, out: dict[Key, np.ndarray[Any, Any]], seed: int | None, env_info: dict[str, Any] | None
    ) -> None: ...

    def take_seed(self) -> int | None: ...


class EnvRows:
    """Writes the rows of array environments, one after another.

    Args:
        envs: environments with ``step_into``, of equal specs.
        layout: what each of their rows holds.
    """

    def __init__(self, envs: Sequence[StepsInto], layout: RowLayout) -> None:
        self.envs = list(envs)
        self.n = len(self.envs)
        self.layout = layout
        self.inverts, self.on_arrays = False, True

    def decode(self, actions: dict[Key, np.ndarray[Any, Any]]) -> list[Any]:
        """Turn actions ``{key: [k, *shape]}`` into ``k`` native ones."""
        return self.layout.actions.decode(actions)

    def decoder_of_one(self) -> Callable[[torch.Tensor], Any] | None:
        """A function that decodes the only action of the only row, a tensor ``[*shape]``; None where there are more."""
        return self.layout.actions.decoder_of_one() if self.n == 1 else None

    def decoder_of_rows(self) -> Callable[[Any], list[Any] | None] | None:
        """A function that decodes the only action of all rows; see ``ActionCodec.decoder_of_rows``."""
        return self.layout.actions.decoder_of_rows(self.n)

    def bind(self, rows: Rows, progress: Progress) -> BoundWriter:
        """Prepare to write these rows."""
        return _BoundEnvs(self, rows, progress) if self.n > 1 else _BoundEnv(self, rows, progress)


class _BoundEnvs:
    def __init__(self, writer: EnvRows, rows: Rows, progress: Progress) -> None:
        written = [key for key, _, _ in writer.layout.written]
        observed = [key for key, _, _ in writer.layout.observations]
        self.rows, self.envs = rows, writer.envs
        self.words, self.at, self.base = progress.words, progress.at, progress.base
        self.steppers: list[tuple[Callable[..., tuple[bool, bool]], dict[Key, Any]]] = [
            (_stepper(env, out := rows.next_row(row, written)), out) for row, env in enumerate(writer.envs)
        ]
        self.resetters = [(env, rows.root_row(row, observed)) for row, env in enumerate(writer.envs)]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        ended: Ended = []
        words, word, base = self.words, self.at, self.base
        row = 0
        try:
            if at is None:
                for row, (action, (step_into, out)) in enumerate(zip(actions, self.steppers, strict=True)):
                    words[word] = base + row
                    terminated, truncated = step_into(action, out)
                    if terminated or truncated:
                        ended.append((row, terminated, truncated))
            else:
                for action, row in zip(actions, at, strict=True):
                    words[word] = base + row
                    step_into, out = self.steppers[row]
                    terminated, truncated = step_into(action, out)
                    if terminated or truncated:
                        ended.append((row, terminated, truncated))
        except (TypeError, ValueError) as error:
            _check_flags(error, self.envs[row])
            raise
        if ended or self.rows.flagged:
            self.rows.write_done(ended, at)
        return ended

    def reset(self, at: Sequence[int], env_info: Sequence[dict[str, Any] | None] | None = None) -> None:
        row = 0
        try:
            for i, row in enumerate(at):
                self.words[self.at] = self.base + row
                env, out = self.resetters[row]
                env.reset_into(out, env.take_seed(), None if env_info is None else env_info[i])
        except TypeError as error:
            _check_arguments(error, self.envs[row], "reset_into(out, seed, env_info)")
            raise
        self.rows.begin(at)


class _BoundEnv(_BoundEnvs):
    """One row: without the loop over rows, which a rollout would pay for at each step."""

    def __init__(self, writer: EnvRows, rows: Rows, progress: Progress) -> None:
        super().__init__(writer, rows, progress)
        self.step_into, self.out = self.steppers[0]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        self.words[self.at] = self.base
        try:
            terminated, truncated = self.step_into(actions[0], self.out)
            ended = [(0, terminated, truncated)] if terminated or truncated else []
        except (TypeError, ValueError) as error:
            _check_flags(error, self.envs[0])
            raise
        if ended or self.rows.flagged:
            self.rows.write_done(ended)
        return ended


def _stepper(env: StepsInto, out: dict[Key, np.ndarray[Any, Any]]) -> Callable[[Any, Any], tuple[bool, bool]]:
    """What steps an environment with a row: what it has bound to it, unless ``step_into`` was overridden since."""
    for cls in type(env).__mro__:
        if "bind_step" in vars(cls):
            return env.step_into if "step_into" in vars(env) else env.bind_step(out)
        if "step_into" in vars(cls):
            break
    return env.step_into


class Overheard:
    """An environment that tells what its ``step_into`` returned.

    Args:
        env: the environment.
        tell: called with what it returned.
    """

    def __init__(self, env: StepsInto, tell: Callable[[Any], None]) -> None:
        self.env, self.tell = env, tell
        self.reset_into, self.take_seed = env.reset_into, env.take_seed

    def bind_step(self, out: dict[Key, np.ndarray[Any, Any]]) -> Callable[[Any, Any], tuple[bool, bool]]:
        """Steps are to be overheard: in whichever row."""
        return self.step_into

    def step_into(self, action: Any, out: dict[Key, np.ndarray[Any, Any]]) -> tuple[bool, bool]:
        """Act, and tell what came of it."""
        flags = self.env.step_into(action, out)
        self.tell(flags)
        return flags


def _check_flags(error: Exception, env: Any) -> None:
    """Raise a SpecError where an error of a step is about what ``step_into`` returned, and not from inside it."""
    _check_arguments(error, env, "step_into(action, out)")
    here = error.__traceback__
    if here is None or here.tb_next is not None:
        return
    found = next((said for part, said in _FLAGS if part in str(error)), None)
    if found is not None:
        env = env.env if isinstance(env, Overheard) else env
        kind = str(error).partition("non-iterable ")[2].partition(" object")[0]
        raise SpecError(
            f"{type(env).__name__}.step_into must return two bools, terminated and truncated, found "
            f"{found.format(kind)}. Write: return terminated, False"
        ) from None


def _check_arguments(error: Exception, env: Any, method: str) -> None:
    """Raise a SpecError where an error is about the arguments of a method, and not from inside it."""
    here = error.__traceback__
    while here is not None and here.tb_next is not None and here.tb_next.tb_frame.f_globals is globals():
        here = here.tb_next  # an environment that is overheard is called from here too
    if here is not None and here.tb_next is None and " argument" in str(error):
        env = env.env if isinstance(env, Overheard) else env
        raise SpecError(f"{type(env).__name__} must take {method}: {error}.") from None


#: What Python says where two flags cannot be taken, and what was there instead.
_FLAGS = (
    ("non-iterable", "a single {}"),
    ("not enough values", "fewer than two values"),
    ("too many values", "more than two values"),
    ("0-d array", "a single array"),
    ("truth value", "an array of several"),
)
