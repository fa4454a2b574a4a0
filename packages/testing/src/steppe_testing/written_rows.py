"""check_written_rows: find what array environments do not write into their rows, or write wrongly.

Numpy casts and repeats values without an error. Here rows are filled with a random pattern before each reset and step,
which shows what is not written, and each value that is written is compared with what the row keeps of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from steppe.envs import EnvBase, EnvWriter, Loop, RowLayout, Rows
from steppe.errors import SpecError
from steppe.specs import numpy_to_torch_dtype_dict
from steppe.storage import TensorDictBuilder
from steppe.transforms import TransformedEnv

__all__ = ["check_written_rows"]

#: How often a reset or step is repeated if an entry still holds the pattern: a written byte equals it by chance.
_TRIES = 5

_Array = np.ndarray[Any, Any]


class _Finding(NamedTuple):
    """What is wrong with an entry; each kind is reported once for an entry."""

    kind: str
    key: Any
    text: str


def check_written_rows(env: EnvBase, *, steps: int = 3) -> None:
    """Find entries that ``reset_into`` and ``step_into`` do not write, and values that a cast into the row changes.

    An environment that is no array environment, or is a batch, passes. Of a transformed one, the base is checked.

    >>> from steppe import Unbounded
    >>> from steppe_testing import ArrayDataEnv, check_written_rows
    >>> check_written_rows(ArrayDataEnv({"speed": Unbounded((2,))}))
    >>> class Forgetful(ArrayDataEnv):
    ...     def step_into(self, action, out):
    ...         out["reward"][0] = 1.0
    ...         return False, False
    >>> check_written_rows(Forgetful({"speed": Unbounded((2,))}))
    Traceback (most recent call last):
        ...
    steppe.errors.SpecError: Forgetful: its rows are written wrongly in 1 place:
      - 'speed' is not written by step_into: write out['speed'][...] = value each time, ...

    Args:
        env: the environment; it is reset and stepped at random.
        steps: minimum number of steps; a few more if an entry seems not to be written.

    Raises:
        SpecError: listing every entry that is wrong, with the call in which it was seen, and what to write.
    """
    while isinstance(env, TransformedEnv):
        env = env.base_env
    writer = None if env.is_closed else env.row_writer
    if not isinstance(writer, EnvWriter) or writer.envs != [env]:
        return
    found: dict[tuple[str, Any], str] = {}
    try:
        for where, finding in _watch(env, writer.layout, steps):
            found.setdefault((finding.kind, finding.key), f"{finding.text} [{where}]")
    except SpecError as error:
        found["stopped", None] = f"{error} [array environment]"
    if found:
        lines = "\n".join(f"  - {text}" for text in found.values())
        places = "1 place" if len(found) == 1 else f"{len(found)} places"
        raise SpecError(f"{type(env).__name__}: its rows are written wrongly in {places}:\n{lines}")


def _watch(env: EnvBase, layout: RowLayout, steps: int) -> Iterator[tuple[str, _Finding]]:
    """Reset and step an environment at random, and yield each finding with the call in which it was seen."""
    root, following = _Notes(layout.observations), _Notes(layout.written)
    done: dict[Any, _Array] = {name: np.zeros((1, *shape), bool) for name, shape in layout.done_shapes.items()}
    rows = Rows(
        layout, {**root.arrays, **done}, {**following.arrays, **{name: flag.copy() for name, flag in done.items()}}
    )
    loop = Loop(EnvWriter([env], layout), rows)
    for _ in range(_TRIES):
        with root.watching():
            loop.reset((0,))
        yield from (("reset", finding) for finding in root.findings)
        if not root.suspects:
            break
    yield from (("reset", finding) for finding in root.unwritten("reset_into"))
    build = TensorDictBuilder(layout.root_spec)
    seen = rows.root
    for step in range(1, steps + _TRIES + 1):
        data = build({key: torch.from_numpy(np.array(seen[key][0])) for key in layout.root_keys})
        actions = layout.actions.decode(layout.actions.rows_of(env.rand_action(data)))
        with following.watching():
            ended = loop.step(actions)
        yield from ((f"step {step}", finding) for finding in following.findings)
        seen = rows.next
        if ended:
            loop.reset((0,))
            yield from ((f"reset after step {step}", finding) for finding in root.findings)
            seen = rows.root
        if step >= steps and not following.suspects:
            break
    yield from ((f"step {step}", finding) for finding in following.unwritten("step_into"))


class _Notes:
    """Rows of some entries, and what was noticed about each entry.

    Args:
        fields: key, shape and dtype of each entry.
    """

    def __init__(self, fields: list[tuple[Any, tuple[int, ...], np.dtype[Any]]]) -> None:
        #: What was wrong with the values that were written.
        self.findings: list[_Finding] = []
        self.arrays: dict[Any, Any] = {}
        #: Elements that still held the pattern after each call so far.
        self.suspects: dict[Any, _Array] = {}
        self._random = np.random.default_rng(0)
        self._called = False
        for key, shape, dtype in fields:
            array: Any = np.zeros((1, *shape), dtype).view(_Watched)
            array.watch = _Watch(key, array.view(np.ndarray), self.findings)
            self.arrays[key] = array

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Fill the rows with a new pattern, and find afterwards where it was not overwritten."""
        plain = {key: _bytes(array.view(np.ndarray)) for key, array in self.arrays.items()}
        patterns = {key: self._pattern(array.view(np.ndarray)) for key, array in self.arrays.items()}
        for key, pattern in patterns.items():
            plain[key][...] = pattern
        yield
        untouched = {key: (plain[key] == pattern).all(-1) for key, pattern in patterns.items()}
        if self._called:
            untouched = {key: before & untouched[key] for key, before in self.suspects.items()}
        self._called = True
        self.suspects = {key: held for key, held in untouched.items() if held.any()}

    def _pattern(self, array: _Array) -> _Array:
        """Return random bytes ``[n, itemsize]`` that are no valid value if possible: NaN for floating-point numbers."""
        if array.dtype.kind == "b":
            return np.full(_bytes(array).shape, 0xAA, np.uint8)
        pattern: _Array = self._random.integers(1, 255, _bytes(array).shape, np.uint8)
        if array.dtype.kind in "fc":
            numbers = pattern.view(array.real.dtype).reshape(-1)
            whole = numbers.view(f"u{numbers.itemsize}")
            whole |= np.array(np.nan, numbers.dtype).view(whole.dtype)
        return pattern

    def unwritten(self, method: str) -> Iterator[_Finding]:
        """Yield a finding for each entry that kept every pattern."""
        for key, held in self.suspects.items():
            row = self.arrays[key][0]
            if held.all():
                how = f"out[{key!r}][0] = value" if row.shape == (1,) else f"out[{key!r}][...] = value"
                text = f"{key!r} is not written by {method}: write {how} each time, the old content is arbitrary."
            else:
                first = tuple(int(i) for i in np.unravel_index(int(held.argmax()), row.shape))
                text = (
                    f"{key!r} is not written as a whole by {method}: {int(held.sum())} of {held.size} values are left "
                    f"out, the first at {first}. Write all of it each time, the old content is arbitrary."
                )
            yield _Finding("unwritten", key, text)


def _bytes(array: _Array) -> _Array:
    """Return the memory of an array as bytes ``[size, itemsize]``."""
    return array.reshape(-1).view(np.uint8).reshape(array.size, array.itemsize)


class _Watch:
    """Compares the values that are written into one entry with what its row then holds.

    Args:
        key: the key of the entry.
        memory: its rows, ``[1, *shape]``.
        findings: where to append findings.
    """

    def __init__(self, key: Any, memory: _Array, findings: list[_Finding]) -> None:
        self.key, self.memory, self.findings = key, memory, findings
        self.dtype = numpy_to_torch_dtype_dict[memory.dtype]

    def look(self, target: object, value: object) -> None:
        """Check ``value``, which was written into ``target``, a part of the row."""
        try:
            written = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        except (TypeError, ValueError):
            return
        kept, row = np.asarray(target), self.memory[0]
        if written.ndim and written.size < kept.size and kept.shape == row.shape:
            self._note(
                "shape",
                f"{self.key!r} must have shape {row.shape}, found {written.shape}, which is repeated until it fills "
                f"the row: write a value of that shape. write_row(out, {self.key!r}, value) refuses others.",
            )
        lost = _lost(written, kept)
        if lost is not None:
            wanted, stored = lost
            if written.dtype.kind not in "biufc":
                fix = "write a number, float('nan') if no number is known"
            elif written.dtype.kind in "fc" and row.dtype.kind in "iu":
                fix = "round it"
            else:
                fix = "cast it yourself"
            kind = numpy_to_torch_dtype_dict.get(written.dtype)
            change = f", or give the spec dtype={kind}" if kind else ""
            self._note(
                "cast",
                f"{self.key!r} must have dtype {self.dtype}, found {written.dtype} with the value {wanted!r}, of which "
                f"the row keeps {stored!r}: {fix}{change}.",
            )

    def refusal(self, error: Exception) -> SpecError:
        """Return the error of a value that numpy cannot write into this row."""
        row = self.memory[0]
        return SpecError(
            f"{self.key!r}, of shape {row.shape} and dtype {self.dtype}, does not take what is written into it: "
            f"{error}. Change the value, or the spec."
        )

    def _note(self, kind: str, text: str) -> None:
        if not any((finding.kind, finding.key) == (kind, self.key) for finding in self.findings):
            self.findings.append(_Finding(kind, self.key, text))


def _lost(written: _Array, kept: _Array) -> tuple[object, object] | None:
    """Return the first value that a cast has changed, and the result. Floating-point numbers may be rounded."""
    if written.dtype.kind not in "biufc":
        return (written.ravel()[0], kept.ravel()[0].item()) if kept.size else None
    if written.dtype == kept.dtype or not kept.size:
        return None
    try:
        written = np.broadcast_to(written, kept.shape)
    except ValueError:  # written with dimensions of 1 in front
        written = written.reshape(kept.shape)
    if kept.dtype.kind in "fc":
        wrong = (
            np.isinf(kept) & ~np.isinf(written)
            if written.dtype.kind != "c" or kept.dtype.kind == "c"
            else written != kept
        )
    else:
        numbers = kept.astype(np.int64) if kept.dtype.kind == "b" else kept
        wrong = numbers != written
    if not wrong.any():
        return None
    at = tuple(np.argwhere(wrong)[0])
    return written[at].item(), kept[at].item()


class _Watched(np.ndarray[Any, Any]):
    """A row, or a part of one, that passes each value written into it to its watch."""

    watch: _Watch | None = None

    def __array_finalize__(self, source: Any) -> None:
        self.watch = getattr(source, "watch", None)

    def __setitem__(self, index: Any, value: object) -> None:
        watch = self.watch
        if watch is None or not np.may_share_memory(self, watch.memory):  # a copy is the environment's own
            super().__setitem__(index, value)
            return
        try:
            with np.errstate(invalid="ignore", over="ignore"):
                super().__setitem__(index, value)
        except (OverflowError, TypeError, ValueError) as error:
            raise watch.refusal(error) from error
        watch.look(super().__getitem__(index), value)

    def fill(self, value: object) -> None:
        self[...] = value

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(function, types, args, kwargs)
        if function is np.copyto and isinstance(args[0], _Watched) and len(args) > 1:
            watch = args[0].watch
            if watch is not None and np.may_share_memory(args[0], watch.memory):
                watch.look(args[0], args[1])
        return result
