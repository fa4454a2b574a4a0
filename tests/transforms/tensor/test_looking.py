"""FiniteTensorDictCheck, Timer and Hash."""

from __future__ import annotations

import hashlib

import pytest
import torch
from tensordict import NonTensorData, TensorDict

from steppe import SerialEnv, SyncDataCollector, TransformedEnv, Unbounded, check_env_specs
from steppe.envs import EnvBase
from steppe.errors import IgnoredArgumentWarning, SpecError
from steppe.specs import Bounded, Composite, NonTensor
from steppe.transforms import CallableTransform, Compose
from steppe_tensor import FiniteTensorDictCheck, Hash, PinMemoryTransform, Timer
from steppe_testing import ArrayDataEnv, DataEnv

VECTOR = {"observation": Unbounded((3,))}


class Breaks(ArrayDataEnv):
    """The third observation of an episode is not finite."""

    def step_into(self, action, out):
        ended = super().step_into(action, out)
        if self.count == 3:
            out["observation"][1] = torch.inf
        return ended


class BreaksOnTensorDicts(DataEnv):
    def _step(self, tensordict):
        data = super()._step(tensordict)
        if self.count == 3:
            data["observation"][1] = torch.inf
        return data


@pytest.mark.parametrize("base", [Breaks, BreaksOnTensorDicts])
def test_the_step_with_a_value_that_is_not_finite_raises(base):
    env = TransformedEnv(base(VECTOR), FiniteTensorDictCheck())

    assert env.rollout(2).shape == (2,)
    with pytest.raises(SpecError, match="'observation' has 1 of 3 values that are NaN or infinite"):
        env.rollout(3)


def test_the_row_of_a_batch_is_named():
    env = TransformedEnv(SerialEnv(2, [lambda: ArrayDataEnv(VECTOR), lambda: Breaks(VECTOR)]), FiniteTensorDictCheck())

    with pytest.raises(SpecError, match=r"1 of 6 values that are NaN or infinite, in the rows \[1\]"):
        env.rollout(3)
    env.close()


def test_stored_data_can_be_checked():
    check, data = FiniteTensorDictCheck(), TensorDict({"a": {"b": torch.zeros(2, 3)}, "n": torch.ones(2).long()}, [2])

    assert check(data) is data
    data["a", "b"][1, 2] = torch.nan
    with pytest.raises(SpecError, match=r"\('a', 'b'\) has 1 of 6 values.*in the rows \[1\]"):
        check(data)


# -- time -------------------------------------------------------------------------------------------------------------


class Told:
    """A clock that the test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Slow(DataEnv):
    """A reset takes 7 seconds, a step 2."""

    def __init__(self, clock):
        super().__init__(VECTOR, max_steps=2)
        self.clock = clock

    def _reset(self, tensordict=None, **kwargs):
        self.clock.now += 7.0
        return super()._reset(tensordict)

    def _step(self, tensordict):
        self.clock.now += 2.0
        return super()._step(tensordict)


class SlowOnRows(ArrayDataEnv):
    """The same on rows of arrays."""

    def __init__(self, clock):
        super().__init__(VECTOR, max_steps=2)
        self.clock = clock

    def reset_into(self, out, seed, env_info):
        self.clock.now += 7.0
        super().reset_into(out, seed, env_info)

    def step_into(self, action, out):
        self.clock.now += 2.0
        return super().step_into(action, out)


def timed(base=Slow, **arguments):
    clock, timer = Told(), Timer(**arguments)
    timer.clock = clock
    return clock, TransformedEnv(base(clock), timer)


@pytest.mark.parametrize("base", [Slow, SlowOnRows])
def test_steps_policies_and_resets_are_timed(base):
    clock, env = timed(base)

    def policy(td):
        clock.now += 0.5
        return env.rand_action(td)

    data = env.rollout(4, policy, break_when_any_done=False)

    assert data["time_reset"].tolist() == [7, 0, 7, 0]
    assert data["time_step"].tolist() == [0, 2, 0, 2]
    assert data["time_policy"].tolist() == [0, 0.5, 0, 0.5]
    assert data["next", "time_step"].tolist() == [2] * 4
    assert data["next", "time_policy"].tolist() == [0.5] * 4
    assert data["next", "time_reset"].tolist() == [0] * 4


def test_the_keys_can_be_named():
    _, env = timed(time_key="seconds")
    assert env.transform.out_keys == ["seconds_step", "seconds_policy", "seconds_reset"]
    check_env_specs(env)

    _, env = timed(out_keys=["a", ("b", "c"), "d"])
    check_env_specs(env)
    assert env.rollout(2)["next", "a"].tolist() == [2, 2]
    with pytest.raises(SpecError, match=r"three keys, .*found \['a'\]"):
        Timer(out_keys=["a"])


def test_the_rows_of_a_batch_have_the_time_of_their_call():
    env = TransformedEnv(SerialEnv(2, lambda: ArrayDataEnv(VECTOR)), Timer())
    check_env_specs(env)

    data = env.rollout(3)

    assert data["time_step"].shape == (2, 3)
    assert (data["next", "time_step"] > 0).all()
    assert torch.equal(data["next", "time_step"][0], data["next", "time_step"][1])
    env.close()


def test_the_timer_counts_only_what_runs_before_it_on_rows():
    clock = Told()

    def late(seconds):
        def wait(td):
            clock.now += seconds
            return td

        return CallableTransform(wait)

    timer = Timer()
    timer.clock = clock
    env = TransformedEnv(SlowOnRows(clock), Compose(late(1.0), timer, late(4.0)))

    assert env.no_row_writer_reason is None
    assert env.rollout(1)["next", "time_step"].tolist() == [3.0]
    assert env.rollout(1)["time_reset"].tolist() == [8.0]


@pytest.mark.parametrize("inside", [True, False])
def test_a_batch_on_rows_times_its_resets_and_steps(inside):
    clock = Told()

    def made():
        timer = Timer()
        timer.clock = clock
        return timer

    if inside:
        env = SerialEnv(2, lambda: TransformedEnv(SlowOnRows(clock), made()))
    else:
        env = TransformedEnv(SerialEnv(2, lambda: SlowOnRows(clock)), made())
    data = env.rollout(3, break_when_any_done=False)

    assert data["next", "time_step"][:, 0].tolist() == [4.0, 4.0]  # two environments, one call
    assert data["time_reset"][:, 0].tolist() == [14.0, 14.0]
    env.close()


def test_a_collector_keeps_the_times_of_an_environment_on_rows():
    _, env = timed(SlowOnRows)
    collector = SyncDataCollector(env, None, frames_per_batch=5, total_frames=10)
    batches = [data.clone() for data in collector]
    collector.shutdown()

    assert env.no_row_writer_reason is None
    for data in batches:
        assert data["next", "time_step"].tolist() == [2.0] * 5
    assert torch.cat(batches)["time_reset"].tolist() == [7.0, 0.0] * 5


# -- pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_pin_memory_without_a_gpu_warns_once_and_has_no_effect():
    env = TransformedEnv(DataEnv(VECTOR), PinMemoryTransform())

    with pytest.warns(IgnoredArgumentWarning, match="no effect: there is no GPU") as said:
        data = env.rollout(3)

    assert len(said) == 1
    assert not data["observation"].is_pinned()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_with_a_gpu_what_a_step_returns_is_page_locked():
    env = TransformedEnv(ArrayDataEnv(VECTOR), PinMemoryTransform())
    td = env.reset()

    assert td["observation"].is_pinned()
    assert env.step(env.rand_action(td))["next", "observation"].is_pinned()
    assert PinMemoryTransform()(TensorDict({"a": torch.zeros(2)}))["a"].is_pinned()
    assert "pins memory" in env.no_row_writer_reason


# -- hashes -----------------------------------------------------------------------------------------------------------


def sha(content: bytes) -> list[int]:
    return list(hashlib.sha256(content).digest())


def test_text_is_hashed_as_sha256_of_its_utf8():
    found = Hash(["text"], ["hash"])(TensorDict({"text": NonTensorData("Käfer")}))["hash"]

    assert found.tolist() == sha("Käfer".encode())
    assert Hash.reproducible_hash("b", seed="a").tolist() == sha(b"ab")
    assert Hash.reproducible_hash(None).tolist() == sha(b"")


def test_all_of_a_tensor_counts_and_each_row_for_itself():
    value = torch.randn(2, 3, 2000)

    found = Hash(["x"], ["hash"])(TensorDict({"x": value}, [2, 3]))["hash"]

    assert found.shape == (2, 3, 32)
    assert found[1, 2].tolist() == sha(value[1, 2].numpy().tobytes())
    other = value.clone()
    other[0, 0, 1000] += 1
    assert not torch.equal(Hash(["x"], ["hash"])(TensorDict({"x": other}, [2, 3]))["hash"][0, 0], found[0, 0])


@pytest.mark.parametrize("base", [ArrayDataEnv, DataEnv])
def test_observations_are_hashed_at_resets_and_steps(base):
    env = TransformedEnv(base(VECTOR), Hash(["observation"], ["hash"], seed="salt"))
    check_env_specs(env)

    data = env.rollout(4)

    for place in (data, data["next"]):
        expected = [sha(b"salt" + value.numpy().tobytes()) for value in place["observation"]]
        assert place["hash"].tolist() == expected
    assert env.observation_spec["hash"] == Bounded(0, 255, (32,), dtype=torch.uint8)


class Talks(EnvBase):
    """An environment with text observations and actions."""

    words = ("north", "south")

    def __init__(self):
        super().__init__()
        self.observation_spec = Composite({"place": NonTensor(example_data="north")})
        self.action_spec = Composite({"action": NonTensor(example_data="north")})
        self.reward_spec = Unbounded((1,))
        self.told = []

    def _reset(self, tensordict):
        return TensorDict({"place": NonTensorData("north")})

    def _step(self, tensordict):
        self.told.append(tensordict["action"])
        rest = {"reward": torch.zeros(1), "done": torch.zeros(1, dtype=torch.bool)}
        return TensorDict({"place": NonTensorData(self.told[-1]), **rest})

    def _set_seed(self, seed):
        pass


def test_a_hash_is_mapped_back_for_the_environment():
    """With a repertoire, the environment gets the value of which an action is a hash."""
    words = {tuple(Hash.reproducible_hash(word).tolist()): word for word in Talks.words}
    env = TransformedEnv(Talks(), Hash(["place"], ["place_hash"], ["action"], ["action_hash"], repertoire=words))
    td = env.reset()
    td["action_hash"] = Hash.reproducible_hash("south")

    following = env.step(td)["next"]

    assert env.base_env.told == ["south"]
    assert following["place_hash"].tolist() == sha(b"south")
    assert env.full_action_spec["action_hash"].shape == (32,)
    td["action_hash"] = Hash.reproducible_hash("west")
    with pytest.raises(SpecError, match="not in the repertoire of 2 values"):
        env.step(td)


def test_a_hash_with_an_inverse_remembers_its_inputs():
    hashes = Hash(["text"], ["hash"], ["text"], ["hash"])
    data = hashes(TensorDict({"text": NonTensorData("word")}))

    assert hashes.inv(data.exclude("text"))["text"] == "word"
    copy = Hash(["text"], ["hash"], ["text"], ["hash"])
    copy.load_state_dict(hashes.state_dict())
    assert copy.get_input_from_hash(data["hash"]) == "word"
    with pytest.raises(SpecError, match="without a repertoire"):
        Hash(["text"], ["hash"]).get_input_from_hash(data["hash"])


def test_another_function_decides_shape_and_dtype():
    def length(value, seed):
        return torch.tensor([len(value) + seed])

    transform = Hash(["text"], ["n"], hash_fn=length, seed=10)

    assert transform(TensorDict({"text": NonTensorData("four")}))["n"].tolist() == [14]
    with pytest.raises(SpecError, match="hash_fn must return a tensor, found int"):
        Hash(["text"], ["n"], hash_fn=len)(TensorDict({"text": NonTensorData("four")}))


def test_keys_that_do_not_fit_are_refused():
    with pytest.raises(SpecError, match="in_keys and out_keys must have the same length"):
        Hash(["a", "b"], ["c"])
    with pytest.raises(SpecError, match=r"has no observation 'text'. It has \['observation'\]"):
        TransformedEnv(DataEnv(VECTOR), Hash(["text"], ["hash"])).reset()
    with pytest.raises(KeyError, match="no entry 'text'"):
        Hash(["text"], ["hash"])(TensorDict({"a": torch.zeros(1)}))
