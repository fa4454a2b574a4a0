"""Batches of transformed environments, and transformed batches, in this process and in workers."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch

from steppe.batched import ParallelEnv, SerialEnv
from steppe.specs import Unbounded
from steppe.transforms import (
    Compose,
    DoubleToFloat,
    InitTracker,
    ObservationTransform,
    RenameTransform,
    RewardSum,
    StepCounter,
    TensorDictPrimer,
    TransformedEnv,
)
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
    DynamicSpecEnv,
    MultiAgentCountingEnv,
    MultiKeyCountingEnv,
    StatelessCountingEnv,
    TextCountingEnv,
    assert_equal_data,
)

N, STEPS = 3, 16
# Rows end at different times.
LENGTHS = (6, 5, 3)
BASES = {
    "arrays": lambda steps=6: ArrayCountingEnv(steps, dtype=torch.float64, noise=True),
    "tensordict": lambda steps=6: CountingEnv(steps, dtype=torch.float64, noise=True),
}
CHAINS = {
    "all": lambda: Compose(RewardSum(), StepCounter(4), InitTracker(), DoubleToFloat()),
    "without an end": lambda: Compose(InitTracker(), DoubleToFloat(), RewardSum(), StepCounter()),
    "primed": lambda: Compose(TensorDictPrimer(hidden=Unbounded((2,)), default_value=3.0), StepCounter(4)),
}


def batch(kind, where, base, chain):
    if where == "inside":
        return kind(N, [lambda steps=steps: TransformedEnv(base(steps), chain()) for steps in LENGTHS])
    return TransformedEnv(kind(N, [lambda steps=steps: base(steps) for steps in LENGTHS]), chain())


def play(env, policy=None):
    with closing(env):
        env.set_seed(7)
        return env.rollout(STEPS, policy, break_when_any_done=False)


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_inside_and_outside_serial_and_parallel_agree(base, chain):
    expected = play(batch(SerialEnv, "inside", base, chain))

    assert (expected["next", "done"].sum(1) >= 2).all()
    for kind, where in ((SerialEnv, "outside"), (ParallelEnv, "inside"), (ParallelEnv, "outside")):
        assert_equal_data(play(batch(kind, where, base, chain)), expected)


@pytest.mark.parametrize("where", ["inside", "outside"])
@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_rows_alone_are_rows_of_the_batch(base, where):
    env = batch(SerialEnv, where, base, CHAINS["all"])
    other = batch(SerialEnv, where, base, CHAINS["all"])
    env.set_seed(7), other.set_seed(7)
    actions = env.full_action_spec.rand((STEPS,))["action"]
    rows = torch.tensor([2, 0])

    expected = env.rollout(STEPS, actions=list(actions), break_when_any_done=False)
    td = other.reset()[rows]
    for t in range(STEPS):
        td["action"] = actions[t][rows]
        other.step_at(td, rows)
        for key in expected["next"].keys():
            assert torch.equal(td["next", key], expected["next", key][rows, t]), (t, key)
        td = other.step_mdp(td)
        for at, row in enumerate(rows):
            if td["done"][at].item():
                td[at] = (
                    other.reset_at(None, row.reshape(1))[0]
                    .select(*td.keys(), strict=False)
                    .update(td[at].exclude(*expected["next"].keys(), "is_init"))
                )


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_masks_leave_the_counts_of_other_rows_alone(where):
    env = batch(SerialEnv, where, BASES["arrays"], CHAINS["without an end"])
    td = env.step_mdp(env.rand_step(env.reset()))
    env.rand_action(td)["_step"] = torch.tensor([True, False, True])
    td = env.step_mdp(env.step(td))
    assert td["step_count"].squeeze(-1).tolist() == [2, 1, 2]

    td["_reset"] = torch.tensor([[False], [False], [True]])
    td = env.step_mdp(env.rand_step(env.reset(td)))

    assert td["step_count"].squeeze(-1).tolist() == [3, 2, 1]
    assert td["observation"].squeeze(-1).tolist() == [3, 2, 1]


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_a_primer_around_a_batch_keeps_policy_state(kind, base):
    env = TransformedEnv(kind(2, base), TensorDictPrimer(hidden=Unbounded((1,))))

    def policy(td):
        env.rand_action(td)
        return td.set(("next", "hidden"), td["hidden"] + 1)

    data = play(env, policy)

    assert data["hidden"][0].squeeze(-1).tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3]


def primed(env):
    return TransformedEnv(env, TensorDictPrimer(hidden=Unbounded((2,)), default_value=3.0))


RECURRENT = {
    "inside, arrays": lambda kind: kind(3, lambda: primed(ArrayCountingEnv(50))),
    "inside, tensordict": lambda kind: kind(3, lambda: primed(CountingEnv(50))),
    "inside, text": lambda kind: kind(3, lambda: primed(TextCountingEnv(50))),
    "outside": lambda kind: primed(kind(3, lambda: ArrayCountingEnv(50))),
    "outside, text": lambda kind: primed(kind(3, lambda: TextCountingEnv(50))),
    "inside, counted outside": lambda kind: TransformedEnv(kind(3, lambda: primed(CountingEnv(50))), StepCounter()),
    "inside, text, counted": lambda kind: TransformedEnv(kind(3, lambda: primed(TextCountingEnv(50))), StepCounter()),
}
RECURRENT_PLACES = {
    **{
        f"{kind.__name__}, {name}": (make, kind)
        for kind in (SerialEnv, ParallelEnv)
        for name, make in RECURRENT.items()
    },
    "view": (lambda kind: kind(4, lambda: primed(ArrayCountingEnv(50)))[1:], SerialEnv),
    "view of text": (lambda kind: kind(4, lambda: primed(TextCountingEnv(50)))[1:], SerialEnv),
    "one batch": (lambda kind: primed(CountingEnv(50, batch_size=(3,))), None),
}


def stepped_with_memory(env, how):
    """Step rows 0 and 2, and row 1 now and then, adding one to the memory of each; what the memory was at each step."""
    td, seen = env.reset(), []
    for t in range(5):
        rows = torch.tensor([True, t % 2 == 1, how == "all"])
        if how == "all":
            rows[:] = True
        env.rand_action(td)
        seen.append(td["hidden"][:, 0].tolist())
        td.set(("next", "hidden"), td["hidden"] + 1)
        if how == "all":
            td = env.step_and_maybe_reset(td)[1]
        elif how == "mask":
            td = env.step_mdp(env.step(td.set("_step", rows)))
        else:
            found = env.step_mdp(env.step_at(td[rows], rows))
            td = td.exclude("next")
            td["hidden"] = td["hidden"].masked_scatter(rows.unsqueeze(-1).expand(3, 2), found["hidden"])
    return seen


@pytest.mark.parametrize("how", ["all", "mask", "rows"])
@pytest.mark.parametrize(("make", "kind"), RECURRENT_PLACES.values(), ids=RECURRENT_PLACES.keys())
def test_a_recurrent_state_survives_every_kind_of_step(make, kind, how):
    with closing(make(kind)) as env:
        seen = stepped_with_memory(env, how)

    expected = [[3, 3, 3], [4, 3, 3], [5, 4, 3], [6, 4, 3], [7, 5, 3]]
    assert seen == ([[3.0 + t] * 3 for t in range(5)] if how == "all" else expected)


def test_a_step_starts_from_the_state_in_the_root():
    """The state that the last step left under next is not used."""
    with closing(SerialEnv(2, StatelessCountingEnv)) as env:
        td = env.step(env.rand_action(env.reset()))
        again = env.step(td.set("count", td["count"] + 10))

    assert again["next", "count"].flatten().tolist() == [11, 11], "not what the step before left under next"


# -- what a transform remembers is in the data -----------------------------------------------------------------------

SINGLE = {"alone": lambda base, chain: TransformedEnv(base(20), chain())}
IN_BATCHES = {
    f"{kind.__name__}, {where}": lambda base, chain, kind=kind, where=where: (
        kind(2, lambda: TransformedEnv(base(20), chain()))
        if where == "inside"
        else TransformedEnv(kind(2, lambda: base(20)), chain())
    )
    for kind in (SerialEnv, ParallelEnv)
    for where in ("inside", "outside")
}
PLACES = SINGLE | IN_BATCHES


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_an_edited_count_or_sum_in_the_root_is_continued(place, base):
    """A step count or sum continues from the value that the caller edits."""
    with closing(place(base, lambda: Compose(StepCounter(), RewardSum()))) as env:
        td = env.reset()
        td["step_count"] += 5
        td["episode_reward"] = td["episode_reward"] + 7
        env.step(env.rand_action(td))
        assert (td["next", "step_count"] == 6).all()
        assert torch.equal(td["next", "episode_reward"], td["next", "reward"] + 7)

        td = env.step_mdp(td)
        td["step_count"] = torch.full_like(td["step_count"], 2)
        td, root = env.step_and_maybe_reset(env.rand_action(td))
        assert (td["next", "step_count"] == 3).all()
        assert (root["step_count"] == 3).all()

        root["step_count"] += 10
        data = env.rollout(3, tensordict=root, auto_reset=False)
        assert (data["step_count"].squeeze(-1) == torch.arange(13, 16)).all()


@pytest.mark.parametrize("place", IN_BATCHES.values(), ids=IN_BATCHES.keys())
@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_an_edited_count_holds_in_partial_steps_and_resets(place, base):
    with closing(place(base, StepCounter)) as env:
        td = env.reset()
        td["step_count"] = torch.tensor([[5], [8]])
        env.rand_action(td)["_step"] = torch.tensor([False, True])
        td = env.step_mdp(env.step(td))
        assert td["step_count"].squeeze(-1).tolist() == [5, 9]

        td["step_count"] += 1
        td["_reset"] = torch.tensor([[True], [False]])
        td = env.reset(td)
        assert td["step_count"].squeeze(-1).tolist() == [0, 10]
        assert env.step(env.rand_action(td))["next", "step_count"].squeeze(-1).tolist() == [1, 11]


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_an_edited_count_may_reach_the_limit(place, base):
    with closing(place(base, lambda: StepCounter(6))) as env:
        env.step(env.rand_action(env.reset()))  # the first step is checked on a way of its own
        td = env.reset()
        td["step_count"] += 5
        td, root = env.step_and_maybe_reset(env.rand_action(td))

        assert td["next", "truncated"].all()
        assert td["next", "done"].all()
        assert (root["step_count"] == 0).all()


def test_transforms_of_a_batch_take_rows_whose_shapes_differ():
    batch = TransformedEnv(SerialEnv(2, [lambda: DynamicSpecEnv(5), lambda: DynamicSpecEnv(3)]), StepCounter(4))
    td = batch.reset()

    for _ in range(4):
        _, td = batch.step_and_maybe_reset(batch.rand_action(td))

    assert td["step_count"].squeeze(-1).tolist() == [0, 1]
    assert [row["observation"].shape for row in td.unbind(0)] == [(3, 1, 2), (3, 2, 2)]


def test_a_partial_group_reset_keeps_sums_of_other_rows():
    """Rows in which no group is reset keep the sums at their root."""
    env = TransformedEnv(SerialEnv(2, MultiKeyCountingEnv), RewardSum(["reward"]))
    td = env.step_mdp(env.rand_step(env.reset()))
    td["episode_reward"] = torch.full((2, 1), 7.0)
    for group in ("left", "right"):
        td[group, "_reset"] = torch.tensor([[group == "left"], [False]])

    td = env.reset(td)

    assert td["episode_reward"].squeeze(-1).tolist() == [0, 7]


def test_a_transform_of_a_batch_finds_what_one_before_it_writes():
    class Looks(ObservationTransform):
        """A transform that reads "pixels" by default."""

        def _apply_transform(self, value):
            return value + 1

    env = TransformedEnv(SerialEnv(2, ArrayCountingEnv), RenameTransform(["observation"], ["pixels"]))
    env.append_transform(Looks())
    assert env.rollout(2)["next", "pixels"][..., 0].tolist() == [[2.0, 3.0], [2.0, 3.0]]


class StepOnly(ObservationTransform):
    """Changes the observation of steps, and leaves that of resets."""

    def _call(self, next_tensordict):
        return next_tensordict.set("observation", next_tensordict["observation"] + 100)


@pytest.mark.parametrize(
    "transform", [StepOnly, lambda: StepCounter(2, update_done=False)], ids=["observation", "truncated"]
)
@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_that_go_on_keep_entries_of_steps(kind, transform):
    """A row that ends leaves entries alone that only steps change, in the roots of all other rows."""
    inside, around = (play(batch(kind, where, BASES["tensordict"], transform)) for where in ("inside", "around"))
    assert_equal_data(inside, around)
    assert around["next", "done"].any()


RENAMED = {
    "a name": (["terminated"], ["ended"]),
    "two names": (["truncated", "terminated"], ["cut", "lost"]),
    "a flag's name": (["terminated"], ["truncated"]),
    "a level": (["terminated"], [("outcome", "terminated")]),
    "a group": ([("agents", "terminated")], [("agents", "ended")]),
}


@pytest.mark.parametrize("name", RENAMED)
@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_renamed_done_entries_reach_a_batch(kind, name):
    """The data inside and around a batch is that of one environment."""
    keys = RENAMED[name]

    for base in (MultiAgentCountingEnv,) if name == "a group" else (ArrayCountingEnv, CountingEnv):
        inside = kind(2, lambda base=base: TransformedEnv(base(3), RenameTransform(*keys)))
        around = TransformedEnv(kind(2, lambda base=base: base(3)), RenameTransform(*keys))
        alone = TransformedEnv(base(3), RenameTransform(*keys))
        actions = alone.full_action_spec.rand((5,))
        policy_of_one, *policies = (iter(actions.unbind(0)) for _ in range(3))
        expected = alone.rollout(5, lambda td, steps=policy_of_one: td.update(next(steps)), break_when_any_done=False)
        for env, steps in zip((inside, around), policies, strict=True):
            with closing(env):
                data = env.rollout(
                    5,
                    lambda td, steps=steps: td.update(next(steps).expand(2)),
                    break_when_any_done=False,
                )
            for row in data.unbind(0):
                assert_equal_data(row, expected, f"{base.__name__}, {type(env).__name__}")


def test_a_batch_without_done_entries_has_no_rows():
    from steppe.transforms import SelectTransform

    with SerialEnv(
        2, lambda: TransformedEnv(ArrayCountingEnv(5), SelectTransform("observation", keep_dones=False))
    ) as batch:
        assert "no done entry for the whole episode" in batch.no_row_writer_reason
