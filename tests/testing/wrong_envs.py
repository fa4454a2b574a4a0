"""Environments that are wrong on purpose, each with the one conformance test that should catch it."""

from __future__ import annotations

import os
import threading

import numpy as np
import torch

from steppe.envs import EnvBase
from steppe.specs import Bounded, Composite, Unbounded
from steppe_testing import ArrayCountingEnv, CountingEnv, EnvConformance, StatelessCountingEnv

MAIN = os.getpid()
LOCK = threading.Lock()


class Alone(EnvConformance):
    """A correct environment, tested without batches."""

    caught_by: str | None = None
    supports_batching = False
    wrong = CountingEnv

    def make_env(self, **kwargs):
        return self.wrong(noise=True, **kwargs)


class TestSound(Alone):
    supports_batching = True


class TestDtype(Alone):
    caught_by = "test_data_fits_the_specs"

    class wrong(CountingEnv):
        def _data(self):
            return super()._data().to(torch.float64)


class TestMissingEntry(Alone):
    caught_by = "test_data_fits_the_specs"

    class wrong(CountingEnv):
        def _data(self):
            return super()._data().exclude("noise")


class TestOutOfBounds(Alone):
    caught_by = "test_data_fits_the_specs"

    class wrong(CountingEnv):
        def _data(self):
            data = super()._data()
            return data.set("noise", data["noise"] + 2)


class TestUnlockedSpecs(Alone):
    caught_by = "test_specs_are_complete_and_locked"

    def make_env(self, **kwargs):
        return CountingEnv(noise=True, spec_locked=False)


class TestBatchLocked(Alone):
    caught_by = "test_specs_are_complete_and_locked"
    batch_locked = False
    deterministic = False


class TestDone(Alone):
    caught_by = "test_done_is_terminated_or_truncated"

    class wrong(CountingEnv):
        def _step(self, tensordict):
            data = super()._step(tensordict)
            return data.set("done", data["terminated"]).set("truncated", ~data["terminated"])


class TestChain(Alone):
    caught_by = "test_a_rollout_is_a_chain"

    class wrong(CountingEnv):
        def step_and_maybe_reset(self, tensordict):
            tensordict, root = super().step_and_maybe_reset(tensordict)
            return tensordict, root.set("observation", root["observation"] + 1)


class TestSample(Alone):
    caught_by = "test_a_rollout_has_the_entries_of_the_sample"

    class wrong(CountingEnv):
        def fake_tensordict(self):
            return super().fake_tensordict().exclude("noise")


class TestStepMdp(Alone):
    caught_by = "test_step_mdp_moves_next_to_the_root"

    class wrong(CountingEnv):
        def step_mdp(self, tensordict):
            return super().step_mdp(tensordict).exclude("action")


class TestAliasing(Alone):
    caught_by = "test_data_fits_the_specs"

    class wrong(CountingEnv):
        def _data(self):
            data = super()._data()
            if not hasattr(self, "buffer"):
                self.buffer = data["observation"]
            return data.set("observation", self.buffer.copy_(data["observation"]))


class TestAliasingLater(Alone):
    """Writes into the same five buffers in turn."""

    caught_by = "test_later_steps_leave_earlier_data_alone"

    class wrong(CountingEnv):
        def _data(self):
            data = super()._data()
            if not hasattr(self, "ring"):
                self.ring = [torch.zeros(1) for _ in range(5)]
            self.ring.append(self.ring.pop(0))
            return data.set("observation", self.ring[-1].copy_(data["observation"]))


class TestUnseeded(Alone):
    caught_by = "test_one_seed_gives_one_data_set"

    class wrong(CountingEnv):
        def _data(self):
            return super()._data().set("noise", torch.rand(1))


class Drawing(ArrayCountingEnv):
    """Draws its noise from a generator, which each reset may seed; its episodes are longer than a rollout."""

    def __init__(self, **kwargs):
        super().__init__(20, **kwargs)

    def reset_into(self, out, seed, env_info):
        self.seed_draws(seed)
        super().reset_into(out, None, env_info)

    def seed_draws(self, seed):
        if seed is not None:
            self._draws = np.random.default_rng(seed)


class TestDrawing(Alone):
    wrong = Drawing


class TestSeededAnew(Alone):
    caught_by = "test_later_episodes_begin_otherwise"

    class wrong(Drawing):
        def seed_draws(self, seed):
            self._draws = np.random.default_rng(seed or 0)


class TestSeededOnce(Alone):
    caught_by = "test_one_seed_gives_one_data_set"

    class wrong(Drawing):
        def seed_draws(self, seed):
            self._draws = np.random.default_rng(seed)


class TestOneLevel(Alone):
    """Plays one level for each seed, which is meant."""

    episodes_differ = False

    class wrong(Drawing):
        level = 0

        def seed_draws(self, seed):
            self.level = self.level if seed is None else seed
            self._draws = np.random.default_rng(self.level)


class TestNoSeed(Alone):
    caught_by = "test_one_seed_gives_one_data_set"

    class wrong(CountingEnv):
        _set_seed = EnvBase._set_seed


class TestUnwritten(Alone):
    caught_by = "test_data_fits_the_specs"

    class wrong(ArrayCountingEnv):
        def step_into(self, action, out):
            return super().step_into(action, {**out, "reward": out["reward"].copy()})


class TestLossyCast(Alone):
    caught_by = "test_data_fits_the_specs"

    class wrong(ArrayCountingEnv):
        def __init__(self, **kwargs):
            super().__init__(dtype=torch.uint8, **kwargs)

        def step_into(self, action, out):
            flags = super().step_into(action, out)
            out["observation"][...] = np.array([self.count * 0.5])
            return flags


class TestSeedIgnored(Alone):
    caught_by = "test_two_seeds_give_two_data_sets"

    class wrong(CountingEnv):
        def _set_seed(self, seed):
            super()._set_seed(0)


class Rows(Alone):
    seed_matters = False

    def make_env(self, **kwargs):
        return self.wrong(batch_size=(3,))


class TestRowsSound(Rows):
    pass


class TestPartialReset(Rows):
    caught_by = "test_a_partial_reset_leaves_other_rows_alone"

    class wrong(CountingEnv):
        def _reset(self, tensordict=None, **kwargs):
            return super()._reset()


class TestPartialStep(Rows):
    caught_by = "test_a_partial_step_leaves_other_rows_alone"

    class wrong(CountingEnv):
        def _step(self, tensordict):
            return super()._step(tensordict.exclude("_step"))


class TestState(Alone):
    caught_by = "test_a_reset_can_begin_at_a_given_state"
    supports_set_state = True

    class wrong(CountingEnv):
        _supports_set_state = True

        def _reset(self, tensordict=None, set_state=False):
            return super()._reset(tensordict)


class TestUnsaidState(Alone):
    caught_by = "test_specs_are_complete_and_locked"
    batch_locked = False
    seed_matters = False

    def make_env(self, **kwargs):
        return StatelessCountingEnv()


class TestSecondEpisode(Alone):
    caught_by = "test_two_episodes_can_be_played"
    max_steps = 20
    steps = 4

    class wrong(CountingEnv):
        def _reset(self, tensordict=None, **kwargs):
            if getattr(self, "ended", False):
                self.max_steps = 10**6
            return super()._reset(tensordict)

        def _step(self, tensordict):
            data = super()._step(tensordict)
            self.ended = bool(data["terminated"].any())
            return data


class TestClose(Alone):
    caught_by = "test_it_can_be_closed_twice"

    class wrong(CountingEnv):
        def close(self, *, raise_if_closed=True):
            super().close(raise_if_closed=True)


class TestPixels(Alone):
    caught_by = "test_pixels_are_images"
    supports_pixels = True

    class wrong(CountingEnv):
        def __init__(self, *, from_pixels=False, **kwargs):
            super().__init__(**kwargs)
            if from_pixels:
                self.observation_spec = Composite(pixels=Unbounded((4, 4, 3)))


class TestPaths(Alone):
    caught_by = "test_both_code_paths_give_equal_data"

    class wrong(ArrayCountingEnv):
        def step_into(self, action, out):
            return super().step_into(action, out)

        def _step(self, tensordict):
            data = super()._step(tensordict)
            return data.set("reward", data["reward"] + 1)


class TestPickle(Alone):
    caught_by = "test_the_factory_reaches_another_process"
    supports_batching = True

    def make_env(self, **kwargs):
        with LOCK:
            return CountingEnv(noise=True)


class TestSharedState(Alone):
    caught_by = "test_a_serial_batch_holds_the_rollouts_of_its_environments"
    supports_batching = True

    class wrong(CountingEnv):
        last = None

        def _reset(self, tensordict=None, **kwargs):
            type(self).last = id(self)
            return super()._reset(tensordict)

        def _step(self, tensordict):
            data = super()._step(tensordict)
            data["reward"] = data["reward"] + (type(self).last != id(self))
            type(self).last = id(self)
            return data


class TestAnotherProcess(Alone):
    caught_by = "test_parallel_equals_serial"
    supports_batching = True

    class wrong(CountingEnv):
        def _step(self, tensordict):
            data = super()._step(tensordict)
            return data.set("reward", data["reward"] + (os.getpid() != MAIN))


class TestBuffers(Alone):
    caught_by = "test_it_works_through_shared_buffers"
    supports_batching = True
    deterministic = False

    class wrong(CountingEnv):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.observation_spec = Composite(
                observation=Bounded(0.0, 5.0, shape=(1,)), noise=self.observation_spec["noise"]
            )

        def _data(self):
            data = super()._data()
            return data if os.getpid() == MAIN else data.set("observation", data["observation"] - 9)
