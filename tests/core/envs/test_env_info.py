"""reset(env_info=...): values that a reset is given."""

from __future__ import annotations

import pytest
import torch

from steppe.batched import SerialEnv
from steppe.errors import SpecError
from steppe.transforms import StepCounter, TransformedEnv
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
)


@pytest.mark.parametrize("array_path", [True, False])
def test_env_info_sets_the_start_of_an_array_environment(array_path):
    env = ArrayCountingEnv(env_info=True, array_path=array_path)

    assert env.reset(env_info={"start": torch.tensor([7])})["observation"].item() == 7
    assert env.reset()["observation"].item() == 0


def test_env_info_is_given_for_each_row():
    env = CountingEnv(batch_size=(3,), env_info=True)
    td = env.reset(env_info={"start": torch.tensor([[1], [2], [3]])})

    assert td["observation"].squeeze(-1).tolist() == [1, 2, 3]


def test_env_info_with_other_keys_or_shapes_is_refused():
    env = CountingEnv(batch_size=(3,), env_info=True)

    with pytest.raises(SpecError, match=r"env_info of CountingEnv has \['start'\].*found \['begin'\]"):
        env.reset(env_info={"begin": torch.zeros(3, 1)})
    with pytest.raises(SpecError, match=r"shape \(3, 1\), found \(2, 1\)"):
        env.reset(env_info={"start": torch.zeros(2, 1)})


@pytest.mark.parametrize(
    "make",
    [
        CountingEnv,
        ArrayCountingEnv,
        lambda: TransformedEnv(CountingEnv(), StepCounter()),
        lambda: SerialEnv(2, CountingEnv),
        lambda: SerialEnv(2, ArrayCountingEnv),
    ],
)
def test_env_info_without_a_spec_says_how_to_declare_one(make):
    env = make()
    text = (
        r"takes no env_info, and was given \['start'\].*self.env_info_spec = "
        r"Composite\(start=Unbounded\(shape, dtype=...\)\).*reset_into in its env_info.*options="
    )
    with pytest.raises(SpecError, match=text):
        env.reset(env_info={"start": torch.zeros((*env.batch_size, 1), dtype=torch.int64)})


@pytest.mark.parametrize("make", [ArrayCountingEnv, CountingEnv])
def test_env_info_of_some_rows_must_match_their_number(make):
    env = SerialEnv(3, lambda: make(env_info=True))
    env.reset()

    assert env.reset_at(None, [0, 2], env_info={"start": torch.tensor([[4], [5]])})["observation"].sum() == 9
    with pytest.raises(SpecError, match=r"env_info\['start'\] must have shape \(2, 1\), found \(1, 1\)"):
        env.reset_at(None, [0, 2], env_info={"start": torch.tensor([[4]])})


@pytest.mark.parametrize("kind", [ArrayCountingEnv, CountingEnv])
def test_an_automatic_reset_repeats_the_env_info(kind):
    """The next episode uses the env_info of the last reset."""
    env = kind(2, env_info=True)
    td = env.reset(env_info={"start": torch.tensor([5])})

    for _ in range(2):
        _, td = env.step_and_maybe_reset(env.rand_action(td))

    assert td["observation"].unique().tolist() == [5]
