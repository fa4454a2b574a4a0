"""check_env_specs on array environments: unwritten and wrongly converted values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe import ParallelEnv, SerialEnv, StepCounter, TransformedEnv, check_env_specs, write_row
from steppe.envs import ArrayEnv
from steppe.errors import SpecError, WorkerError
from steppe.specs import Binary, Bounded, Composite, OneHot, Unbounded
from steppe_testing import ACTION_KINDS, ArrayCountingEnv

SPECS = {
    "float": Unbounded((3,)),
    "float64": Unbounded((3,), dtype=torch.float64),
    "int": Unbounded((3,), dtype=torch.int64),
    "byte": Bounded(0, 255, (3,), dtype=torch.uint8),
    "flag": Binary(3, dtype=torch.bool),
}


class Grid(ArrayEnv):
    """An environment with a ``grid`` of three values, written by ``write``."""

    def __init__(self, spec="float", write=None, reward=lambda out: out["reward"].fill(1.0), flags=(False, False)):
        super().__init__()
        self.observation_spec = Composite(grid=SPECS[spec])
        self.action_spec = OneHot(2)
        self.reward_spec = Unbounded((1,))
        self.write, self.reward, self.flags = write or (lambda out, where: out["grid"].fill(1)), reward, flags
        self.kept = np.zeros(3)

    def reset_into(self, out, seed, env_info):
        self.write(out, "reset")

    def step_into(self, action, out):
        self.write(out, "step")
        self.reward(out)
        return self.flags


def text_of(env, **kwargs):
    with pytest.raises(SpecError) as caught:
        check_env_specs(env, **kwargs)
    return str(caught.value)


def at_reset(write):
    return lambda out, where: write(out) if where == "reset" else out["grid"].fill(1)


def at_step(write):
    return lambda out, where: write(out) if where == "step" else out["grid"].fill(1)


@pytest.mark.parametrize("spec", SPECS)
def test_a_sound_environment_passes(spec):
    check_env_specs(Grid(spec))
    check_env_specs(TransformedEnv(Grid(spec), StepCounter()))


@pytest.mark.parametrize("kind", ACTION_KINDS)
def test_sound_environments_of_every_action_pass(kind):
    check_env_specs(ArrayCountingEnv(2, action=kind, actions=True, nested=True, info=True, pixels=(32, 32), noise=True))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("when", [at_reset, at_step])
def test_an_entry_that_is_never_written_is_named(spec, when):
    method = {at_reset: "reset_into", at_step: "step_into"}[when]
    text = text_of(Grid(spec, when(lambda out: None)))

    assert f"'grid' is not written by {method}: write out['grid'][...] = value each time" in text
    assert "bounds" not in text
    assert "1 place" in text


@pytest.mark.parametrize("spec", SPECS)
def test_a_part_that_is_never_written_is_named(spec):
    def write(out):
        out["grid"][:2] = 1

    text = text_of(Grid(spec, at_step(write)))

    assert "'grid' is not written as a whole by step_into: 1 of 3 values are left out, the first at (2,)" in text


def test_a_reward_that_is_never_written_is_named():
    text = text_of(Grid(reward=lambda out: None))

    assert "'reward' is not written by step_into: write out['reward'][0] = value each time" in text


def test_a_byte_equal_to_the_fill_value_counts_as_written():
    """A written byte that equals the test pattern by chance is not reported as unwritten."""
    check_env_specs(ArrayCountingEnv(300, pixels=(84, 84)), steps=1)


@pytest.mark.filterwarnings("ignore:.*in cast")
@pytest.mark.parametrize(
    ("spec", "value", "found"),
    [
        ("int", [0.5, 1, 1], "must have dtype torch.int64, found float64 with the value 0.5, of which the row keeps 0"),
        ("flag", [0, 2, 0], "must have dtype torch.bool, found int64 with the value 2, of which the row keeps True"),
        ("flag", [0.5, 0, 0], "found float64 with the value 0.5, of which the row keeps True"),
        ("byte", [0, 300, 0], "must have dtype torch.uint8, found int64 with the value 300, of which the row keeps 44"),
        ("byte", [0, -1, 0], "found int64 with the value -1, of which the row keeps 255"),
        ("byte", [0, 0.25, 0], "found float64 with the value 0.25, of which the row keeps 0"),
        ("float", [1e300, 0, 0], "found float64 with the value 1e+300, of which the row keeps inf"),
        ("float", [None, None, None], "with the value None, of which the row keeps nan: write a number, float('nan')"),
    ],
)
def test_a_cast_that_loses_something_is_named(spec, value, found):
    def all_of_it(out, where):
        out["grid"][...] = np.array(value)

    def one_by_one(out, where):
        for i, number in enumerate(np.array(value)):
            out["grid"][i] = number

    def through_a_view(out, where):
        out["grid"][:2][...] = np.array(value)[:2]
        out["grid"][2:] = np.array(value)[2:]

    def copied(out, where):
        np.copyto(out["grid"], np.array(value), casting="unsafe")

    for write in (all_of_it, one_by_one, through_a_view, copied):
        text = text_of(Grid(spec, write))
        assert "'grid'" in text
        assert found in text
        assert "widen the bounds" not in text


@pytest.mark.parametrize(
    ("spec", "value", "found"),
    [
        ("int", float("nan"), "'grid', of shape (3,) and dtype torch.int64, does not take .*NaN to integer"),
        ("byte", 300, "'grid', of shape (3,) and dtype torch.uint8, does not take .*300 out of bounds"),
        ("float", np.ones(4), "'grid', of shape (3,) and dtype torch.float32, does not take .*shape (4,)"),
        ("float", "much", "'grid', of shape (3,) .*does not take .*'much'"),
    ],
)
def test_a_value_that_numpy_refuses_is_named(spec, value, found):
    def write(out, where):
        out["grid"][...] = value

    with pytest.raises(SpecError, match=found.replace("(", r"\(").replace(")", r"\)")):
        check_env_specs(Grid(spec, write))


def test_a_cast_says_what_to_write():
    def write(out, where):
        out["grid"][...] = np.full(3, 0.5)

    assert "round it, or give the spec dtype=torch.float64." in text_of(Grid("int", write))


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ("float", np.array([0.1, 1e-300, 3.0])),
        ("float", np.array([np.inf, -np.inf, np.nan])),
        ("float", np.array([2**40, 1, 0])),
        ("int", np.array([1.0, 2.0, -3.0])),
        ("byte", np.array([0, 255, 7])),
        ("flag", np.array([0, 1, 1.0])),
        ("float", torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)),
        ("int", [1, 2, 3]),
        ("int", 5),
    ],
)
def test_a_cast_that_loses_nothing_but_precision_passes(spec, value):
    def write(out, where):
        out["grid"][...] = value

    check_env_specs(Grid(spec, write))


def test_an_environment_may_write_into_its_own_arrays():
    """The check of rows does not affect copies that an environment writes to."""

    def write(out, where):
        mine = out["grid"].copy()
        mine[...] = 0.5
        out["grid"][...] = np.ones(3)

    check_env_specs(Grid("int", write))


def test_a_value_that_is_repeated_to_fill_the_row_is_named():
    def write(out, where):
        out["grid"][...] = np.ones(1)

    text = text_of(Grid("float", write))
    assert "'grid' must have shape (3,), found (1,), which is repeated until it fills the row" in text
    assert "write_row(out, 'grid', value) refuses others" in text


def put(out, where):
    out["grid"] = np.ones(3)


def updated(out, where):
    out.update(grid=np.ones(3))


@pytest.mark.parametrize("write", [put, updated])
def test_replacing_a_row_by_another_array_is_an_error(write):
    expected = r"out\['grid'\] = value replaces the row by another array.*Write into the row: out\['grid'\]\["
    for use in (check_env_specs, lambda env: env.reset(), lambda env: env.rollout(2)):
        with pytest.raises(SpecError, match=expected):
            use(Grid(write=write))
    with pytest.raises(SpecError, match=expected):
        SerialEnv(2, lambda: Grid(write=write)).reset()


def test_a_worker_says_so_too():
    env = ParallelEnv(2, lambda: Grid(write=put))
    with pytest.raises(WorkerError, match=r"out\['grid'\] = value replaces the row"):
        env.reset()
    env.close(raise_if_closed=False)


def test_a_row_that_is_added_to_may_be_put_back():
    def write(out, where):
        out["grid"][...] = 1
        out["grid"] += 1

    env = Grid(write=write)
    check_env_specs(env)
    assert env.reset()["grid"].tolist() == [2, 2, 2]


def test_a_key_that_no_spec_has_comes_with_those_that_there_are():
    def misspelt(out, where):
        out["gird"][...] = 1

    def rewarded(out, where):
        out["reward"][0] = 1

    def ended(out, where):
        out["terminated"][0] = True

    for write, text in (
        (misspelt, "Did you mean 'grid'"),
        (rewarded, "A reset has no reward"),
        (ended, "is returned: return terminated, truncated"),
    ):
        for use in (check_env_specs, lambda env: env.reset()):
            with pytest.raises(SpecError, match=rf"out has \['grid'\].*{text}"):
                use(Grid(write=write))


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (True, "cannot unpack non-iterable bool object"),
        (np.bool_(True), "cannot unpack non-iterable numpy.bool"),
        (None, "cannot unpack non-iterable NoneType object"),
        ((False,), "not enough values"),
        ((1.0, False, {}), "too many values"),
        (np.array(True), "iteration over a 0-d array"),
        ((np.zeros(2, bool), np.zeros(2, bool)), "'terminated' must be True or False; found array"),
        ((False, {"lives": 3}), "'truncated' must be True or False; found {'lives': 3}"),
    ],
)
def test_step_into_must_return_two_bools(flags, text):
    text = rf"Grid.step_into must return two bools, terminated and truncated: {text}.*Write: return terminated, False"
    for use in (check_env_specs, lambda env: env.rollout(2), lambda env: env.rand_step(env.reset())):
        with pytest.raises(SpecError, match=text):
            use(Grid(flags=flags))
    with pytest.raises(SpecError, match=text):
        SerialEnv(2, lambda: Grid(flags=flags)).rollout(2)


class Later(Grid):
    """Returns its flags in its third step."""

    def reset_into(self, out, seed, env_info):
        super().reset_into(out, seed, env_info)
        self.steps = 0

    def step_into(self, action, out):
        self.steps += 1
        flags = super().step_into(action, out)
        return flags if self.steps == 3 else (False, False)


@pytest.mark.parametrize("flags", [(None, False), (False, None), ("no", True), (False, [True, False])])
@pytest.mark.parametrize("batch", [False, True])
def test_flags_that_are_none_are_an_error(flags, batch):
    env = SerialEnv(2, [Later, lambda: Later(flags=flags)]) if batch else Later(flags=flags)

    text = r"Later\(.*\).step: Later.step_into must return two bools, terminated and truncated: 't.*' must be True or"
    with pytest.raises(SpecError, match=text):
        env.rollout(5)


@pytest.mark.parametrize("flags", [(np.True_, False), (False, 1), (np.ones(1), np.False_)])
def test_flags_may_be_those_of_numpy(flags):
    assert Later(flags=flags).rollout(5)["next", "done"].flatten().tolist() == [False, False, True]


def test_values_of_a_later_step_name_environment_and_step():
    rewards, sizes = iter([1.0, 1.0, None]), iter([3, 3, 1])

    with pytest.raises(SpecError, match=r"^Grid\(.*\).step: 'reward' must be a number.*found \[None\]"):
        Grid(reward=lambda out: write_row(out, "reward", [next(rewards)])).rollout(4)
    with pytest.raises(SpecError, match=r"^Grid\(.*\).step: 'grid' must have shape \(3,\).*found \(1,\)"):
        Grid(write=lambda out, where: write_row(out, "grid", np.zeros(next(sizes)))).rollout(4)


def test_a_typeerror_inside_step_into_arrives_as_it_was_raised():
    def reward(out):
        _, _ = True

    with pytest.raises(TypeError, match="cannot unpack non-iterable bool"):
        Grid(reward=reward).rollout(2)


def test_all_that_is_wrong_is_listed_at_once():
    def write(out, where):
        if where == "step":
            out["grid"][...] = np.full(3, 0.5)

    text = text_of(Grid("int", write, reward=lambda out: None))

    assert "in 3 places" in text
    assert "'grid' is not written by reset_into" in text
    assert "'grid' must have dtype torch.int64, found float64" in text
    assert "'reward' is not written by step_into" in text


def test_an_environment_under_transforms_is_watched_too():
    text = text_of(TransformedEnv(Grid(reward=lambda out: None), StepCounter()))

    assert "'reward' is not written by step_into" in text


def test_the_check_leaves_the_environment_as_usable_as_it_was():
    env = ArrayCountingEnv(3)
    check_env_specs(env)

    assert env.rollout(10)["next", "observation"].flatten().tolist() == [1, 2, 3]
    assert type(env.reset()["observation"]) is torch.Tensor


def test_legal_actions_are_asked_of_the_environment():
    class Picky(Grid):
        def rand_action(self, tensordict=None):
            return super().rand_action(tensordict).set("action", torch.tensor([False, True]))

        def step_into(self, action, out):
            assert action == 1
            return super().step_into(action, out)

    check_env_specs(Picky(), steps=10)


def test_write_row_passes_the_check():
    check_env_specs(Grid(write=lambda out, where: write_row(out, "grid", np.ones(3))))


class Smooth(ArrayEnv):
    """Observes how the action has changed, keeps the action, and writes into the one before."""

    def __init__(self, size):
        super().__init__()
        self.observation_spec = Composite(change=Unbounded((size,)))
        self.action_spec = Bounded(-1, 1, (size,))
        self.reward_spec = Unbounded((1,))

    def reset_into(self, out, seed, env_info):
        self.last = np.zeros(out["change"].shape, np.float32)
        out["change"][...] = 0

    def step_into(self, action, out):
        out["change"][...] = action - self.last
        out["reward"][0] = 0
        self.last.fill(np.nan)
        self.last = action
        return False, False


@pytest.mark.parametrize("size", [2, 40])
@pytest.mark.parametrize("batch", [None, SerialEnv, ParallelEnv])
def test_an_environment_may_keep_its_actions_and_write_into_them(batch, size):
    env = Smooth(size) if batch is None else batch(2, lambda: Smooth(size))
    steps, root = [], env.reset()
    for _ in range(4):
        steps.append(env.rand_action(root))
        _, root = env.step_and_maybe_reset(steps[-1])
    for data in (env.rollout(4), torch.stack(steps, -1)):
        before = data["action"].roll(1, -2)
        before[..., 0, :] = 0
        assert torch.equal(data["next", "change"], data["action"] - before)
    env.close()


def test_other_arguments_than_those_of_the_methods_are_named():
    class NoSeed(Grid):
        def reset_into(self, out):
            """Takes too little."""

    class NoOut(Grid):
        def step_into(self, action):
            """Takes too little."""

    for use in (check_env_specs, lambda env: env.rollout(1)):
        with pytest.raises(SpecError, match=r"NoSeed must take reset_into\(out, seed, env_info\): .*4 were given"):
            use(NoSeed())
        with pytest.raises(SpecError, match=r"NoOut must take step_into\(action, out\): .*3 were given"):
            use(NoOut())


def test_a_typeerror_inside_a_method_is_raised_unchanged():
    """A TypeError about arguments that a method raises itself is not reworded."""

    def write(out, where):
        len()

    with pytest.raises(TypeError, match="exactly one argument"):
        Grid(write=write).reset()
