"""EnvConformance: tests of an environment for use in batches and collectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, ClassVar

import pytest
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import ArrayEnv, EnvBase, check_env_specs, step_mdp
from steppe.errors import NotSupported, SpecError
from steppe.registry import env_factory
from steppe.specs import Composite

from .author_hints import action_hint
from .capabilities import require, skip_gated
from .case_factory import CaseFactory
from .compare import assert_equal_data
from .pools import WorkerPools
from .written_rows import check_written_rows

__all__ = ["EnvConformance"]

#: Number of compared episodes: enough that correct ones are unlikely to begin alike by chance.
_EPISODES = 8


class EnvConformance:
    """Tests of one environment.

    Subclass it in a test file, with a name that begins with ``Test``::

        class TestPendulum(EnvConformance):
            env_id = "acme:Pendulum"

    For an environment without an id, override :meth:`make_env`. The other attributes declare what the environment can
    do. Tests of other capabilities are skipped, and are printed and counted at the end of the run.

    >>> from steppe_testing import EnvConformance
    >>> class TestCartPole(EnvConformance):  # in a test file; pytest runs its tests
    ...     env_id = "gym:CartPole-v1"
    >>> suite = TestCartPole()
    >>> suite.test_data_fits_the_specs()
    >>> suite.test_a_rollout_is_a_chain(suite.make_env())

    Attributes:
        env_id: ``"namespace:name"``.
        kwargs: arguments of ``make_env``.
        deterministic: the same seed and the same actions always give the same data.
        seed_matters: different seeds give different data.
        episodes_differ: the later episodes after one seed are not all equal. False if the seed selects a level that is
            then repeated.
        batch_locked: data must have the environment's batch size; see :attr:`~steppe.envs.EnvBase.batch_locked`.
        supports_partial_reset: some rows of a batch can be reset without the others.
        supports_partial_step: some rows of a batch can be stepped without the others.
        independent_rows: steps and resets of one row never change the data of another. False for an environment with a
            batch size that draws the random numbers of all rows from one generator.
        supports_set_state: ``reset(td, set_state=True)`` starts from the state in ``td``; see
            :meth:`~steppe.envs.EnvBase.reset`.
        supports_pixels: the argument ``from_pixels=True`` adds an entry ``pixels`` (uint8).
        supports_batching: SerialEnv and ParallelEnv can contain the environment.
        ends: random actions end an episode within ``max_steps`` steps.
        max_steps: maximum length of an episode, for ``ends``.
        steps: length of the compared rollouts.
    """

    env_id: ClassVar[str | None] = None
    kwargs: ClassVar[dict[str, Any]] = {}
    deterministic: ClassVar[bool] = True
    seed_matters: ClassVar[bool] = True
    episodes_differ: ClassVar[bool] = True
    batch_locked: ClassVar[bool] = True
    supports_partial_reset: ClassVar[bool] = True
    supports_partial_step: ClassVar[bool] = True
    independent_rows: ClassVar[bool] = True
    supports_set_state: ClassVar[bool] = False
    supports_pixels: ClassVar[bool] = False
    supports_batching: ClassVar[bool] = True
    ends: ClassVar[bool] = True
    max_steps: ClassVar[int] = 1000
    steps: ClassVar[int] = 8

    # -- making environments --------------------------------------------------------------------------------------

    def make_env(self, **kwargs: Any) -> EnvBase:
        """Make the environment; override this for an environment without an id.

        Args:
            **kwargs: override ``kwargs``.
        """
        return self.factory(**kwargs)()

    def factory(self, **kwargs: Any) -> Callable[[], EnvBase]:
        """Return the factory with which batches make the environment."""
        if type(self).make_env is not EnvConformance.make_env:
            return CaseFactory(_make, type(self), kwargs)
        if self.env_id is None:
            raise TypeError(f"{type(self).__name__} needs env_id = 'namespace:name', or its own make_env().")
        return env_factory(self.env_id, **{**self.kwargs, **kwargs})

    @pytest.fixture
    def env(self) -> Iterator[EnvBase]:
        """An environment whose data fits its specs, closed after the test."""
        env = self._valid_env()
        yield env
        env.close(raise_if_closed=False)

    def _valid_env(self) -> EnvBase:
        cls = type(self)
        if "_spec_problem" not in cls.__dict__:
            cls._spec_problem = _spec_error(self.make_env)  # type: ignore[attr-defined]
        problem = cls._spec_problem  # type: ignore[attr-defined]
        if problem:
            skip_gated(self, "test_data_fits_the_specs", problem)
        return self.make_env()

    @pytest.fixture
    def batch(self) -> Iterator[EnvBase]:
        """The environment if it has rows or accepts any batch size.

        Otherwise a SerialEnv of three environments.
        """
        env = self._valid_env()
        if not env.batch_size:
            if not env.batch_locked:
                yield env
                env.close(raise_if_closed=False)
                return
            env.close(raise_if_closed=False)
            require(self, "supports_batching")
            env = self._serial(3)
        yield env
        env.close(raise_if_closed=False)

    def _serial(self, n: int) -> EnvBase:
        from steppe.batched import SerialEnv

        env: EnvBase = SerialEnv(n, self.factory())
        return env

    def _data(self, env: EnvBase, seed: int | None = 0, **kwargs: Any) -> TensorDictBase:
        if seed is not None:
            self._seed(env, seed)
        return env.rollout(self.steps, **{"break_when_any_done": False, **kwargs})

    def _seed(self, env: EnvBase, seed: int) -> None:
        try:
            env.set_seed(seed)
        except NotSupported as error:
            skip_gated(self, "test_one_seed_gives_one_data_set", str(error))

    def _actions(self, env: EnvBase) -> list[TensorDictBase]:
        """Return the action of each step of a rollout, to repeat the rollout."""
        data = self._data(env, 0)
        return list(data.select(*env.action_keys).unbind(data.batch_dims - 1))

    # -- specs and data -------------------------------------------------------------------------------------------

    def test_specs_are_complete_and_locked(self) -> None:
        """Assign observation, action, reward and done specs in the constructor, and leave them locked."""
        env = self.make_env()
        try:
            assert env.is_spec_locked, "the specs can be edited in place: do not pass spec_locked=False"
            for kind in ("action", "reward", "done"):
                assert getattr(env, f"{kind}_keys"), f"there is no {kind} key: assign {kind}_spec in the constructor"
            for name in ("observation", "action", "reward", "done", "state"):
                spec = getattr(env, f"full_{name}_spec")
                assert isinstance(spec, Composite), f"full_{name}_spec is a {type(spec).__name__}, not a Composite"
                assert spec.device == env.device, (
                    f"full_{name}_spec is on {spec.device}, the environment on {env.device}: pass device= to its base"
                )
            assert env.batch_locked is self.batch_locked, (
                f"batch_locked is {env.batch_locked}: set batch_locked = {env.batch_locked} in {type(self).__name__}, "
                "or _batch_locked in the environment"
            )
            assert env.supports_set_state is self.supports_set_state, (
                f"supports_set_state is {env.supports_set_state}: set supports_set_state = {env.supports_set_state} in "
                f"{type(self).__name__}, or _supports_set_state in the environment"
            )
        finally:
            env.close(raise_if_closed=False)

    def test_data_fits_the_specs(self) -> None:
        """Correct the specs or the data that check_env_specs and check_written_rows name."""
        problem = _spec_error(self.make_env)
        if problem:
            raise AssertionError(problem)

    def test_done_is_terminated_or_truncated(self, env: EnvBase) -> None:
        """Return ``done = terminated | truncated``, ``[*B, 1]`` bool, at each level."""
        data = self._data(env)
        for group in env.done_keys_groups:
            values = {(key if isinstance(key, str) else key[-1]): data["next"].get(key) for key in group}
            expected = values["terminated"]
            if "truncated" in values:
                expected = expected | values["truncated"]
            assert torch.equal(values["done"], expected), f"{group[0]!r} differs from terminated | truncated"
        for key in env.done_keys:
            root = data.get(key)
            assert not bool(root.any()), (
                f"{key!r} is True at the root of a step, although environments whose episode ended were reset before"
            )

    def test_a_rollout_is_a_chain(self, env: EnvBase) -> None:
        """Return from ``_step`` the data after the action, which is the next root."""
        data = self._data(env)
        assert data.batch_size[-1] == self.steps, f"the rollout has {data.batch_size[-1]} steps, expected {self.steps}"
        assert data.names[-1] == "time"
        time = data.batch_dims - 1
        frames = data.unbind(time)
        for t, (frame, next_frame) in enumerate(pairwise(frames)):
            if _any_done(env, frame["next"]):
                continue
            expected = env.step_mdp(frame.exclude(*env.action_keys))
            root = next_frame.select(*expected.keys())
            assert_equal_data(root, expected, f"the root of step {t + 1}", exclude=_names(env.action_keys))

    def test_a_rollout_has_the_entries_of_the_sample(self, env: EnvBase) -> None:
        """Return all entries of ``fake_tensordict()`` in every step; batches allocate them."""
        data, sample = _keys(self._data(env)[..., 0]), _keys(env.fake_tensordict())
        assert data == sample, f"{data - sample} are not in fake_tensordict(), {sample - data} are not in the data"

    def test_step_mdp_moves_next_to_the_root(self, env: EnvBase) -> None:
        """Return the result of :func:`steppe.envs.step_mdp` from ``env.step_mdp``."""
        td = env.step(env.rand_action(env.reset()))
        general = step_mdp(td, reward_keys=list(env.reward_keys), done_keys=list(env.done_keys), exclude_action=False)
        assert_equal_data(env.step_mdp(td), general, "env.step_mdp(td)")

    def test_later_steps_leave_earlier_data_alone(self, env: EnvBase) -> None:
        """Copy the arrays of the library, which may overwrite them in the next step."""
        root = env.reset()
        kept: list[tuple[TensorDictBase, TensorDictBase]] = [(root, root.clone())]
        for _ in range(self.steps):
            td = env.step(env.rand_action(root.copy()))
            kept.append((td["next"], td["next"].clone()))
            root = env.step_mdp(td)
            if env.any_done(root):
                root = env.reset()
        for i, (returned, copied) in enumerate(kept):
            assert_equal_data(
                returned,
                copied,
                f"the data of step {i} (0: the reset), compared again after later steps,",
                hint="The environment overwrites memory that it has returned. Return a copy: tensor.clone(), "
                "array.copy().",
            )

    # -- seeds ----------------------------------------------------------------------------------------------------

    def test_one_seed_gives_one_data_set(self, env: EnvBase) -> None:
        """Draw all random numbers from the generator that ``_set_seed`` seeds.

        If that is impossible, set ``deterministic = False``.
        """
        require(self, "deterministic")
        env.set_seed(0)
        first = self._data(env)
        hint = "Some random numbers do not come from the generator that the seed initializes."
        assert_equal_data(self._data(env), first, "a second rollout with the same seed", hint=hint)
        other = self.make_env()
        try:
            what = "the rollout of another instance with the same seed"
            assert_equal_data(self._data(other), first, what, hint=hint)
        finally:
            other.close(raise_if_closed=False)
        # A seed determines all later episodes, not only the first one.
        actions = self._actions(env)
        runs = []
        with _repeating_actions(env):
            for _ in range(2):
                env.set_seed(0)
                runs.append([env.rollout(len(actions), actions=actions) for _ in range(_EPISODES)])
        for episode, (first_run, second_run) in enumerate(zip(*runs, strict=True), 1):
            assert_equal_data(
                second_run,
                first_run,
                f"episode {episode} after the same seed, with the same actions,",
                hint="A reset without a seed must continue the generator of the last seed: write "
                "`if seed is not None: self.generator = ...`, and make generators nowhere else.",
            )

    def test_later_episodes_begin_otherwise(self, env: EnvBase) -> None:
        """Continue the generator at a reset without a seed.

        If all episodes should be equal, set ``episodes_differ = False``.
        """
        require(self, "seed_matters")
        require(self, "episodes_differ")
        actions = self._actions(env)
        firsts = []
        with _repeating_actions(env):
            for seed in (0, 1, 2):
                self._seed(env, seed)
                firsts.append(env.rollout(len(actions), actions=actions))
            if not any(_differ(firsts[0], other) for other in firsts[1:]):
                pytest.skip("episodes begin alike for all seeds")
            for seed in (0, 1):
                self._seed(env, seed)
                env.reset()
                second = env.rollout(len(actions), actions=actions)
                if any(_differ(second, env.rollout(len(actions), actions=actions)) for _ in range(_EPISODES)):
                    return
        raise AssertionError(
            f"with the same actions, {_EPISODES} episodes after the first one are equal, although different seeds give "
            "different episodes. A reset without a seed seeds the generator again, as default_rng(seed or 0) does. "
            "Write `if seed is not None: self.generator = np.random.default_rng(seed)`. If the episodes should be "
            "equal, set episodes_differ = False"
        )

    def test_two_seeds_give_two_data_sets(self, env: EnvBase) -> None:
        """Use the seed in ``_set_seed``; if nothing is random, set ``seed_matters = False``."""
        require(self, "seed_matters")
        actions = self._actions(env)
        data = []
        with _repeating_actions(env):
            for seed in (0, 1, 2):
                self._seed(env, seed)
                data.append(env.rollout(self.steps, actions=actions, break_when_any_done=False))
        same = [not _differ(data[0], other) for other in data[1:]]
        assert not all(same), "three seeds gave the same data for the same actions"

    # -- rows -----------------------------------------------------------------------------------------------------

    def test_a_partial_reset_leaves_other_rows_alone(self, batch: EnvBase) -> None:
        """Reset only the rows of ``"_reset"`` that are True; or set ``supports_partial_reset = False``."""
        require(self, "supports_partial_reset")
        require(self, "independent_rows")
        require(self, "deterministic")
        first, second = self._two_actions(batch)
        others = _other_rows(batch, first)
        steps = []
        with _repeating_actions(batch):
            for reset_row_one in (True, False):
                td = batch.step(self._begin(batch).update(first))
                ended = _ended(batch, td["next"])
                ended[1] |= reset_row_one
                root = batch.step_mdp(td)
                if bool(ended.any()):
                    root = batch.reset(root.set("_reset", ended.unsqueeze(-1)))
                steps.append(batch.step(root.update(second))["next"][others])
        with_reset, without = steps
        assert_equal_data(
            with_reset, without, "a step of the environments that were not reset, after the reset of another,"
        )

    def test_a_partial_step_leaves_other_rows_alone(self, batch: EnvBase) -> None:
        """Step only the rows of ``"_step"`` that are True; or set ``supports_partial_step = False``."""
        require(self, "supports_partial_step")
        require(self, "independent_rows")
        require(self, "deterministic")
        actions, _ = self._two_actions(batch)
        others = _other_rows(batch, actions)
        root = self._begin(batch)
        mask = torch.zeros(root.batch_size, dtype=torch.bool, device=batch.device or "cpu")
        mask[1] = True
        with _repeating_actions(batch):
            td = batch.step(root.update(actions).set("_step", mask))
            waited = batch.step(batch.step_mdp(td).update(actions).set("_step", ~mask))["next"]
            once = batch.step(self._begin(batch).update(actions))["next"]
        assert_equal_data(
            waited[others], once[others], "the first step of environments that were excluded from the step of another"
        )

    def test_a_reset_can_begin_at_a_given_state(self, env: EnvBase) -> None:
        """Read the state from the data only if ``_reset`` receives ``set_state=True``."""
        require(self, "supports_set_state")
        self._seed(env, 0)
        first = env.reset()
        later = env.step_mdp(env.step(env.rand_action(first.copy()))).exclude(*env.action_keys)
        if _any_done(env, later):
            later = first
        keys = list(dict.fromkeys([*env.state_keys, *env.observation_keys]))
        restored = env.reset(later.clone(), set_state=True)
        assert_equal_data(restored.select(*keys), later.select(*keys), "a reset with set_state=True")
        self._seed(env, 0)
        fresh = env.reset(later.clone(), set_state=False)
        assert_equal_data(fresh.select(*keys), first.select(*keys), "a reset with set_state=False after the same seed,")

    def _begin(self, batch: EnvBase) -> TensorDictBase:
        self._seed(batch, 0)
        any_size = not batch.batch_locked and not batch.batch_size
        return batch.reset(TensorDict({}, [3], device=batch.device) if any_size else None)

    def _two_actions(self, batch: EnvBase) -> list[TensorDictBase]:
        root = self._begin(batch)
        return [batch.rand_action(root.copy()).select(*batch.action_keys).clone() for _ in range(2)]

    # -- episodes and closing --------------------------------------------------------------------------------------

    def test_two_episodes_can_be_played(self, env: EnvBase) -> None:
        """Start a new episode in ``_reset`` after the end of one.

        If random actions do not end an episode, set ``ends = False`` or a larger ``max_steps``.
        """
        require(self, "ends")
        for episode in (1, 2):
            data = env.rollout(self.max_steps)
            done = data["next"].select(*env.done_keys)
            assert any(bool(value.any()) for value in done.values(True, True)), (
                f"episode {episode} has not ended after {self.max_steps} random steps: return terminated or truncated "
                f"from the step, raise `max_steps` of {type(self).__name__}, or set `ends = False` there"
            )

    def test_it_can_be_closed_twice(self) -> None:
        """Define ``close(self, *, raise_if_closed=False)`` so that a second call does nothing.

        Call the ``close`` of the base class first, and release each resource once.
        """
        env = self.make_env()
        env.close()
        assert env.is_closed, "close() leaves is_closed False: call super().close(raise_if_closed=raise_if_closed)"
        env.close()
        env.close(raise_if_closed=False)

    def test_it_moves_to_cuda(self, cuda_or_skip: torch.device) -> None:
        """Make new tensors with ``device=self.device``."""
        env = self._valid_env().to(cuda_or_skip)
        try:
            check_env_specs(env)
            assert self._data(env).device == cuda_or_skip
        finally:
            env.close(raise_if_closed=False)

    def test_pixels_are_images(self) -> None:
        """Return ``pixels``, ``[*B, H, W, 3]`` uint8, with ``from_pixels=True``.

        If the environment has no such argument, leave ``supports_pixels`` False.
        """
        require(self, "supports_pixels")
        env = self.make_env(from_pixels=True)
        try:
            assert "pixels" in env.full_observation_spec.keys(), f"there is no 'pixels' among {env.observation_keys}"
            spec = env.full_observation_spec["pixels"]
            assert spec.dtype is torch.uint8, f"pixels have dtype {spec.dtype}, expected torch.uint8"
            assert 3 in spec.shape[-3:], f"pixels have shape {tuple(spec.shape)}, expected three colours"
            check_env_specs(env)
        finally:
            env.close(raise_if_closed=False)

    # -- the array path -------------------------------------------------------------------------------------------

    def test_both_code_paths_give_equal_data(self, env: EnvBase) -> None:
        """Write in ``step_into`` and ``reset_into`` the data of ``_step`` and ``_reset``.

        Only array environments have both.
        """
        require(self, "deterministic")
        if not isinstance(env, ArrayEnv) or env.row_writer is None:
            pytest.skip("the environment has no array path")
        arrays = self._data(env)
        slow = self.make_env()
        try:
            slow._step = slow._step  # type: ignore[method-assign]
            assert isinstance(slow, ArrayEnv)
            assert slow.row_writer is None, "assigning _step to an instance must disable the array path"
            actions = list(arrays.select(*env.action_keys).unbind(0))
            slow.set_seed(0)
            tensordicts = slow.rollout(self.steps, actions=actions, break_when_any_done=False)
        finally:
            slow.close(raise_if_closed=False)
        assert_equal_data(tensordicts, arrays, "the data of the tensordict path")

    # -- batches --------------------------------------------------------------------------------------------------

    def _skip_if_batched(self, env: EnvBase) -> None:
        require(self, "supports_batching")
        if env.batch_size:
            pytest.skip("the environment is a batch itself")

    def _pool(self, env: EnvBase, pools: WorkerPools) -> EnvBase:
        """Return the shared ParallelEnv of two environments.

        Skip the test if it cannot start.
        """
        self._skip_if_batched(env)
        cls = type(self)
        if "_process_problem" not in cls.__dict__:
            cls._process_problem = _start_error(pools, self.factory())  # type: ignore[attr-defined]
        problem = cls._process_problem  # type: ignore[attr-defined]
        if problem:
            skip_gated(self, "test_the_factory_reaches_another_process", problem)
        pool: EnvBase = pools(self.factory())
        return pool

    def test_the_factory_reaches_another_process(self, env: EnvBase, steppe_pools: WorkerPools) -> None:
        """Use arguments that can be pickled, and import the library inside the factory."""
        self._skip_if_batched(env)
        problem = _start_error(steppe_pools, self.factory())
        assert not problem, f"a worker process cannot make the environment: {problem}"
        keys = steppe_pools(self.factory()).observation_keys
        assert keys == env.observation_keys, f"a worker has the observations {keys}, expected {env.observation_keys}"

    def test_a_serial_batch_holds_the_rollouts_of_its_environments(self, env: EnvBase) -> None:
        """Keep all state in the instance: instances in one process must be independent."""
        require(self, "deterministic")
        self._skip_if_batched(env)
        serial = self._serial(2)
        try:
            batch = self._data(serial)
        finally:
            serial.close(raise_if_closed=False)
        seed: int | None = 0
        for row in range(2):
            assert seed is not None
            next_seed = env.set_seed(seed)
            actions = list(batch[row].select(*env.action_keys).unbind(-1))
            single = env.rollout(self.steps, actions=actions, break_when_any_done=False)
            assert_equal_data(
                batch[row], single, f"environment {row} of a SerialEnv, compared with a single environment,"
            )
            seed = next_seed

    def test_parallel_equals_serial(self, env: EnvBase, steppe_pools: WorkerPools) -> None:
        """Use no value that differs between processes: globals, files, time.

        If that is impossible, set ``deterministic = False``.
        """
        require(self, "deterministic")
        pool = self._pool(env, steppe_pools)
        serial = self._serial(2)
        try:
            expected = self._data(serial)
        finally:
            serial.close(raise_if_closed=False)
        assert_equal_data(self._data(pool), expected, "the rollout of a ParallelEnv")

    def test_it_works_through_shared_buffers(self, env: EnvBase, steppe_pools: WorkerPools) -> None:
        """Return data that fits the specs in a worker too, with rows in shared memory."""
        pool = self._pool(env, steppe_pools)
        check_env_specs(pool)
        root = pool.reset()
        first = pool.step(pool.rand_action(root))
        kept = first["next"].clone()
        pool.step(pool.rand_action(pool.step_mdp(first)))
        assert_equal_data(first["next"], kept, "the data of the first step, compared again after the second one,")


def _make(case: type[EnvConformance], kwargs: dict[str, Any]) -> EnvBase:
    return case().make_env(**kwargs)


def _start_error(pools: WorkerPools, factory: Callable[[], EnvBase]) -> str:
    """Return the error of workers that cannot make the environment, or ""."""
    try:
        pools(factory).full_observation_spec  # noqa: B018, reading the specs starts the workers
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _spec_error(make: Callable[[], EnvBase]) -> str:
    env = make()
    try:
        check_written_rows(env)  # first: a row that is not written shows wrong data elsewhere too
        check_env_specs(env)
    except SpecError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}. {action_hint(env)}"
    finally:
        env.close(raise_if_closed=False)
    return ""


def _other_rows(batch: EnvBase, data: TensorDictBase) -> list[int]:
    """Return all rows except row 1."""
    if data.batch_dims != 1 or data.batch_size[0] < 2:
        pytest.skip(f"a batch of size {tuple(data.batch_size)} does not have two environments")
    return [row for row in range(data.batch_size[0]) if row != 1]


@contextmanager
def _repeating_actions(env: EnvBase) -> Iterator[None]:
    """Explain an error of a step whose action was drawn in another episode, where the masks were others."""
    try:
        yield
    except Exception as error:
        if not env.action_masks:
            raise
        raise AssertionError(
            f"a step raised {type(error).__name__}: {error}\n"
            f"The kit repeats actions in other episodes, where the masks {[*env.action_masks.values()]} may forbid "
            "them: let a step ignore forbidden actions, or skip the tests that repeat actions with "
            "deterministic = False, seed_matters = False and independent_rows = False"
        ) from error


def _ended(env: EnvBase, following: TensorDictBase) -> torch.Tensor:
    """Return the rows ``[B]`` in which a done entry of any level is True."""
    ended = torch.zeros(following.batch_size, dtype=torch.bool, device=following.device or "cpu")
    for key in env.done_keys:
        ended |= following.get(key).reshape((*following.batch_size, -1)).any(-1)
    return ended


def _any_done(env: EnvBase, following: TensorDictBase) -> bool:
    return any(bool(following.get(key).any()) for key in env.done_keys)


def _differ(first: TensorDictBase, second: TensorDictBase) -> bool:
    try:
        assert_equal_data(first, second)
    except AssertionError:
        return True
    return False


def _keys(data: TensorDictBase) -> set[Any]:
    return set(data.keys(include_nested=True, leaves_only=True))


def _names(keys: list[Any]) -> tuple[str, ...]:
    return tuple(key if isinstance(key, str) else key[-1] for key in keys)
