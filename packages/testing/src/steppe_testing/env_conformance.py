"""EnvConformance: what every environment must hold to be used in batches and collectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import ArrayEnv, EnvBase, check_env_specs, step_mdp
from steppe.errors import NotSupported, SpecError
from steppe.registry import env_factory
from steppe.specs import Composite

from .capabilities import require, skip_gated
from .case_factory import CaseFactory
from .compare import assert_equal_data
from .pools import WorkerPools

__all__ = ["EnvConformance"]

#: How many episodes are compared: as many as make it unlikely that sound ones begin alike by chance.
_EPISODES = 8


class EnvConformance:
    """Tests of one environment. Subclass it in a test file, under a name that begins with ``Test``::

        class TestPendulum(EnvConformance):
            env_id = "acme:Pendulum"

    An environment without an id is made by :meth:`make_env`, overridden. The other attributes say what the environment
    can do; a test of something that it cannot do is skipped, printed and counted at the end of the run.

    Attributes:
        env_id: ``"namespace:name"``.
        kwargs: arguments of ``make_env``.
        deterministic: one seed and one sequence of actions always give the same data.
        seed_matters: two seeds give different data.
        episodes_differ: after one seed, later episodes are not all alike; not so where the seed chooses a level that is
            then played again and again.
        batch_locked: data must have the environment's batch size; see :attr:`~steppe.envs.EnvBase.batch_locked`.
        supports_partial_reset: rows of a batch can be reset by themselves.
        supports_partial_step: rows of a batch can be stepped by themselves.
        independent_rows: what one row does never changes what another one does; not so where a batch of its own draws
            random numbers for all rows from one generator.
        supports_set_state: ``reset(td, set_state=True)`` begins at the state in ``td``; see
            :meth:`~steppe.envs.EnvBase.reset`.
        supports_pixels: ``from_pixels=True`` is an argument, and gives an entry ``pixels`` (uint8).
        supports_batching: the environment can be one of many in SerialEnv and ParallelEnv.
        ends: random actions end an episode within ``max_steps`` steps.
        max_steps: see ``ends``.
        steps: length of the rollouts that are compared.
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
        """Return what a batch is given to make its environments."""
        if type(self).make_env is not EnvConformance.make_env:
            return CaseFactory(_make, type(self), kwargs)
        if self.env_id is None:
            raise TypeError(f"{type(self).__name__} needs env_id = 'namespace:name', or its own make_env().")
        return env_factory(self.env_id, **{**self.kwargs, **kwargs})

    @pytest.fixture
    def env(self) -> Iterator[EnvBase]:
        """An environment whose data fits its specs, closed after the test."""
        env = self._checked()
        yield env
        env.close(raise_if_closed=False)

    def _checked(self) -> EnvBase:
        cls = type(self)
        if "_spec_problem" not in cls.__dict__:
            cls._spec_problem = _problem(self.make_env)  # type: ignore[attr-defined]
        problem = cls._spec_problem  # type: ignore[attr-defined]
        if problem:
            skip_gated(self, "test_data_fits_the_specs", problem)
        return self.make_env()

    @pytest.fixture
    def batch(self) -> Iterator[EnvBase]:
        """Three rows: the environment itself where it has a batch, a SerialEnv of it otherwise."""
        env = self._checked()
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
        """The actions of a rollout, one by one, to be played again."""
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
        """Change the specs or the data where check_env_specs says that they disagree."""
        problem = _problem(self.make_env)
        if problem:
            raise AssertionError(problem)

    def test_done_is_terminated_or_truncated(self, env: EnvBase) -> None:
        """At each level return done entries ``[*B, 1]`` bool of which done is terminated or truncated."""
        data = self._data(env)
        for group in env.done_keys_groups:
            values = {(key if isinstance(key, str) else key[-1]): data["next"].get(key) for key in group}
            expected = values["terminated"]
            if "truncated" in values:
                expected = expected | values["truncated"]
            assert torch.equal(values["done"], expected), f"{group[0]!r} is not terminated or truncated"
        for key in env.done_keys:
            root = data.get(key)
            assert not bool(root.any()), (
                f"{key!r} is True at the root of a step, after the reset of the rows that ended"
            )

    def test_a_rollout_is_a_chain(self, env: EnvBase) -> None:
        """Return from ``_step`` what holds after the action: it is the root of the next step."""
        data = self._data(env)
        assert data.batch_size[-1] == self.steps, f"{self.steps} steps were asked for, {data.batch_size[-1]} came"
        assert data.names[-1] == "time"
        time = data.batch_dims - 1
        before, after = (data.unbind(time)[:-1], data.unbind(time)[1:])
        for t, (one, other) in enumerate(zip(before, after, strict=True)):
            if _any_done(env, one["next"]):
                continue
            expected = env.step_mdp(one.exclude(*env.action_keys))
            found = other.select(*expected.keys())
            assert_equal_data(found, expected, f"the root of step {t + 1}", exclude=_names(env.action_keys))

    def test_a_rollout_has_the_entries_of_the_sample(self, env: EnvBase) -> None:
        """Return all entries of the specs in every step; batches are laid out from ``fake_tensordict()``."""
        found, sample = self._data(env)[..., 0], env.fake_tensordict()
        assert _keys(found) == _keys(sample), f"{_keys(found) ^ _keys(sample)} are in one of data and fake_tensordict()"

    def test_step_mdp_moves_next_to_the_root(self, env: EnvBase) -> None:
        """Let ``env.step_mdp`` give what :func:`steppe.envs.step_mdp` gives."""
        td = env.step(env.rand_action(env.reset()))
        general = step_mdp(td, reward_keys=list(env.reward_keys), done_keys=list(env.done_keys), exclude_action=False)
        assert_equal_data(env.step_mdp(td), general, "env.step_mdp(td)")

    def test_later_steps_leave_earlier_data_alone(self, env: EnvBase) -> None:
        """Copy what the library returns: libraries write into the same memory again."""
        root = env.reset()
        kept: list[tuple[TensorDictBase, TensorDictBase]] = [(root, root.clone())]
        for _ in range(self.steps):
            td = env.step(env.rand_action(root.copy()))
            kept.append((td["next"], td["next"].clone()))
            root = env.step_mdp(td)
            if env.any_done(root):
                root = env.reset()
        for i, (now, then) in enumerate(kept):
            assert_equal_data(
                now,
                then,
                f"what step {i} returned (0: the reset), looked at after later steps,",
                hint="The environment writes again into memory that it has returned. Return a copy: tensor.clone(), "
                "array.copy().",
            )

    # -- seeds ----------------------------------------------------------------------------------------------------

    def test_one_seed_gives_one_data_set(self, env: EnvBase) -> None:
        """Draw every random number from the generator that ``_set_seed`` seeds; or set ``deterministic = False``."""
        require(self, "deterministic")
        env.set_seed(0)
        first = self._data(env)
        hint = "Some random numbers come from elsewhere than the generator that the seed is given to."
        assert_equal_data(self._data(env), first, "a second rollout with the same seed", hint=hint)
        other = self.make_env()
        try:
            what = "the rollout of another instance with the same seed"
            assert_equal_data(self._data(other), first, what, hint=hint)
        finally:
            other.close(raise_if_closed=False)
        # A seed holds for all episodes to come, not for the first alone.
        actions = self._actions(env)
        runs = []
        for _ in range(2):
            env.set_seed(0)
            runs.append([env.rollout(len(actions), actions=actions) for _ in range(_EPISODES)])
        for episode, (one, other_run) in enumerate(zip(*runs, strict=True), 1):
            assert_equal_data(
                other_run,
                one,
                f"episode {episode} after the same seed, with the same actions,",
                hint="A reset without a seed goes on with the generator that the last seed was given to: write "
                "`if seed is not None: self.generator = ...`, and make no other one.",
            )

    def test_later_episodes_begin_otherwise(self, env: EnvBase) -> None:
        """Go on with the generator at a reset without a seed; or set ``episodes_differ = False``."""
        require(self, "seed_matters")
        require(self, "episodes_differ")
        actions = self._actions(env)
        firsts = []
        for seed in (0, 1, 2):
            self._seed(env, seed)
            firsts.append(env.rollout(len(actions), actions=actions))
        if not any(_differ(firsts[0], other) for other in firsts[1:]):
            pytest.skip("episodes begin alike whatever the seed")
        for seed in (0, 1):
            self._seed(env, seed)
            env.reset()
            second = env.rollout(len(actions), actions=actions)
            if any(_differ(second, env.rollout(len(actions), actions=actions)) for _ in range(_EPISODES)):
                return
        raise AssertionError(
            f"with the same actions, {_EPISODES} episodes after the first one are all alike, though seeds make a "
            "difference: a reset without a seed seeds its generator anew, as default_rng(seed or 0) does. Write "
            "`if seed is not None: self.generator = np.random.default_rng(seed)`; or set episodes_differ = False where "
            "that is meant"
        )

    def test_two_seeds_give_two_data_sets(self, env: EnvBase) -> None:
        """Use the seed in ``_set_seed``; or set ``seed_matters = False`` where nothing is random."""
        require(self, "seed_matters")
        rows = self._actions(env)
        data = []
        for seed in (0, 1, 2):
            self._seed(env, seed)
            data.append(env.rollout(self.steps, actions=rows, break_when_any_done=False))
        same = [not _differ(data[0], other) for other in data[1:]]
        assert not all(same), "three seeds and one sequence of actions gave the same data three times"

    # -- rows -----------------------------------------------------------------------------------------------------

    def test_a_partial_reset_leaves_other_rows_alone(self, batch: EnvBase) -> None:
        """Reset only the rows of ``"_reset"`` that are True; or set ``supports_partial_reset = False``."""
        require(self, "supports_partial_reset")
        require(self, "independent_rows")
        require(self, "deterministic")
        first, second = self._two_actions(batch)
        others = _others(batch, first)
        found = []
        for reset_row_one in (True, False):
            td = batch.step(self._begin(batch).update(first))
            ended = _ended(batch, td["next"])
            ended[1] |= reset_row_one
            root = batch.step_mdp(td)
            if bool(ended.any()):
                root = batch.reset(root.set("_reset", ended.unsqueeze(-1)))
            found.append(batch.step(root.update(second))["next"][others])
        with_reset, without = found
        assert_equal_data(with_reset, without, "a step of the rows that were not reset, after another one was,")

    def test_a_partial_step_leaves_other_rows_alone(self, batch: EnvBase) -> None:
        """Step only the rows of ``"_step"`` that are True; or set ``supports_partial_step = False``."""
        require(self, "supports_partial_step")
        require(self, "independent_rows")
        require(self, "deterministic")
        actions, _ = self._two_actions(batch)
        others = _others(batch, actions)
        root = self._begin(batch)
        mask = torch.zeros(root.batch_size, dtype=torch.bool, device=batch.device or "cpu")
        mask[1] = True
        td = batch.step(root.update(actions).set("_step", mask))
        waited = batch.step(batch.step_mdp(td).update(actions).set("_step", ~mask))["next"]
        once = batch.step(self._begin(batch).update(actions))["next"]
        assert_equal_data(waited[others], once[others], "the first step of rows that waited while another one stepped")

    def test_a_reset_can_begin_at_a_given_state(self, env: EnvBase) -> None:
        """Take the state from the data where ``_reset`` is given ``set_state=True``, and nowhere else."""
        require(self, "supports_set_state")
        self._seed(env, 0)
        first = env.reset()
        later = env.step_mdp(env.step(env.rand_action(first.copy()))).exclude(*env.action_keys)
        if _any_done(env, later):
            later = first
        keys = list(dict.fromkeys([*env.state_keys, *env.observation_keys]))
        begun = env.reset(later.clone(), set_state=True)
        assert_equal_data(begun.select(*keys), later.select(*keys), "a reset with set_state=True")
        self._seed(env, 0)
        anew = env.reset(later.clone(), set_state=False)
        assert_equal_data(anew.select(*keys), first.select(*keys), "a reset with set_state=False, on the first seed,")

    def _begin(self, batch: EnvBase) -> TensorDictBase:
        self._seed(batch, 0)
        any_size = not batch.batch_locked and not batch.batch_size
        return batch.reset(TensorDict({}, [3], device=batch.device) if any_size else None)

    def _two_actions(self, batch: EnvBase) -> list[TensorDictBase]:
        root = self._begin(batch)
        return [batch.rand_action(root.copy()).select(*batch.action_keys).clone() for _ in range(2)]

    # -- life -----------------------------------------------------------------------------------------------------

    def test_two_episodes_can_be_played(self, env: EnvBase) -> None:
        """Start anew in ``_reset`` after the end of an episode; or set ``ends = False``, or a larger ``max_steps``."""
        require(self, "ends")
        for episode in (1, 2):
            data = env.rollout(self.max_steps)
            done = data["next"].select(*env.done_keys)
            assert any(bool(value.any()) for value in done.values(True, True)), (
                f"episode {episode} has not ended after {self.max_steps} random steps"
            )

    def test_it_can_be_closed_twice(self) -> None:
        """Define ``close(self, *, raise_if_closed=False)``, call the base's first, and release everything once."""
        env = self.make_env()
        env.close()
        assert env.is_closed, "close() leaves is_closed False: call super().close(raise_if_closed=raise_if_closed)"
        env.close()
        env.close(raise_if_closed=False)

    def test_it_moves_to_cuda(self, cuda_or_skip: torch.device) -> None:
        """Make new tensors with ``device=self.device``."""
        env = self._checked().to(cuda_or_skip)
        try:
            check_env_specs(env)
            assert self._data(env).device == cuda_or_skip
        finally:
            env.close(raise_if_closed=False)

    def test_pixels_are_images(self) -> None:
        """With ``from_pixels=True`` give an entry ``pixels``, uint8 ``[*B, H, W, 3]``; or leave ``supports_pixels``."""
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
        """Let ``step_into`` and ``reset_into`` write what ``_step`` and ``_reset`` return. Array environments only."""
        require(self, "deterministic")
        if not isinstance(env, ArrayEnv) or env.row_writer is None:
            pytest.skip("there is no array path")
        arrays = self._data(env)
        slow = self.make_env()
        try:
            slow._step = slow._step  # type: ignore[method-assign]
            assert isinstance(slow, ArrayEnv)
            assert slow.row_writer is None, "assigning _step to an instance must leave the array path"
            actions = list(arrays.select(*env.action_keys).unbind(0))
            slow.set_seed(0)
            tensordicts = slow.rollout(self.steps, actions=actions, break_when_any_done=False)
        finally:
            slow.close(raise_if_closed=False)
        assert_equal_data(tensordicts, arrays, "the data of the tensordict path")

    # -- batches --------------------------------------------------------------------------------------------------

    def _alone_only(self, env: EnvBase) -> None:
        require(self, "supports_batching")
        if env.batch_size:
            pytest.skip("the environment has a batch of its own")

    def _pool(self, env: EnvBase, pools: WorkerPools) -> EnvBase:
        """The shared ParallelEnv of two environments; skips where one cannot be made."""
        self._alone_only(env)
        cls = type(self)
        if "_process_problem" not in cls.__dict__:
            cls._process_problem = _start(pools, self.factory())  # type: ignore[attr-defined]
        problem = cls._process_problem  # type: ignore[attr-defined]
        if problem:
            skip_gated(self, "test_the_factory_reaches_another_process", problem)
        pool: EnvBase = pools(self.factory())
        return pool

    def test_the_factory_reaches_another_process(self, env: EnvBase, steppe_pools: WorkerPools) -> None:
        """Make the environment from what can be pickled, and import what it needs where it is made."""
        self._alone_only(env)
        problem = _start(steppe_pools, self.factory())
        assert not problem, f"a worker process cannot make the environment: {problem}"
        found = steppe_pools(self.factory()).observation_keys
        assert found == env.observation_keys, f"a worker makes another environment: its observations are {found}"

    def test_a_serial_batch_holds_the_rollouts_of_its_environments(self, env: EnvBase) -> None:
        """Keep all state in the instance: two instances in one process must not know of each other."""
        require(self, "deterministic")
        self._alone_only(env)
        serial = self._serial(2)
        try:
            batch = self._data(serial)
        finally:
            serial.close(raise_if_closed=False)
        seed: int | None = 0
        for row in range(2):
            assert seed is not None
            following = env.set_seed(seed)
            actions = list(batch[row].select(*env.action_keys).unbind(-1))
            alone = env.rollout(self.steps, actions=actions, break_when_any_done=False)
            assert_equal_data(batch[row], alone, f"row {row} of a SerialEnv, against the environment alone,")
            seed = following

    def test_parallel_equals_serial(self, env: EnvBase, steppe_pools: WorkerPools) -> None:
        """Read nothing that another process has otherwise: globals, files, time; or set ``deterministic = False``."""
        require(self, "deterministic")
        pool = self._pool(env, steppe_pools)
        serial = self._serial(2)
        try:
            expected = self._data(serial)
        finally:
            serial.close(raise_if_closed=False)
        assert_equal_data(self._data(pool), expected, "the rollout of a ParallelEnv")

    def test_it_works_through_shared_buffers(self, env: EnvBase, steppe_pools: WorkerPools) -> None:
        """Return data that fits the specs also in a worker, whose rows lie in shared memory."""
        pool = self._pool(env, steppe_pools)
        check_env_specs(pool)
        root = pool.reset()
        first = pool.step(pool.rand_action(root))
        kept = first["next"].clone()
        pool.step(pool.rand_action(pool.step_mdp(first)))
        assert_equal_data(first["next"], kept, "what a first step returned, looked at after a second one,")


def _make(case: type[EnvConformance], kwargs: dict[str, Any]) -> EnvBase:
    return case().make_env(**kwargs)


def _start(pools: WorkerPools, factory: Callable[[], EnvBase]) -> str:
    """Why workers cannot make the environment, or nothing."""
    try:
        pools(factory).full_observation_spec  # noqa: B018, a batch starts its workers when its specs are asked for
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _problem(make: Callable[[], EnvBase]) -> str:
    env = make()
    try:
        check_env_specs(env)
    except SpecError as error:
        return str(error)
    finally:
        env.close(raise_if_closed=False)
    return ""


def _others(batch: EnvBase, data: TensorDictBase) -> list[int]:
    """Every row but row 1."""
    if data.batch_dims != 1 or data.batch_size[0] < 2:
        pytest.skip(f"a batch of {tuple(data.batch_size)} has no rows to tell apart")
    return [row for row in range(data.batch_size[0]) if row != 1]


def _ended(env: EnvBase, following: TensorDictBase) -> torch.Tensor:
    """``[B]``: rows in which some level has ended."""
    ended = torch.zeros(following.batch_size, dtype=torch.bool, device=following.device or "cpu")
    for key in env.done_keys:
        ended |= following.get(key).reshape((*following.batch_size, -1)).any(-1)
    return ended


def _any_done(env: EnvBase, following: TensorDictBase) -> bool:
    return any(bool(following.get(key).any()) for key in env.done_keys)


def _differ(one: TensorDictBase, other: TensorDictBase) -> bool:
    try:
        assert_equal_data(one, other)
    except AssertionError:
        return True
    return False


def _keys(data: TensorDictBase) -> set[Any]:
    return set(data.keys(include_nested=True, leaves_only=True))


def _names(keys: list[Any]) -> tuple[str, ...]:
    return tuple(key if isinstance(key, str) else key[-1] for key in keys)
