"""TensorDictPrimer."""

from __future__ import annotations

import pickle

import pytest
import torch
from tensordict import TensorDict

from steppe import Collector
from steppe.errors import SpecError
from steppe.specs import Bounded, Composite, Unbounded
from steppe.transforms import Compose, StepCounter, TensorDictPrimer, Transform, TransformedEnv
from steppe_testing import ArrayCountingEnv, CountingEnv

BASES = pytest.mark.parametrize(
    "make", [lambda: CountingEnv(3), lambda: ArrayCountingEnv(3), lambda: CountingEnv(3, batch_size=(2,))]
)


@BASES
def test_primed_entries_keep_their_first_value(make):
    env = TransformedEnv(make(), TensorDictPrimer(hidden=Unbounded((4,)), default_value=2.0))

    env.check_env_specs()
    data = env.rollout(5, break_when_any_done=False)

    assert data["hidden"].shape == (*data.batch_size, 4)
    assert (data["hidden"] == 2).all()
    assert "hidden" in env.state_keys


@BASES
def test_policy_state_lasts_until_the_reset(make):
    env = TransformedEnv(make(), TensorDictPrimer({("rnn", "hidden"): Unbounded((1,))}))

    def policy(td):
        env.rand_action(td)
        return td.set(("next", "rnn", "hidden"), td["rnn", "hidden"] + 1)

    data = env.rollout(5, policy, break_when_any_done=False)

    hidden = data["rnn", "hidden"]
    hidden = hidden[0] if hidden.ndim > 2 else hidden
    assert hidden.squeeze(-1).tolist() == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("zero", [{}, {"default_value": 0.0}])
def test_values_can_be_drawn(zero):
    spec = Bounded(5.0, 6.0, shape=(3,))
    env = TransformedEnv(CountingEnv(2), Compose(TensorDictPrimer(z=spec, random=True, **zero), StepCounter()))
    env.check_env_specs()

    def draws():
        env.set_seed(1)
        return env.rollout(6, break_when_any_done=False)["z"]

    first = draws()
    assert torch.equal(first, draws())
    assert len(first[:, 0].unique()) == 3
    assert spec.is_in(first[0])


def test_values_of_each_entry():
    env = TransformedEnv(
        CountingEnv(2),
        TensorDictPrimer(
            a=Unbounded((1,)), b=Unbounded((2,), dtype=torch.int64), c=Unbounded((1,)),
            default_value={"a": 1.5, "b": lambda: torch.tensor([1, 2])},
        ),
    )  # fmt: skip
    root = env.reset()

    assert (root["a"].tolist(), root["b"].tolist(), root["c"].tolist()) == ([1.5], [1, 2], [0])


def test_a_value_that_is_a_tensor_is_copied():
    value = torch.ones(1)
    env = TransformedEnv(CountingEnv(2), TensorDictPrimer(a=Unbounded((1,)), default_value=value))
    env.reset()["a"].fill_(5)

    assert value.item() == env.reset()["a"].item() == 1


def test_shapes_have_the_batch_size_or_are_given_it():
    base = CountingEnv(2, batch_size=(3,))
    full = Composite(h=Unbounded((3, 2)), shape=(3,))

    for expand in (None, True, False):
        env = TransformedEnv(base, TensorDictPrimer(full, expand_specs=expand))
        assert env.observation_spec["h"].shape == env.reset()["h"].shape == (3, 2)
    assert TransformedEnv(base, TensorDictPrimer(h=Unbounded((2,)))).observation_spec["h"].shape == (3, 2)
    with pytest.raises(SpecError, match=r"'h', \(2,\), must start with the batch size \(3,\); expand_specs=True"):
        TransformedEnv(base, TensorDictPrimer(h=Unbounded((2,)), expand_specs=False)).reset()


def test_only_reset_rows_get_the_first_value():
    env = TransformedEnv(CountingEnv(9, batch_size=(2,)), TensorDictPrimer(h=Unbounded((1,))))
    td = env.reset()
    td["h"] = torch.tensor([[3.0], [4.0]])
    td["_reset"] = torch.tensor([[True], [False]])

    assert env.reset(td)["h"].squeeze(-1).tolist() == [0, 4]


def test_arguments_are_checked():
    with pytest.raises(SpecError, match="exclude each other"):
        TensorDictPrimer(a=Unbounded((1,)), random=True, default_value=1.0)
    with pytest.raises(SpecError, match=r"default_value has 'b', the primers \['a'\]"):
        TensorDictPrimer(a=Unbounded((1,)), default_value={"b": 1.0})


def test_without_entries_it_changes_nothing():
    env = TransformedEnv(CountingEnv(3), TensorDictPrimer())

    env.check_env_specs()
    assert set(env.reset().keys()) == set(CountingEnv(3).reset().keys())


def test_primers_of_another_batch_size_need_expand_specs():
    """Without expand_specs, primers of another batch size are an error."""
    base, other = CountingEnv(2, batch_size=(3,)), Composite(h=Unbounded((4, 2)), shape=(4,))

    with pytest.raises(SpecError, match=r"batch size of the primers, \(4,\).*environment, \(3,\); expand_specs=True"):
        TransformedEnv(base, TensorDictPrimer(other)).reset()
    with pytest.raises(SpecError, match=r"'h', \(4, 2\), must start with the batch size \(3,\)"):
        TransformedEnv(base, TensorDictPrimer(other, expand_specs=False)).reset()
    assert TransformedEnv(base, TensorDictPrimer(other, expand_specs=True)).reset()["h"].shape == (3, 4, 2)


def test_entries_can_be_written_into_stored_data():
    data = TensorDict(x=torch.zeros(2), batch_size=[2])

    assert TensorDictPrimer(a=Unbounded((2, 3)), default_value=2.0)(data) is data
    assert data["a"].tolist() == [[2] * 3] * 2
    full = Composite(b=Unbounded((2, 3)), shape=(2,))
    assert TensorDictPrimer(full, random=True)(data)["b"].unique().numel() == 6
    assert TensorDictPrimer(c=Unbounded((1,)), default_value=lambda: torch.ones(2, 1), expand_specs=True)(data)[
        "c"
    ].tolist() == [[1], [1]]


def test_stored_data_of_another_batch_size_is_an_error():
    with pytest.raises(SpecError, match=r"'a', \(3,\), must start with the batch size of the data, \(2,\)"):
        TensorDictPrimer(a=Unbounded((3,)))(TensorDict(x=torch.zeros(2), batch_size=[2]))


def test_shape_and_device_of_all_entries_may_be_given():
    primer = TensorDictPrimer(a=Unbounded((3, 1)), batch_size=[3], device="cpu")

    assert primer.primers.shape == (3,)
    assert primer.device == torch.device("cpu")
    assert TensorDictPrimer(a=Unbounded((3, 1)), shape=[3]).primers.shape == (3,)


def test_a_value_that_does_not_fit_its_spec_is_an_error():
    with pytest.raises(SpecError, match=r"value of 'a' must have shape \(2,\).*found \(3,\)"):
        TransformedEnv(CountingEnv(), TensorDictPrimer(a=Unbounded((2,)), default_value=lambda: torch.ones(3))).reset()
    with pytest.raises(SpecError, match="value of 'a' is not in its spec"):
        TransformedEnv(
            CountingEnv(), TensorDictPrimer(a=Bounded(0.0, 1.0, (1,)), default_value=lambda: torch.full((1,), 3.0))
        ).reset()


def test_an_action_can_be_primed():
    env = TransformedEnv(CountingEnv(3, action="continuous"), TensorDictPrimer(action=Unbounded((2,))))

    env.check_env_specs()
    assert env.action_keys == ["action"]
    assert env.reset()["action"].tolist() == [0, 0]


def test_the_default_reset_key_comes_from_the_environment():
    assert TensorDictPrimer(a=Unbounded((1,)), reset_key=("agents", "_reset")).reset_key == ("agents", "_reset")
    env = TransformedEnv(CountingEnv(3), TensorDictPrimer(a=Unbounded((1,))))
    assert env.transform.reset_key == "_reset"


def test_a_pickled_primer_continues_its_random_numbers():
    env = TransformedEnv(CountingEnv(2), TensorDictPrimer(z=Bounded(0.0, 1.0, shape=(2,)), random=True))
    env.set_seed(4)
    env.reset()

    again = pickle.loads(pickle.dumps(env))

    assert torch.equal(again.reset()["z"], env.reset()["z"])


class Halved(Transform):
    """A transform that changes an entry of a transform before it."""

    def _apply_transform(self, value):
        return value / 2


def primed(*others, **kwargs):
    """Array environments of three steps, whose hidden state a policy may hand on."""
    chain = Compose(TensorDictPrimer({("rnn", "hidden"): Unbounded((2,))}, random=True), *others)
    env = TransformedEnv(ArrayCountingEnv(3), chain, **kwargs)
    env.set_seed(1)
    return env


def handed_on(env, steps=7):
    """Hidden states under ``next`` of steps of which every second one has one of its own."""
    td, found = env.reset(), []
    for t in range(steps):
        td["action"] = torch.tensor([1, 0, 0])
        if t % 2:
            td["next", "rnn", "hidden"] = td["rnn", "hidden"] + 1
        done, td = env.step_and_maybe_reset(td)
        found.append(done["next", "rnn", "hidden"])
    return torch.stack(found)


@pytest.mark.parametrize(
    ("others", "on_rows"),
    [([], True), ([StepCounter()], True), ([Halved([("rnn", "hidden")])], False)],
)
def test_steps_on_rows_keep_the_same_entries_as_tensordicts(others, on_rows):
    env = primed(*(other.clone() for other in others))
    assert (env.row_steps is not None) is on_rows
    assert torch.equal(handed_on(env), handed_on(primed(*(other.clone() for other in others), run_type_checks=True)))


def test_gradients_pass_through_a_step():
    env = primed()
    td = env.rand_action(env.reset())
    hidden = torch.zeros(2, requires_grad=True)
    for write in (lambda td: td.set(("rnn", "hidden"), hidden), lambda td: td.set(("next", "rnn", "hidden"), hidden)):
        env.step(write(td.clone()))["next", "rnn", "hidden"].sum().backward()
    assert hidden.grad.tolist() == [2, 2]


def test_a_step_without_the_entry_says_which_is_missing():
    env = primed()
    with pytest.raises(KeyError, match=r"no \('rnn', 'hidden'\) in the data given to step"):
        env.step(env.rand_action(env.reset()).exclude("rnn"))


def test_a_primed_action_is_the_one_that_was_taken():
    env = TransformedEnv(ArrayCountingEnv(3, action="continuous"), TensorDictPrimer(action=Unbounded((2,))))
    with Collector(env, frames_per_batch=2) as collector:
        for data in (env.rollout(2), next(collector), next(collector)):
            assert torch.equal(data["next", "action"], data["action"])
            assert not torch.equal(data["action"][0], data["action"][1])
