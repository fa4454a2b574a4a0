"""Disagreements of data with its specs, each named with its cause."""

from __future__ import annotations

import pytest
import torch
from tensordict import NonTensorData

from steppe.envs import check_env_specs
from steppe.errors import SpecError
from steppe.specs import Binary, Bounded, Composite, Unbounded
from steppe_testing import (
    CountingEnv,
    DynamicSpecEnv,
    HeterogeneousCountingEnv,
    TextCountingEnv,
)


class Wrong(CountingEnv):
    """Passes its data through a function."""

    def __init__(self, change, **kwargs):
        super().__init__(noise=True, **kwargs)
        self.change = change

    def _step(self, tensordict):
        return self.change(super()._step(tensordict))

    def _reset(self, tensordict=None, **kwargs):
        data = self.change(super()._reset(tensordict))
        return data.exclude("reward")


def text_of(env, **kwargs):
    with pytest.raises(SpecError) as caught:
        check_env_specs(env, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda td: td.set("observation", td["observation"].double()),
            "'observation' must have dtype torch.float32, found torch.float64: cast it",
        ),
        (
            lambda td: td.set("observation", torch.zeros(2)),
            "'observation' must have shape (1,), found (2,): give the spec shape=(2,)",
        ),
        (
            lambda td: td.set("observation", torch.zeros(())),
            "'observation' must have shape (1,), found (): reshape it to (1,)",
        ),
        (lambda td: td.exclude("noise"), "'noise' is in the spec but not in the data: return it from _reset"),
        (lambda td: td.set("more", torch.zeros(1)), "'more' is in the data but in no spec"),
        (lambda td: td.set("noise", td["noise"] + 5), "has values from 5"),
        (lambda td: td.set("noise", td["noise"] * float("nan")), "holds NaN"),
        (lambda td: td.set("observation", NonTensorData("x")), "must be a tensor of dtype torch.float32, found"),
    ],
)
def test_each_disagreement_is_named_with_its_cause(change, expected):
    assert expected in text_of(Wrong(change))


def test_data_that_is_only_wrong_at_a_step_is_named_there():
    def change(td):
        return td.set("observation", td["observation"].double()) if "reward" in td.keys() else td

    text = text_of(Wrong(change))

    assert "('next', 'observation') must have dtype torch.float32" in text
    assert "[step 1]" in text


def test_all_disagreements_are_listed_at_once():
    def change(td):
        return (
            td.set("observation", torch.zeros(3))
            .set("noise", torch.ones(1, dtype=torch.int64))
            .set("more", td["noise"])
        )

    text = text_of(Wrong(change))
    places = [line for line in text.splitlines() if line.startswith("  - ")]

    assert f"in {len(places)} places" in text
    assert len(places) == 6  # three keys, at the root and in next
    assert len(set(places)) == len(places)


def test_data_without_the_batch_size_is_an_error():
    env = CountingEnv(batch_size=(3,))
    reset = env._reset
    env._reset = lambda tensordict=None: reset(tensordict)[0]

    assert "batch size ()" in text_of(env)


def test_an_entry_of_one_agent_that_is_wrong_is_named():
    class Wrong(HeterogeneousCountingEnv):
        def _data(self):
            data = super()._data()
            agents = list(data["agents"].unbind(0))
            agents[1] = agents[1].exclude("own_1")
            from tensordict import lazy_stack

            return data.set("agents", lazy_stack(agents))

    assert "('agents', 'own_1') is in the spec but not in the data" in text_of(Wrong())


def test_a_value_outside_of_the_spec_is_named_with_the_range():
    env = CountingEnv(10)
    env.observation_spec = Composite(observation=Bounded(0.0, 2.0, shape=(1,)))

    assert "must lie in Bounded" in text_of(env, steps=5)


def test_a_size_that_changes_without_being_dynamic_is_named():
    env = DynamicSpecEnv()
    env.observation_spec = Composite(observation=Unbounded((3, 1, 2)))

    assert "('next', 'observation') must have shape (3, 1, 2), found (3, 2, 2)" in text_of(env)


def test_non_tensor_specs_and_data_must_agree():
    env = TextCountingEnv()
    env.observation_spec = Composite(observation=Unbounded((1,)), text=Binary(1))

    assert "'text' must be a tensor" in text_of(env)


def test_done_entries_that_are_no_bools_are_to_be_made_some():
    env = Wrong(lambda td: td.set("terminated", torch.zeros(1)) if "reward" in td.keys() else td)

    assert "('next', 'terminated') must have dtype torch.bool, found torch.float32: make it one with value.bool()" in (
        text_of(env)
    )


def test_the_check_names_an_entry_without_values():
    env = CountingEnv(3, batch_size=(2,)).to("meta")

    with pytest.raises(SpecError, match=r"CountingEnv: '\w+' is on the device 'meta', .*env\.to\('cpu'\)"):
        check_env_specs(env)
