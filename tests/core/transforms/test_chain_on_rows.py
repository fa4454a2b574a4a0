"""Transforms on rows of arrays: the same data as on TensorDicts, and a way back to these."""

from __future__ import annotations

import itertools
import pickle

import pytest
import torch

from steppe.batched import ParallelEnv, SerialEnv
from steppe.errors import SpecError
from steppe.specs import Composite, Unbounded
from steppe.transforms import (
    CallableTransform,
    Compose,
    ConditionalSkip,
    DoubleToFloat,
    DTypeCastTransform,
    ExcludeTransform,
    InitTracker,
    ObservationTransform,
    RenameTransform,
    RewardSum,
    SelectTransform,
    StepCounter,
    Transform,
    TransformedEnv,
    UnaryTransform,
)
from steppe_testing import ArrayCountingEnv, CountingEnv, assert_equal_data


class OnTensorDicts(TransformedEnv):
    """The same environment, off the array path."""

    row_writer = None
    no_row_writer_reason = "this test asks for it"

    @classmethod
    def join_rows(cls, envs):
        return None


PARTS = {
    "count": lambda: StepCounter(),
    "limit": lambda: StepCounter(4),
    "sum": lambda: RewardSum(),
    "mark": lambda: InitTracker(),
    "cast": lambda: DoubleToFloat(),
    "exclude": lambda: ExcludeTransform("total"),
    "select": lambda: SelectTransform("observation", "is_init"),
}
CHAINS = [
    *[(name,) for name in PARTS],
    *itertools.permutations(("limit", "sum", "mark", "cast"), 4),
    ("cast", "exclude", "limit"),
    ("mark", "sum", "limit", "select"),
    ("sum", "exclude", "mark"),
]


def base(**kwargs):
    return ArrayCountingEnv(6, info=True, dtype=torch.float64, action="continuous", noise=True, **kwargs)


def chain(names):
    return Compose(*(PARTS[name]() for name in names))


def play(env, actions, *, stepwise):
    env.set_seed(3)
    if not stepwise:
        return env.rollout(len(actions), actions=actions, break_when_any_done=False)
    td, frames = env.reset(), []
    for action in actions:
        frame, td = env.step_and_maybe_reset(td.set("action", action))
        frames.append(frame)
    return torch.stack(frames, len(env.batch_size))


@pytest.mark.parametrize("names", CHAINS, ids="-".join)
@pytest.mark.parametrize("stepwise", [False, True], ids=["rollout", "steps"])
def test_both_paths_give_equal_data(names, stepwise):
    fast, slow = TransformedEnv(base(), chain(names)), OnTensorDicts(base(), chain(names))
    assert fast.row_writer is not None
    actions = list(fast.full_action_spec.rand((15,))["action"])

    first, second = play(fast, actions, stepwise=stepwise), play(slow, actions, stepwise=stepwise)

    assert_equal_data(first, second)
    assert first["next", "done"].sum() >= 2
    fast.check_env_specs()


@pytest.mark.parametrize("names", [("limit", "sum", "mark", "cast"), ("sum", "exclude", "mark")], ids="-".join)
def test_a_batch_of_them_is_the_batch_transformed(names):
    inside = SerialEnv(3, lambda: TransformedEnv(base(), chain(names)))
    slow = SerialEnv(3, lambda: OnTensorDicts(base(), chain(names)))
    outside = TransformedEnv(SerialEnv(3, base), chain(names))
    actions = list(inside.full_action_spec.rand((15,))["action"])

    expected = play(slow, actions, stepwise=False)
    for env in (inside, outside):
        data = play(env, actions, stepwise=False)
        assert_equal_data(data, expected)


@pytest.mark.parametrize(
    "parts",
    [
        lambda: (RewardSum(), DoubleToFloat()),
        lambda: (UnaryTransform(["total"], ["twice"], fn=lambda x: 2 * x), DoubleToFloat()),
        lambda: (DoubleToFloat(), DTypeCastTransform(torch.float32, torch.float64)),
        lambda: (
            DoubleToFloat(),
            RewardSum(),
            DTypeCastTransform(torch.float32, torch.float64, ["observation"], in_keys_inv=[]),
        ),
    ],
    ids=["sum, cast", "read, cast", "cast, cast", "cast, sum, cast"],
)
def test_a_value_may_be_read_before_it_is_cast(parts):
    assert_equal_ways(*parts())


class Flat(ObservationTransform):
    """A transform whose result has another shape."""

    def _apply_transform(self, value):
        return value.expand((*value.shape[:-1], 6)).reshape((*value.shape[:-1], 2, 3)) + 1

    def transform_observation_spec(self, observation_spec):
        leaf = observation_spec["observation"]
        observation_spec["observation"] = Unbounded((*leaf.shape[:-1], 2, 3), dtype=leaf.dtype)
        return observation_spec


class Difference(Transform):
    """Reads the root and the action."""

    def __init__(self):
        super().__init__(in_keys=["observation"], out_keys=["change"])

    def _step(self, tensordict, next_tensordict):
        change = next_tensordict["observation"] - tensordict["observation"] + tensordict["action"].sum(-1, keepdim=True)
        return next_tensordict.set("change", change)

    def _reset(self, tensordict, tensordict_reset):
        return tensordict_reset.set("change", torch.zeros_like(tensordict_reset["observation"]))

    def transform_observation_spec(self, observation_spec):
        observation_spec["change"] = observation_spec["observation"].clone()
        return observation_spec


class Ends(Transform):
    """A transform that ends an episode by its observation."""

    writes_done = True

    def _call(self, next_tensordict):
        ends = next_tensordict["observation"].to(torch.int64) % 4 == 3
        for name in ("done", "terminated"):
            next_tensordict[name] = next_tensordict[name] | ends
        return next_tensordict


def assert_equal_ways(*parts):
    fast, slow = (kind(base(), Compose(*(part.clone() for part in parts))) for kind in (TransformedEnv, OnTensorDicts))
    assert fast.no_row_writer_reason is None
    actions = list(fast.full_action_spec.rand((15,))["action"])
    first, second = (play(env, actions, stepwise=False) for env in (fast, slow))
    assert_equal_data(first, second)
    inside = SerialEnv(2, lambda: TransformedEnv(base(), Compose(*(part.clone() for part in parts))))
    slow = SerialEnv(2, lambda: OnTensorDicts(base(), Compose(*(part.clone() for part in parts))))
    actions = list(inside.full_action_spec.rand((15,))["action"])
    assert_equal_data(*(play(env, actions, stepwise=True) for env in (inside, slow)))


@pytest.mark.parametrize(
    "parts",
    [
        lambda: (Flat(in_keys=["observation"]),),
        lambda: (StepCounter(5), Flat(in_keys=["observation"]), DoubleToFloat()),
        lambda: (Difference(), InitTracker()),
        lambda: (Ends(), StepCounter()),
        lambda: (StepCounter(3), Ends(), RewardSum()),
        lambda: (UnaryTransform(["observation"], ["double"], fn=lambda x: 2 * x), ExcludeTransform("observation")),
        lambda: (StepCounter(2, update_done=False),),
        lambda: (RenameTransform(["total"], ["sum"]), DoubleToFloat()),
        lambda: (CallableTransform(lambda td: td.set("negative", -td["observation"])),),
    ],
    ids=["shape", "count, shape, cast", "root", "ends", "count, ends, sum", "unary", "truncates", "rename", "function"],
)
def test_a_transform_on_tensordicts_runs_on_rows(parts):
    assert_equal_ways(*parts())


@pytest.mark.parametrize("batch", [SerialEnv, ParallelEnv])
@pytest.mark.parametrize(
    "names", [("count",), ("limit", "sum", "mark", "cast"), ("sum", "exclude", "limit")], ids="-".join
)
def test_transforms_behind_a_batch_run_on_its_storage(names, batch):
    with TransformedEnv(batch(3, base), chain(names)) as fast, OnTensorDicts(SerialEnv(3, base), chain(names)) as slow:
        data = []
        for env in (fast, slow):
            env.set_seed(3)
            td, frames = env.reset(), []
            for t in range(14):
                if t == 7:
                    td["step_count" if "step_count" in td.keys() else "episode_reward"] += 2  # what a caller edits
                frame, td = env.step_and_maybe_reset(td.set("action", torch.full_like(env.action_spec.zero(), t / 14)))
                frames.append(frame.clone())
            data.append(torch.stack(frames, 1))
        assert fast.row_steps is not None
        assert slow.row_steps is None
    assert_equal_data(*data)
    assert data[0]["next", "done"].sum() > 3


class NoKernel(ObservationTransform):
    """Has no kernel for blocks of rows."""

    def _apply_transform(self, value):
        return value + 1


def test_a_chain_without_rows_gives_the_reason():
    def problem(env, *parts):
        return TransformedEnv(env, Compose(*parts)).no_row_writer_reason

    assert "CountingEnv steps on TensorDicts" in problem(CountingEnv(3), StepCounter())
    assert "array_path=False" in problem(base(array_path=False), StepCounter())
    assert "NoKernel is not written for rows of a batch" in problem(SerialEnv(2, base), NoKernel())
    assert problem(SerialEnv(2, base), StepCounter()) is None
    assert "ConditionalSkip may exclude rows" in problem(base(), ConditionalSkip(lambda td: False))
    assert problem(base(), StepCounter()) is None


def test_changing_the_chain_changes_the_path():
    env = TransformedEnv(base(), Compose(StepCounter()))
    env.rollout(2)
    env.append_transform(lambda td: td.set("observation", -td["observation"]))
    assert env.rollout(3)["observation"].squeeze(-1).tolist() == [0, -1, -2]
    env.transform.pop()
    assert env.no_row_writer_reason is None
    assert env.rollout(3)["observation"].squeeze(-1).tolist() == [0, 1, 2]


def test_a_base_that_leaves_the_array_path_is_followed():
    inner = base()
    env = TransformedEnv(inner, StepCounter())
    env.rollout(2)
    step = inner._step
    inner._step = lambda td: step(td).set("reward", torch.full((1,), 7.0))

    assert env.rollout(2)["next", "reward"].squeeze(-1).tolist() == [7, 7]
    assert env.row_writer is None


class MayLeave(ArrayCountingEnv):
    """Leaves the array path if told to, and says so."""

    leaves = False

    def leave(self, leaves):
        self.leaves = leaves
        self.row_writer_changed()

    @property
    def no_row_writer_reason(self):
        return "it says so" if self.leaves else super().no_row_writer_reason


def test_a_base_that_changes_between_two_steps_is_followed():
    inner = MayLeave(9)
    env = TransformedEnv(inner, Compose(RewardSum(), StepCounter()))
    _, td = env.step_and_maybe_reset(env.rand_action(env.reset()))
    step, rewards, ways = inner._step, [], []

    def go_on():
        nonlocal td
        frame, td = env.step_and_maybe_reset(env.rand_action(td))
        rewards.append(frame["next", "reward"].item() > 90)
        ways.append(env.row_steps is not None)

    go_on()
    inner._step = lambda td: step(td).set("reward", torch.full((1,), 99.0))
    go_on()
    del inner._step
    go_on()
    inner.leave(True)
    go_on()
    inner.leave(False)
    go_on()
    inner.reward_spec = Unbounded((1,), dtype=torch.float64)
    go_on()

    assert rewards == [False, True, False, False, False, False]
    assert ways == [True, False, True, False, True, True]
    assert td["step_count"].item() == 7
    assert td["episode_reward"].dtype is torch.float64


def test_an_overridden_step_is_called():
    class Louder(TransformedEnv):
        def _step(self, tensordict):
            following = super()._step(tensordict)
            return following.set("reward", following["reward"] + 100)

    env = Louder(base(), StepCounter())

    assert env.row_writer is None
    assert (env.rollout(3)["next", "reward"] > 90).all()


def test_a_plan_follows_the_data_from_wherever_it_comes():
    env = TransformedEnv(base(), Compose(RewardSum(), StepCounter()))
    first, second = env.reset(), env.reset()
    for _ in range(3):
        first = env.step_mdp(env.rand_step(first))
    second = env.step_mdp(env.rand_step(second))

    assert (first["step_count"].item(), second["step_count"].item()) == (3, 1)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("batch", [lambda make: make(), lambda make: SerialEnv(2, make)], ids=["alone", "serial"])
def test_an_episode_that_an_outer_transform_ends_ends_once(batch, depth):
    """Nested environments are reset once when the outermost ends an episode."""

    def make():
        env = TransformedEnv(ArrayCountingEnv(max_steps=100), RewardSum())
        for level in range(1, depth):
            env = TransformedEnv(env, StepCounter(step_count_key=f"count_{level}"), auto_unwrap=False)
        return TransformedEnv(env, StepCounter(max_steps=3), auto_unwrap=False)

    env = batch(make)
    expected = [step % 3 == 2 for step in range(10)]
    done = env.rollout(10, break_when_any_done=False)["next", "done"].reshape(-1, 10)
    assert all(row == expected for row in done.tolist())
    root, found = env.reset(), []
    for _ in range(10):
        td, root = env.step_and_maybe_reset(env.rand_action(root))
        found.append(td["next", "done"].flatten().tolist())
    assert [row[0] for row in found] == expected
    assert all(len(set(row)) == 1 for row in found)
    env.close()


def test_a_pickle_is_on_the_array_path_too():
    env = pickle.loads(pickle.dumps(TransformedEnv(base(), chain(("limit", "sum", "mark", "cast")))))

    assert env.row_writer is not None
    assert env.rollout(9)["step_count"].squeeze(-1).tolist() == [0, 1, 2, 3]


def test_gradients_of_a_policy_pass():
    weight = torch.zeros(2, requires_grad=True)
    env = TransformedEnv(base(), chain(("count", "sum", "cast")))

    data = env.rollout(3, lambda td: td.set("score", weight.sum() + 1).set("action", weight.detach()))
    data["score"].sum().backward()

    assert weight.grad.tolist() == [3, 3]


# -- environments whose transforms have settings of their own --------------------------------------------------------


class Times(Transform):
    """Multiplies observations, and actions on the way in."""

    def __init__(self, factor):
        super().__init__(["observation"], in_keys_inv=["action"])
        self.factor = factor

    def _apply_transform(self, value):
        return value * self.factor

    def _inv_apply_transform(self, value):
        return value * self.factor / 10


def test_each_row_uses_the_settings_of_its_own_transforms():
    def make(factor):
        return lambda: TransformedEnv(ArrayCountingEnv(5, action="continuous"), Times(factor))

    env = SerialEnv(3, [make(1), make(2), make(3)])
    data = env.rollout(3, actions=[torch.ones(3, 2)] * 3)

    for row, factor in enumerate((1, 2, 3)):
        assert data["next", "observation"][row].squeeze(-1).tolist() == [factor, 2 * factor, 3 * factor]
        assert torch.allclose(data["next", "reward"][row], torch.tensor(factor / 5))


@pytest.mark.parametrize("limits", [(None, 3), (3, None), (2, 3)])
def test_each_row_ends_at_its_own_limit(limits):
    env = SerialEnv(2, [lambda n=n: TransformedEnv(ArrayCountingEnv(9), StepCounter(n)) for n in limits])
    data = env.rollout(6, break_when_any_done=False)

    for row, limit in enumerate(limits):
        alone = TransformedEnv(ArrayCountingEnv(9), StepCounter(limit)).rollout(6, break_when_any_done=False)
        for key in ("step_count", "truncated", "done"):
            assert torch.equal(data["next", key][row], alone["next", key]), key


class LastTwo(Transform):
    """Stacks the last two observations, of which a later transform may make something else."""

    def memory_spec(self, specs):
        leaf = specs.observation["observation"]
        return Composite({"__before": leaf.clone()}, shape=specs.batch_size)

    def _step(self, tensordict, next_tensordict):
        now = next_tensordict["observation"]
        next_tensordict["observation"] = torch.cat([tensordict["__before"], now], -1)
        return next_tensordict.set("__before", now)

    def _reset(self, tensordict, tensordict_reset):
        now = tensordict_reset["observation"]
        tensordict_reset["observation"] = torch.cat([now, now], -1)
        return tensordict_reset.set("__before", now)

    def transform_observation_spec(self, observation_spec):
        leaf = observation_spec["observation"]
        observation_spec["observation"] = Unbounded((*leaf.shape[:-1], 2), dtype=leaf.dtype)
        return observation_spec


@pytest.mark.parametrize("kind", [TransformedEnv, OnTensorDicts])
def test_hidden_state_of_a_transform_follows_its_row(kind):
    """Private state of a transform follows its row, and is not in the data."""

    def make():
        negative = UnaryTransform(["observation"], fn=lambda x: -x)
        return kind(base(), Compose(LastTwo(in_keys=["observation"]), negative))

    env = make()
    env.check_env_specs()
    data = env.rollout(7, break_when_any_done=False)
    assert data["observation"].tolist() == [[-0.0, -0.0], [0, -1], [-1, -2], [-2, -3], [-3, -4], [-4, -5], [0, 0]]
    assert "__before" not in data.keys()
    assert "__before" not in data["next"].keys()

    with SerialEnv(2, make) as batch:
        td = batch.reset()
        for _ in range(3):
            frame = batch.step(batch.rand_action(td).set("_step", torch.tensor([True, False])))
            td = batch.step_mdp(frame)
        td = batch.step_mdp(batch.step(batch.rand_action(td)))
    assert td["observation"].tolist() == [[-3, -4], [0, -1]]


def test_memory_that_others_would_see_is_refused():
    class Open(LastTwo):
        def memory_spec(self, specs):
            return Composite({"before": specs.observation["observation"].clone()})

    with pytest.raises(SpecError, match=r"Open\.memory_spec: 'before' must .* begins with two underscores"):
        _ = TransformedEnv(base(), Open(in_keys=["observation"])).observation_spec
