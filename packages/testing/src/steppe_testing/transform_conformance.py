"""TransformConformance: tests of a transform."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from tensordict import TensorDictBase, stack
from tensordict.nn import TensorDictModule, TensorDictSequential

from steppe.envs import check_env_specs
from steppe.errors import SpecError
from steppe.specs import Composite, Spec, Unbounded
from steppe.transforms import Compose, InitTracker, RewardSum, StepCounter, Transform, TransformedEnv

from .capabilities import require, skip_gated
from .case_factory import CaseFactory
from .compare import assert_equal_data
from .data_env import ArrayDataEnv, DataEnv
from .pools import WorkerPools

__all__ = ["TransformConformance"]


class TransformConformance:
    """Tests of one transform.

    Subclass it with a name that begins with ``Test``::

        class TestResize(TransformConformance):
            input_spec = {"pixels": Bounded(0, 255, (3, 16, 16))}
            expected = {"pixels": (3, 8, 8)}

            def make_transform(self):
                return Resize(8, 8)

    >>> from steppe import Bounded, Resize
    >>> from steppe_testing import TransformConformance
    >>> class TestResize(TransformConformance):  # in a test file; pytest runs its tests
    ...     input_spec = {"pixels": Bounded(0, 255, (3, 16, 16))}
    ...     expected = {"pixels": (3, 8, 8)}
    ...     def make_transform(self):
    ...         return Resize(8, 8)
    >>> TestResize().test_in_an_environment()

    Attributes:
        input_spec: specs of the observations that the transform reads, without batch dimensions.
        expected: shapes of the observations that it writes, ``{key: shape}``, without batch dimensions.
        action_spec: spec of the action of the environments. None: ``Bounded(-1, 1, (2,))``.
        reward_spec: spec of their reward. None: ``Unbounded((1,))``.
        works_alone: the transform can be called on data outside an environment.
        invertible: ``inv`` restores the entries of ``in_keys``.
        tolerance: largest allowed error of the entries after ``inv``.
        steps: length of the compared rollouts.
        on_rows: the transform runs on rows of arrays (``env.no_row_writer_reason`` is None), like most transforms.
        in_environments: an environment can have the transform. False for transforms of stored data.
        for_each_row: the result of a row depends on that row only, so that a transform around a batch is equivalent to
            transforms inside it. False for a count over all rows, in one process or many.
    """

    input_spec: ClassVar[dict[Any, Spec]] = {}
    expected: ClassVar[dict[Any, tuple[int, ...]]] = {}
    action_spec: ClassVar[Spec | None] = None
    reward_spec: ClassVar[Spec | None] = None
    works_alone: ClassVar[bool] = True
    invertible: ClassVar[bool] = False
    tolerance: ClassVar[float] = 1e-5
    steps: ClassVar[int] = 8
    on_rows: ClassVar[bool] = True
    in_environments: ClassVar[bool] = True
    for_each_row: ClassVar[bool] = True

    def make_transform(self) -> Transform:
        """Make the transform; override this."""
        raise NotImplementedError(f"{type(self).__name__} needs make_transform().")

    # -- environments to transform --------------------------------------------------------------------------------

    def make_env(self) -> DataEnv:
        """Make an environment that returns random data of the specs."""
        return DataEnv(dict(self.input_spec), action=self.action_spec, reward=self.reward_spec)

    def make_transformed(self) -> TransformedEnv:
        """Make the same environment with the transform."""
        return TransformedEnv(self.make_env(), self.make_transform())

    def _factory(self, *, transformed: bool) -> Callable[[], Any]:
        return CaseFactory(_make, type(self), transformed)

    def _sample(self, *lead: int) -> TensorDictBase:
        reward = Unbounded((1,)) if self.reward_spec is None else self.reward_spec
        data: TensorDictBase = Composite(dict(self.input_spec)).rand(lead)
        rewards = reward if isinstance(reward, Composite) else Composite({"reward": reward})
        return data.update(rewards.rand(lead))

    def _rollout(self, env: Any) -> TensorDictBase:
        env.set_seed(0)
        data: TensorDictBase = env.rollout(self.steps, break_when_any_done=False)
        return data

    def _check_shapes(self, data: TensorDictBase, where: str) -> None:
        for key, shape in self.expected.items():
            value = data.get(key, None)
            assert value is not None, f"{where}: {key!r} is missing, found {sorted(map(str, data.keys(True, True)))}"
            tail = tuple(value.shape[data.batch_dims :])
            assert tail == tuple(shape), f"{where}: {key!r} has shape {tail}, expected {tuple(shape)}"

    # -- outside environments -------------------------------------------------------------------------------------

    def test_alone_on_data(self) -> None:
        """Write the out_keys in ``__call__``, for data of any batch size."""
        require(self, "works_alone")
        for lead in ((), (3,), (2, 3)):
            self._check_shapes(self.make_transform()(self._sample(*lead)), f"data of batch size {lead}")

    def test_in_a_compose(self) -> None:
        """Return the same data in a Compose as alone."""
        require(self, "works_alone")
        data = self._sample(2)
        expected = self.make_transform()(data.clone())
        assert_equal_data(Compose(self.make_transform())(data.clone()), expected, "the data of a Compose")

    def test_in_a_module(self) -> None:
        """Work as a module of a TensorDictSequential."""
        require(self, "works_alone")
        calls: list[Any] = []
        keys = list(self.expected) or list(self.input_spec)

        def read(*values: Any) -> Any:
            calls.append(values)
            return values[0]

        reader = TensorDictModule(read, in_keys=keys, out_keys=["read"])
        data = TensorDictSequential(self.make_transform(), reader)(self._sample(2))
        self._check_shapes(data, "behind a TensorDictSequential")
        assert calls, "the module behind the transform was not called"

    def test_the_inverse_undoes_it(self) -> None:
        """Return from ``inv`` the data before the transform."""
        require(self, "invertible")
        transform, data = self.make_transform(), self._sample(2)
        restored = transform.inv(transform(data.clone()))
        for key in self.input_spec:
            error = float((restored.get(key).double() - data.get(key).double()).abs().max())
            assert error <= self.tolerance, (
                f"inv(transform(x)) differs from x by {error} at {key!r}, expected at most {self.tolerance}"
            )

    # -- in environments ------------------------------------------------------------------------------------------

    def test_specs_are_those_of_the_data(self) -> None:
        """Return specs with the shape, dtype and bounds of the transformed data.

        Change them in ``transform_observation_spec``.
        """
        require(self, "in_environments")
        _check_specs(self.make_transformed())

    def _need_specs(self) -> None:
        require(self, "in_environments")
        cls = type(self)
        if "_spec_problem" not in cls.__dict__:
            cls._spec_problem = _problem(lambda: _check_specs(self.make_transformed()))  # type: ignore[attr-defined]
        if cls._spec_problem:  # type: ignore[attr-defined]
            skip_gated(self, "test_specs_are_those_of_the_data", cls._spec_problem)  # type: ignore[attr-defined]

    def test_in_an_environment(self) -> None:
        """Write the out_keys after resets and steps."""
        self._need_specs()
        self._in_one_env()

    def _in_one_env(self) -> None:
        data = self._rollout(self.make_transformed())
        self._check_shapes(data, "the root")
        self._check_shapes(data["next"], "'next'")

    def _need_env(self) -> None:
        self._need_specs()
        cls = type(self)
        if "_env_problem" not in cls.__dict__:
            cls._env_problem = _problem(self._in_one_env)  # type: ignore[attr-defined]
        if cls._env_problem:  # type: ignore[attr-defined]
            skip_gated(self, "test_in_an_environment", cls._env_problem)  # type: ignore[attr-defined]

    def test_in_serial_batches(self) -> None:
        """Keep separate state for each row.

        A batch of transformed environments must return the data of a transformed batch.
        """
        self._need_env()
        self._serial_batches()

    def _serial_batches(self) -> None:
        from steppe.batched import SerialEnv

        inside = SerialEnv(2, self._factory(transformed=True))
        outside = TransformedEnv(SerialEnv(2, self._factory(transformed=False)), self.make_transform())
        _check_specs(inside)
        _check_specs(outside)
        if self.for_each_row:
            assert_equal_data(self._rollout(outside), self._rollout(inside), "a transformed SerialEnv")
        else:
            self._check_shapes(self._rollout(outside), "a transformed SerialEnv")

    def _need_batches(self) -> None:
        self._need_env()
        cls = type(self)
        if "_batch_problem" not in cls.__dict__:
            cls._batch_problem = _problem(self._serial_batches)  # type: ignore[attr-defined]
        if cls._batch_problem:  # type: ignore[attr-defined]
            skip_gated(self, "test_in_serial_batches", cls._batch_problem)  # type: ignore[attr-defined]

    def test_in_a_parallel_batch(self, steppe_pools: WorkerPools) -> None:
        """Work in a worker process: keep nothing that cannot be pickled."""
        self._need_batches()
        require(self, "for_each_row")
        from steppe.batched import SerialEnv

        serial = SerialEnv(2, self._factory(transformed=True))
        pool = steppe_pools(self._factory(transformed=True))
        _check_specs(pool)
        assert_equal_data(self._rollout(pool), self._rollout(serial), "a ParallelEnv of transformed environments")

    def test_on_a_parallel_batch(self, steppe_pools: WorkerPools) -> None:
        """Work on the data of a batch in shared memory."""
        self._need_batches()
        require(self, "for_each_row")
        from steppe.batched import SerialEnv

        serial = SerialEnv(2, self._factory(transformed=True))
        outside = TransformedEnv(steppe_pools(self._factory(transformed=False)), self.make_transform())
        _check_specs(outside)
        assert_equal_data(self._rollout(outside), self._rollout(serial), "a transformed ParallelEnv")

    # -- on rows of arrays ----------------------------------------------------------------------------------------

    def make_row_env(self) -> ArrayDataEnv:
        """Make an environment that writes the same data into rows of arrays."""
        return ArrayDataEnv(dict(self.input_spec), action=self.action_spec, reward=self.reward_spec)

    def _rows_and_tensordicts(
        self, others: tuple[Callable[[], Transform], ...] = (), *, reverse: bool = False
    ) -> list[TransformedEnv]:
        """Return environments on rows and on TensorDicts, with the same transforms.

        The order of the transforms is random, but fixed; ``reverse`` reverses it.
        """
        envs = []
        for base in (self.make_row_env(), self.make_env()):
            parts = [self.make_transform(), *(make() for make in others)]
            order = random.Random(len(others)).sample(range(len(parts)), len(parts))
            chosen = [parts[i] for i in (reversed(order) if reverse else order)]
            envs.append(TransformedEnv(base, Compose(*chosen) if others else chosen[0]))
        problem = envs[0].no_row_writer_reason
        assert problem is None, f"the transform does not run on rows: {problem} If it cannot, set on_rows = False"
        return envs

    def test_on_rows(self) -> None:
        """Return the same data on rows of arrays as on TensorDicts.

        Do not keep tensors of the data, and do not change them in place.
        """
        require(self, "on_rows")
        self._need_env()
        self._rows()

    def _rows(self) -> None:
        rows, tensordicts = self._rows_and_tensordicts()
        expected = self._rollout(tensordicts)
        assert_equal_data(self._rollout(rows), expected, "a rollout through rows")

    def _need_rows(self) -> None:
        require(self, "on_rows")
        self._need_env()
        cls = type(self)
        if "_rows_problem" not in cls.__dict__:
            cls._rows_problem = _problem(self._rows)  # type: ignore[attr-defined]
        if cls._rows_problem:  # type: ignore[attr-defined]
            skip_gated(self, "test_on_rows", cls._rows_problem)  # type: ignore[attr-defined]

    def test_on_rows_of_a_batch(self) -> None:
        """Treat each row separately, also if a step or a reset excludes other rows."""
        self._need_rows()
        self._need_batches()
        self._need_edited()
        from steppe.batched import SerialEnv

        batches = [SerialEnv(2, CaseFactory(_make_on, type(self), rows)) for rows in (True, False)]
        outside = TransformedEnv(SerialEnv(2, CaseFactory(_make_base, type(self))), self.make_transform())
        expected = self._masked(batches[1])
        assert_equal_data(self._masked(batches[0]), expected, "a batch of environments on rows")
        if self.for_each_row:
            assert_equal_data(self._masked(outside), expected, "a transformed batch of environments on rows")

    def _masked(self, env: Any) -> TensorDictBase:
        """Return steps of all rows and, in between, of one row."""
        env.set_seed(0)
        td = env.reset()
        frames: list[TensorDictBase] = []
        for step in range(self.steps):
            td = env.rand_action(td)
            if step % 3 == 1:
                td.set("_step", torch.tensor([True, False], device="cpu"))
            frame, td = env.step_and_maybe_reset(td)
            frames.append(frame.clone())
        return stack(frames, 1)

    def test_an_edited_root_counts(self) -> None:
        """Read state from the root of each step, where callers can edit it."""
        self._need_batches()
        if self.on_rows:
            self._need_rows()
        self._check_edited_roots()

    def _need_edited(self) -> None:
        cls = type(self)
        if "_edited_problem" not in cls.__dict__:
            cls._edited_problem = _problem(self._check_edited_roots)  # type: ignore[attr-defined]
        if cls._edited_problem:  # type: ignore[attr-defined]
            skip_gated(self, "test_an_edited_root_counts", cls._edited_problem)  # type: ignore[attr-defined]

    def _check_edited_roots(self) -> None:
        from steppe.batched import SerialEnv

        env = self.make_transformed()
        expected, unedited = self._edited(env), self._edited(env, by=0)
        for key in filter(lambda key: _is_number(expected.get(key)), env.state_keys):
            before, after = unedited["next"].get(key), expected["next"].get(key)
            assert not torch.equal(before, after), f"('next', {key!r}) does not depend on {key!r} of the root"
        envs: list[tuple[str, Any]] = [("a SerialEnv", SerialEnv(1, self._factory(transformed=True)))]
        if self.on_rows:
            envs.append(("an environment on rows", self._rows_and_tensordicts()[0]))
            envs.append(("a SerialEnv on rows", SerialEnv(1, CaseFactory(_make_on, type(self), True))))
        for what, env in envs:
            data = self._edited(env)
            assert_equal_data(data[0] if env.batch_size else data, expected, f"with an edited root, {what}")

    def _edited(self, env: Any, by: int = 1) -> TensorDictBase:
        env.set_seed(0)
        td = env.reset()
        frames: list[TensorDictBase] = []
        for _ in range(3):
            for key in env.state_keys:
                value = td.get(key)
                if _is_number(value):
                    td.set(key, value + by)
            frame, td = env.step_and_maybe_reset(env.rand_action(td))
            frames.append(frame.clone())
        return stack(frames, len(env.batch_size))

    def test_in_any_order_with_others(self) -> None:
        """Return equal data on rows and on TensorDicts, before and after other transforms."""
        self._need_rows()
        transform_class = type(self.make_transform())
        kinds: list[Callable[[], Transform]] = [
            make for kind, make in _OTHERS.items() if not issubclass(transform_class, kind)
        ]
        for n, reverse in itertools.product(range(1, len(kinds) + 1), (False, True)):
            rows, tensordicts = self._rows_and_tensordicts(tuple(kinds[:n]), reverse=reverse)
            expected = self._rollout(tensordicts)
            assert_equal_data(self._rollout(rows), expected, f"a rollout of {rows.transform!r} through rows")

    # -- in collectors and buffers --------------------------------------------------------------------------------

    def test_in_a_collector(self) -> None:
        """Work in a data collector, which resets rows as they end."""
        self._need_env()
        collectors = pytest.importorskip("steppe.collectors", reason="steppe.collectors is not installed")
        collector = collectors.SyncDataCollector(self.make_transformed, None, frames_per_batch=10, total_frames=20)
        try:
            batches = [data.clone() for data in collector]
        finally:
            collector.shutdown()
        assert len(batches) == 2, f"20 frames in batches of 10 gave {len(batches)} batches, expected 2"
        for data in batches:
            self._check_shapes(data["next"], "the batch of a collector")

    def test_in_a_replay_buffer(self) -> None:
        """Work on samples of a replay buffer, which stores what the inverse makes of the data."""
        require(self, "works_alone")
        replay = pytest.importorskip("steppe_replay", reason="steppe-replay is not installed")
        transform, data = self.make_transform(), self._sample(20)
        missing = [key for key in transform.in_keys_inv or () if key not in data.keys(include_nested=True)]
        if missing:
            pytest.skip(f"the data of the kit has no {missing}, which the inverse takes")
        if transform.in_keys_inv:
            data = self.make_transform()(data)  # as an environment with the transform returns it
        sampler = replay.SamplerWithoutReplacement(shuffle=not transform.over_time)
        storage = replay.LazyTensorStorage(20)
        buffer = replay.ReplayBuffer(storage=storage, sampler=sampler, transform=transform, batch_size=5)
        buffer.extend(data)
        self._check_shapes(buffer.sample(), "a batch from a buffer")

    # -- saving and copying ---------------------------------------------------------------------------------------

    def test_state_can_be_loaded(self) -> None:
        """Keep state in buffers, so that ``state_dict`` contains it."""
        if self.in_environments:
            self._need_env()
            self._load_in_environments()
        if self.works_alone:
            self._load_alone()

    def _load_in_environments(self) -> None:
        env, other = self.make_transformed(), self.make_transformed()
        self._rollout(env)
        missing, unexpected = other.transform.load_state_dict(env.transform.state_dict(), strict=False)
        assert not missing, f"state_dict lacks {missing}"
        assert not unexpected, f"state_dict has {unexpected}, which a new transform cannot load"
        for name, value in env.transform.state_dict().items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(other.transform.state_dict()[name], value), f"{name!r} was not loaded"

    def _load_alone(self) -> None:
        used, new = self.make_transform(), self.make_transform()
        used(self._sample(2))
        new.load_state_dict(used.state_dict())
        data = self._sample(2)
        assert_equal_data(new(data.clone()), used(data.clone()), "the data of a transform that loaded the state")

    def test_it_can_be_pickled(self) -> None:
        """Keep nothing that cannot be pickled: no lambda, no open file."""
        if self.in_environments:
            self._need_env()
        transform = self.make_transform()
        other = pickle.loads(pickle.dumps(transform))
        assert type(other) is type(transform)
        if not self.in_environments:
            data = self._sample(2)
            assert_equal_data(other(data.clone()), transform(data.clone()), "the data of an unpickled copy")
            return
        original, copied = TransformedEnv(self.make_env(), transform), TransformedEnv(self.make_env(), other)
        assert_equal_data(self._rollout(copied), self._rollout(original), "the data of an unpickled copy")


#: Transforms that are combined with the tested one.
_OTHERS: dict[type[Transform], Callable[[], Transform]] = {
    StepCounter: lambda: StepCounter(4),
    RewardSum: RewardSum,
    InitTracker: InitTracker,
}


def _is_number(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is not torch.bool


def _make_on(case: type[TransformConformance], rows: bool) -> Any:
    return TransformedEnv(case().make_row_env() if rows else case().make_env(), case().make_transform())


def _make_base(case: type[TransformConformance]) -> Any:
    return case().make_row_env()


def _make(case: type[TransformConformance], transformed: bool) -> Any:
    return case().make_transformed() if transformed else case().make_env()


def _check_specs(env: Any) -> None:
    try:
        check_env_specs(env)
    except SpecError as error:
        raise AssertionError(str(error)) from error


def _problem(check: Callable[[], None]) -> str:
    try:
        check()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
