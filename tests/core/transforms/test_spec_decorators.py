"""Decorators of methods that are written for the spec of one entry, and what other methods do with one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from steppe import TransformedEnv
from steppe.errors import SpecError
from steppe.specs import Bounded, Composite, Unbounded
from steppe.transforms import (
    Compose,
    ObservationTransform,
    StepCounter,
    Transform,
    apply_to_composite,
    apply_to_composite_inv,
)
from steppe_testing import ArrayCountingEnv, CountingEnv

vector = Unbounded((5,))


class Doubled(ObservationTransform):
    """Twice the observation; subclasses say its spec in different ways."""

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return torch.cat([value, value], -1)

    def _reset(self, tensordict: Any, tensordict_reset: Any) -> Any:
        return self._call(tensordict_reset)


class OfALeaf(Doubled):
    @apply_to_composite
    def transform_observation_spec(self, spec):
        return Unbounded((*spec.shape[:-1], 2 * spec.shape[-1]), dtype=spec.dtype)


class Either(Doubled):
    def transform_observation_spec(self, spec):
        if isinstance(spec, Composite):
            spec["observation"] = self.transform_observation_spec(spec["observation"])
            return spec
        return super().transform_observation_spec(Unbounded((2 * spec.shape[-1],), dtype=spec.dtype))


@pytest.mark.parametrize("kind", [OfALeaf, Either])
@pytest.mark.parametrize("base", [CountingEnv, ArrayCountingEnv])
def test_a_subclass_may_say_its_spec_of_a_leaf(kind, base):
    assert kind().transform_observation_spec(vector) == Unbounded((10,))
    assert Compose(kind(), kind()).transform_observation_spec(vector) == Unbounded((20,))

    env = TransformedEnv(base(6), Compose(kind(), StepCounter()))
    assert env.observation_spec["observation"].shape == (2,)
    env.check_env_specs()
    assert env.rollout(3)["next", "observation"].tolist() == [[1, 1], [2, 2], [3, 3]]


def test_the_inverse_decorator_takes_a_leaf():
    class Wide(Transform):
        @apply_to_composite_inv
        def transform_action_spec(self, spec):
            return Bounded(-9, 9, spec.shape)

    wide = Wide(in_keys_inv=["action"])
    assert wide.transform_action_spec(Bounded(-1, 1, (2,))) == Bounded(-9, 9, (2,))
    assert wide.transform_action_spec(Composite(action=Bounded(-1, 1, (3,))))["action"] == Bounded(-9, 9, (3,))


@pytest.mark.parametrize("kind", ["observation", "reward", "done", "action"])
def test_a_leaf_for_a_composite_is_refused(kind):
    """The error names the decorator for the entries that the transform reads or inverts."""

    class Unclear(Transform):
        pass

    setattr(Unclear, f"transform_{kind}_spec", lambda self, spec: Unbounded((1,)))
    env = TransformedEnv(CountingEnv(6), Unclear())
    decorator = "apply_to_composite_inv" if kind == "action" else "apply_to_composite"

    with pytest.raises(SpecError, match=rf"Unclear.transform_{kind}_spec received a Composite.* with {decorator} "):
        _ = env.observation_spec


def test_a_method_for_composites_refuses_a_leaf():
    with pytest.raises(SpecError, match=r"StepCounter.transform_done_spec takes a Composite, found Unbounded"):
        StepCounter(9).transform_done_spec(vector)
