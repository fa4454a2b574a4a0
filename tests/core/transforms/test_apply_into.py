"""Transforms that write their result where it is to be."""

from __future__ import annotations

import pytest
import torch

from steppe import Bounded, SerialEnv, TransformedEnv
from steppe.transforms import ObservationTransform
from steppe_testing import ArrayDataEnv


class Doubled(ObservationTransform):
    keeps_nothing = True

    def __init__(self, in_keys=("pixels",), out_keys=("twice",)):
        super().__init__(list(in_keys), list(out_keys))
        self.written = 0

    def _apply_transform(self, value):
        return value * 2

    def apply_into(self, value, out):
        self.written += 1
        torch.mul(value, 2, out=out)

    def transform_observation_spec(self, observation_spec):
        for key, out_key in zip(self.in_keys, self.out_keys, strict=True):
            observation_spec[out_key] = Bounded(0.0, 2.0, observation_spec[key].shape)
        return observation_spec


class Tripled(Doubled):
    def _apply_transform(self, value):
        return value * 3

    def transform_observation_spec(self, observation_spec):
        observation_spec["twice"] = Bounded(0.0, 3.0, observation_spec["pixels"].shape)
        return observation_spec


def frames():
    return ArrayDataEnv({"pixels": Bounded(0.0, 1.0, (3, 4))})


def test_results_of_rows_are_written_where_they_are_to_be():
    transform = Doubled()
    data = TransformedEnv(frames(), transform).rollout(4, break_when_any_done=False)

    assert transform.written >= 4
    assert torch.equal(data["next", "twice"], data["next", "pixels"] * 2)


def test_replacing_an_entry_does_not_write_what_is_still_read():
    """A transform that replaces an entry reads and writes different memory."""
    env = TransformedEnv(frames(), Doubled(out_keys=["pixels"]))
    env.set_seed(0)
    found = env.rollout(4, break_when_any_done=False)["next", "pixels"]
    plain = frames()
    plain.set_seed(0)

    assert torch.equal(found, plain.rollout(4, break_when_any_done=False)["next", "pixels"] * 2)


def test_a_subclass_with_another_function_is_not_passed_over():
    transform = Tripled()
    data = TransformedEnv(frames(), transform).rollout(4, break_when_any_done=False)

    assert transform.written == 0
    assert torch.equal(data["next", "twice"], data["next", "pixels"] * 3)


class Shared(Doubled):
    def shared_key(self):
        return type(self)


@pytest.mark.parametrize("kind", [Doubled, Shared])
@pytest.mark.parametrize("inside", [True, False])
def test_batches_have_the_same_data(inside, kind):
    if inside:
        env = SerialEnv(3, lambda: TransformedEnv(frames(), kind()))
    else:
        env = TransformedEnv(SerialEnv(3, frames), kind())
    data = env.rollout(4, break_when_any_done=False)

    assert torch.equal(data["next", "twice"], data["next", "pixels"] * 2)
    assert torch.equal(data["twice"], data["pixels"] * 2)
