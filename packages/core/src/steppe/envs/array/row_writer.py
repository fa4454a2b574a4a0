"""Row writers: step environments and write their rows. The only module that calls ``step_into``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from steppe.envs.array.actions import FastDecoder
from steppe.envs.array.row_layout import RowLayout
from steppe.envs.array.rows import Ended, Progress, Rows
from steppe.envs.array.write_row import as_flag, name_place
from steppe.envs.data_types import Array, Key
from steppe.errors import SpecError
from steppe.workers import InUse

__all__ = ["BoundWriter", "EnvInfos", "EnvWriter", "RowWriter", "StepsInto", "writer_of_one"]

#: The values that a reset passes to an environment, by name.
EnvInfo = dict[str, Any]

#: The ``env_info`` of each row that is reset, or None if the caller passed nothing for any of them.
EnvInfos = Sequence[EnvInfo | None] | None


class BoundWriter:
    """A row writer that is bound to the rows that it writes.

    Subclasses define ``step`` and ``reset``; the other members have defaults.

    Attributes:
        resets_in_step: whether ``step_and_reset`` begins episodes in the same round trip as the step. The root of a row
            that ended is then overwritten before transforms behind this writer run.
    """

    resets_in_step: bool = False

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        """Step rows, and write observations, rewards and done entries of ``next``.

        Args:
            actions: library actions of the rows in ``at``, from ``RowWriter.decode``.
            at: the rows to step, in order; all by default.

        Returns:
            The rows that ended.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define step(actions, at).")

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        """Begin episodes, and write observations and done entries of the root.

        Args:
            at: the rows to reset.
            env_info: for each row the values that the caller passed for this reset, or None. None instead of the list:
                the values of the last reset of these rows.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define reset(at, env_info).")

    def step_and_reset(self, actions: Any, env_info: EnvInfos = None) -> Ended:
        """Step all rows, and begin episodes in the rows that ended.

        The default is a step and then a reset; a writer over workers does both in one round trip.

        Args:
            actions: as in ``step``.
            env_info: as in ``reset``, for all rows; the values of rows that do not end are not used.

        Returns:
            The rows that ended, whose root is now the first data of an episode.
        """
        ended = self.step(actions)
        if ended:
            at = [row for row, _, _ in ended]
            self.reset(at, None if env_info is None else [env_info[row] for row in at])
        return ended


class RowWriter:
    """Step n environments and write their data into rows.

    An environment *has* a row writer, ``env.row_writer``, if its data has a fixed layout. An environment without a
    batch size is one row; one of batch size ``(n,)`` is n rows. Rollouts, single steps, transforms, batches and
    collectors all drive environments through this class, so a plugin whose library is a batch itself derives from it.

    Subclasses define ``decode`` and ``bind`` and set ``n`` and ``layout``; the other members have defaults.

    Attributes:
        n: the number of rows.
        layout: the entries of each row.
        inverts: whether ``decode`` does more than ``layout.actions.decode``.
        on_arrays: whether a step runs no torch code. Single steps on TensorDicts then go through rows too, because they
            are faster that way.
        own_rows: rows in memory of this writer, if it can write no others (workers write shared memory); None if it
            writes the rows that it is bound to.
        in_use: guards the environments against a second thread; None if steps are not guarded.
    """

    n: int
    layout: RowLayout
    inverts: bool = False
    on_arrays: bool = False
    own_rows: Rows | None = None
    in_use: InUse | None = None

    def decode(self, actions: dict[Key, Array]) -> Any:
        """Return ``k`` library actions, a list or an array, for actions ``{key: [k, *shape]}`` of rows or of steps.

        Raises:
            ActionError: an action is outside its spec.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define decode(actions).")

    def bind(self, rows: Rows, progress: Progress) -> BoundWriter:
        """Prepare to write these rows, noting in ``progress`` which one is being stepped."""
        raise NotImplementedError(f"{type(self).__name__} does not define bind(rows, progress).")

    def new_rows(self) -> Rows:
        """Return rows that this writer can be bound to: ``own_rows`` if it has them, otherwise new rows."""
        return Rows.new(self.layout, self.n) if self.own_rows is None else self.own_rows

    def fill_root(self, key: Key) -> bool:
        """Write an entry that the caller's root lacks, from the environments' memory; return whether there is one."""
        return False

    def fast_decoder(self, batch_size: torch.Size) -> Callable[[torch.Tensor], Any] | None:
        """Return a function that decodes the only action of all rows, a tensor, faster than ``decode``.

        The function returns None for an action that must be converted or does not fit: callers then use ``decode``.

        Args:
            batch_size: the leading dimensions of the tensor: ``(n,)``, or empty for a single row.

        Returns:
            None, the default, if there is no such function.
        """
        return None


def writer_of_one(env: Any) -> RowWriter | None:
    """Return the writer of an environment in a batch; None without one, for a batch, or if only its agents end."""
    writer: RowWriter | None = None if env.batch_size or "done" not in env.done_keys else env.shard_writer
    return writer


#: ``step_into``, or a function that does the same for one row.
StepInto = Callable[[Any, dict[Key, Array]], tuple[bool, bool]]


class StepsInto(Protocol):
    """The methods of an array environment that a writer calls; see :class:`~steppe.envs.ArrayEnv`."""

    def step_into(self, action: Any, out: dict[Key, Array]) -> tuple[bool, bool]: ...

    def bind_step(self, out: dict[Key, Array]) -> StepInto: ...

    def reset_into(self, out: dict[Key, Array], seed: int | None, env_info: EnvInfo | None) -> None: ...

    def take_seed(self) -> int | None: ...


class EnvWriter(RowWriter):
    """Write the rows of array environments, one environment after another.

    Args:
        envs: environments with ``step_into`` and equal specs.
        layout: the entries of each row.
    """

    on_arrays = True

    def __init__(self, envs: Sequence[StepsInto], layout: RowLayout) -> None:
        self.envs = list(envs)
        self.n = len(self.envs)
        self.layout = layout

    def decode(self, actions: dict[Key, Array]) -> list[Any]:
        """Return ``k`` library actions for actions ``{key: [k, *shape]}``."""
        return self.layout.actions.decode(actions)

    def fast_decoder(self, batch_size: torch.Size) -> FastDecoder | None:
        """Return a function that decodes the actions of all rows; see ``ActionCodec.fast_decoder``."""
        return self.layout.actions.fast_decoder(batch_size)

    def bind(self, rows: Rows, progress: Progress) -> BoundWriter:
        """Prepare to write these rows."""
        return _BoundEnvs(self, rows, progress) if self.n > 1 else _BoundEnv(self, rows, progress)


class _BoundEnvs(BoundWriter):
    def __init__(self, writer: EnvWriter, rows: Rows, progress: Progress) -> None:
        written = [*(key for key, _, _ in writer.layout.written), *writer.layout.loose]
        observed = [*(key for key, _, _ in writer.layout.observations), *writer.layout.loose]
        self.rows, self.envs = rows, writer.envs
        self.words, self.at, self.base = progress.words, progress.at, progress.base
        #: For each row its number in the progress, the function that steps it, and its ``next``.
        self.steppers: list[tuple[int, StepInto, dict[Key, Array]]] = [
            (self.base + row, _stepper(env, out := rows.next_row(row, written)), out)
            for row, env in enumerate(writer.envs)
        ]
        self.resetters = [(env, rows.root_row(row, observed)) for row, env in enumerate(writer.envs)]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        ended: Ended = []
        words, word = self.words, self.at
        number = self.base
        try:
            some = self.steppers if at is None else [self.steppers[row] for row in at]
            for action, (number, step_into, out) in zip(actions, some, strict=True):
                words[word] = number
                terminated, truncated = step_into(action, out)
                if terminated is not False or truncated is not False:
                    _note_end(ended, number - self.base, terminated, truncated)
        except (TypeError, ValueError) as error:
            _explain_step(error, self.envs[number - self.base])
            raise
        if ended or self.rows.done_dirty:
            self.rows.write_done(ended, at)
        return ended

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        row = 0
        try:
            for i, row in enumerate(at):
                self.words[self.at] = self.base + row
                env, out = self.resetters[row]
                env.reset_into(out, env.take_seed(), None if env_info is None else env_info[i])
        except (TypeError, SpecError) as error:
            name_place(error, self.envs[row], "reset")
            _check_arguments(error, self.envs[row], "reset_into(out, seed, env_info)")
            raise
        self.rows.begin(at)


class _BoundEnv(_BoundEnvs):
    """One environment. A loop over a single row would take about 0.4 us more in each step of a rollout."""

    def __init__(self, writer: EnvWriter, rows: Rows, progress: Progress) -> None:
        super().__init__(writer, rows, progress)
        _, self.step_into, self.out = self.steppers[0]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        self.words[self.at] = self.base
        try:
            terminated, truncated = self.step_into(actions[0], self.out)
            ended: Ended = []
            if terminated is not False or truncated is not False:
                _note_end(ended, 0, terminated, truncated)
        except (TypeError, ValueError) as error:
            _explain_step(error, self.envs[0])
            raise
        if ended or self.rows.done_dirty:
            self.rows.write_done(ended)
        return ended


def _stepper(env: StepsInto, out: dict[Key, Array]) -> StepInto:
    """Return what ``bind_step`` returns for a row, or ``step_into`` if a subclass or the instance overrides that."""
    for cls in type(env).__mro__:
        if "bind_step" in vars(cls):
            return env.step_into if "step_into" in vars(env) else env.bind_step(out)
        if "step_into" in vars(cls):
            break
    return env.step_into


class _NoFlags(ValueError):
    """``step_into`` returned two values of which one is no flag."""


def _note_end(ended: Ended, row: int, terminated: object, truncated: object) -> None:
    """Append a row to ``ended`` if its episode has ended; called if a flag is not the object False."""
    if type(terminated) is not bool or type(truncated) is not bool:
        try:
            terminated, truncated = as_flag("terminated", terminated), as_flag("truncated", truncated)
        except SpecError as error:
            raise _NoFlags(str(error)) from None
    if terminated or truncated:
        ended.append((row, terminated, truncated))


def _explain_step(error: Exception, env: StepsInto) -> None:
    """Add the place of a step to an error, or raise a SpecError if it is about the result of ``step_into``."""
    if isinstance(error, SpecError):
        name_place(error, env, "step")
        return
    _check_arguments(error, env, "step_into(action, out)")
    if isinstance(error, _NoFlags) or _is_raised_here(error):
        problem = SpecError(
            f"{type(env).__name__}.step_into must return two bools, terminated and truncated: {error}. "
            "Write: return terminated, False"
        )
        name_place(problem, env, "step")
        raise problem from None


def _check_arguments(error: Exception, env: StepsInto, method: str) -> None:
    """Raise a SpecError if an error is about the arguments of a method, and was not raised inside it."""
    if _is_raised_here(error) and " argument" in str(error):
        raise SpecError(f"{type(env).__name__} must take {method}: {error}.") from None


def _is_raised_here(error: Exception) -> bool:
    """Return whether an error was raised by the function that caught it, and not inside the method that it called."""
    here = error.__traceback__
    return here is not None and here.tb_next is None
