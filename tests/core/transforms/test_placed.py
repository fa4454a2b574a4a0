"""Errors of transforms that need an environment but have none."""

from __future__ import annotations

import pytest
from tensordict import TensorDict

from steppe.errors import NotSupported, StateError
from steppe.transforms import InitTracker, SteppingTransform


class StepsTwice(SteppingTransform):
    def _step(self, tensordict, next_tensordict):
        return self.env.step(tensordict)["next"]


@pytest.mark.parametrize(
    ("transform", "does"),
    [(InitTracker(), "works on the data of an environment"), (StepsTwice(), "steps its environment")],
    ids=["planned", "stepping"],
)
def test_its_methods_name_the_line_that_attaches_it(transform, does):
    name = type(transform).__name__
    with pytest.raises(StateError) as raised:
        transform._step(TensorDict({}, []), TensorDict({}, []))

    assert str(raised.value) == (
        f"{name} {does}, and belongs to none. Append it to one: env.append_transform({name}(...))."
    )


def test_stored_data_is_refused_with_the_right_place():
    with pytest.raises(NotSupported, match=r"stored data\. Append it to the environment that collects"):
        StepsTwice()(TensorDict({}, []))
