"""TensorDictPrimer."""

from __future__ import annotations

import pickle

import pytest
import torch
from tensordict import TensorDict

from steppe.errors import SpecError
from steppe.specs import Bounded, Composite, Unbounded
from steppe.transforms import Compose, StepCounter, TensorDictPrimer, TransformedEnv
from steppe_testing import ArrayCountingEnv, CountingEnv

BASES = pytest.mark.parametrize(
    "make", [lambda: CountingEnv(3), lambda: ArrayCountingEnv(3), lambda: CountingEnv(3, batch_size=(2,))]
)


@BASES
def test_entries_begin_with_a_value_and_stay(make):
    env = TransformedEnv(make(), TensorDictPrimer(hidden=Unbounded((4,)), default_value=2.0))

    env.check_env_specs()
    data = env.rollout(5, break_when_any_done=False)

    assert data["hidden"].shape == (*data.batch_size, 4)
    assert (data["hidden"] == 2).all()
    assert "hidden" in env.state_keys


@BASES
def test_what_the_policy_writes_goes_on_until_the_reset(make):
    env = TransformedEnv(make(), TensorDictPrimer({("rnn", "hidden"): Unbounded((1,))}))

    def policy(td):
        env.rand_action(td)
        return td.set(("next", "rnn", "hidden"), td["rnn", "hidden"] + 1)

    data = env.rollout(5, policy, break_when_any_done=False)

    hidden = data["rnn", "hidden"]
    hidden = hidden[0] if hidden.ndim > 2 else hidden
    assert hidden.squeeze(-1).tolist() == [0, 1, 2, 0, 1]


def test_values_can_be_drawn():
    spec = Bounded(5.0, 6.0, shape=(3,))
    env = TransformedEnv(CountingEnv(2), Compose(TensorDictPrimer(z=spec, random=True), StepCounter()))
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


def test_one_function_may_give_all():
    env = TransformedEnv(
        CountingEnv(2),
        TensorDictPrimer(
            a=Unbounded((1,)), default_value=lambda: TensorDict(a=torch.ones(1)), single_default_value=True
        ),
    )

    assert env.reset()["a"].item() == 1


def test_a_value_that_is_a_tensor_is_copied():
    value = torch.ones(1)
    env = TransformedEnv(CountingEnv(2), TensorDictPrimer(a=Unbounded((1,)), default_value=value))
    env.reset()["a"].fill_(5)

    assert value.item() == env.reset()["a"].item() == 1


def test_shapes_have_the_batch_size_or_are_given_it():
    base = CountingEnv(2, batch_size=(3,))
    full = Composite(h=Unbounded((3, 2)), shape=(3,))

    assert TransformedEnv(base, TensorDictPrimer(full)).observation_spec["h"].shape == (3, 2)
    assert TransformedEnv(base, TensorDictPrimer(h=Unbounded((2,)))).observation_spec["h"].shape == (3, 2)
    with pytest.raises(SpecError, match=r"'h', \(2,\), must start with the batch size \(3,\); expand_specs=True"):
        TransformedEnv(base, TensorDictPrimer(h=Unbounded((2,)), expand_specs=False)).reset()


def test_only_rows_that_are_reset_begin_anew():
    env = TransformedEnv(CountingEnv(9, batch_size=(2,)), TensorDictPrimer(h=Unbounded((1,))))
    td = env.reset()
    td["h"] = torch.tensor([[3.0], [4.0]])
    td["_reset"] = torch.tensor([[True], [False]])

    assert env.reset(td)["h"].squeeze(-1).tolist() == [0, 4]


def test_the_environment_may_read_them_at_its_reset():
    class Reading(CountingEnv):
        def _reset(self, tensordict=None, **kwargs):
            self.start = int(tensordict["start"].item())
            return super()._reset(tensordict)

    env = TransformedEnv(
        Reading(3), TensorDictPrimer(start=Unbounded((1,)), default_value=7.0, call_before_env_reset=True)
    )

    root = env.reset()
    assert (root["observation"].item(), root["start"].item()) == (7, 7)
    assert env.rollout(3, break_when_any_done=False)["start"].squeeze(-1).tolist() == [7, 7, 7]


def test_arguments_are_checked():
    with pytest.raises(SpecError, match="give the entries to add"):
        TensorDictPrimer()
    with pytest.raises(SpecError, match="exclude each other"):
        TensorDictPrimer(a=Unbounded((1,)), random=True, default_value=1.0)


def test_a_pickle_goes_on_drawing():
    env = TransformedEnv(CountingEnv(2), TensorDictPrimer(z=Bounded(0.0, 1.0, shape=(2,)), random=True))
    env.set_seed(4)
    env.reset()

    again = pickle.loads(pickle.dumps(env))

    assert torch.equal(again.reset()["z"], env.reset()["z"])
