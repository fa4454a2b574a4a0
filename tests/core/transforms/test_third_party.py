"""Transforms written for TorchRL, inside and around batches, on both code paths."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from tensordict import TensorDict

from steppe.batched import ParallelEnv, SerialEnv
from steppe.errors import NotSupported
from steppe.specs import Bounded, Composite, Unbounded
from steppe.transforms import (
    Compose,
    ObservationTransform,
    RewardSum,
    StepCounter,
    Transform,
    TransformedEnv,
    apply_to_composite,
)
from steppe_testing import ArrayCountingEnv, CountingEnv

BASES = {"arrays": ArrayCountingEnv, "tensordict": CountingEnv}


EACH_BASE = pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())


class ChannelsFirst(ObservationTransform):
    """Counts dimensions from the front, as is enough for one image."""

    def __init__(self):
        super().__init__(in_keys=["pixels"], out_keys=["pixels"])

    def _apply_transform(self, obs):
        return obs.permute(2, 0, 1) / 255

    def _reset(self, tensordict, tensordict_reset):
        with self.set_missing_tolerance(True):
            return self._call(tensordict_reset)

    @apply_to_composite
    def transform_observation_spec(self, observation_spec):
        height, width, channels = observation_spec.shape
        return Bounded(0, 1, (channels, height, width))


def test_an_image_is_given_without_a_dimension_for_rows():
    env = TransformedEnv(ArrayCountingEnv(4, pixels=(5, 6)), ChannelsFirst())

    env.check_env_specs()
    assert env.rollout(3)["next", "pixels"].shape == (3, 3, 5, 6)
    inside = SerialEnv(2, lambda: TransformedEnv(ArrayCountingEnv(4, pixels=(5, 6)), ChannelsFirst()))
    inside.check_env_specs()
    assert torch.equal(inside.rollout(3)["pixels"][1], env.rollout(3)["pixels"])


class Seen(Transform):
    """A transform that records its inputs."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def _reset(self, tensordict, tensordict_reset):
        self.seen.append((type(tensordict).__name__, "_reset" in tensordict.keys(), tuple(tensordict.batch_size)))
        return tensordict_reset


def test_a_reset_is_given_a_tensordict_with_or_without_masks():
    seen = []
    env = TransformedEnv(CountingEnv(9, batch_size=(2,)), Seen(seen))

    td = env.reset()
    td["_reset"] = torch.tensor([[True], [False]])
    env.reset(td)

    assert seen == [("TensorDict", False, (2,)), ("TensorDict", True, (2,))]


class Endless(Transform):
    """Writes done without saying anything about it, as all of TorchRL's transforms do."""

    def _step(self, tensordict, next_tensordict):
        late = next_tensordict["observation"] >= 2
        next_tensordict["truncated"] = next_tensordict["truncated"] | late
        next_tensordict["done"] = next_tensordict["done"] | late
        return next_tensordict


class Undone(Transform):
    """Takes an end back."""

    def _call(self, next_tensordict):
        for name in ("done", "terminated"):
            next_tensordict[name] = torch.zeros_like(next_tensordict[name])
        return next_tensordict


PLACES = {
    "alone": lambda base, part: TransformedEnv(base(), part()),
    "SerialEnv, inside": lambda base, part: SerialEnv(2, lambda: TransformedEnv(base(), part())),
    "SerialEnv, outside": lambda base, part: TransformedEnv(SerialEnv(2, base), part()),
    "ParallelEnv, inside": lambda base, part: ParallelEnv(2, lambda: TransformedEnv(base(), part()), num_processes=1),
    "ParallelEnv, outside": lambda base, part: TransformedEnv(ParallelEnv(2, base, num_processes=1), part()),
}


@EACH_BASE
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_a_transform_may_end_episodes_without_declaring_it(place, base):
    with closing(place(lambda: base(5), Endless)) as env:
        data = env.rollout(5, break_when_any_done=False)

    observations = data["observation"].reshape(-1, 5)[0].tolist()
    assert observations == [0, 1, 0, 1, 0]
    assert data["next", "truncated"].reshape(-1, 5)[0].tolist() == [False, True, False, True, False]


@EACH_BASE
@pytest.mark.parametrize("name", ["alone", "SerialEnv, inside", "SerialEnv, outside"])
def test_a_transform_may_take_an_end_back(name, base):
    data = PLACES[name](lambda: base(2), Undone).rollout(4, break_when_any_done=False)

    assert not data["next", "done"].any()
    assert data["next", "observation"].reshape(-1, 4)[0].tolist() == [1, 2, 3, 4]


class OutputsAtOnce(Transform):
    """Changes the specs through the methods for all of them."""

    def _call(self, next_tensordict):
        return next_tensordict.set("mark", torch.ones(1))

    def _reset(self, tensordict, tensordict_reset):
        return self._call(tensordict_reset)

    def _inv_call(self, tensordict):
        return tensordict.set("action", tensordict["action"] / 2)

    def transform_output_spec(self, output_spec):
        output_spec = output_spec.clone()
        output_spec["full_observation_spec", "mark"] = Unbounded((1,))
        return super().transform_output_spec(output_spec)

    def transform_input_spec(self, input_spec):
        input_spec["full_action_spec", "action"] = Bounded(-2.0, 2.0, (2,))
        return super().transform_input_spec(input_spec)


@EACH_BASE
def test_methods_for_whole_groups_of_specs_may_change_them(base):
    """A transform may override the methods for all output and input specs."""
    env = TransformedEnv(base(5, action="continuous"), OutputsAtOnce())

    env.check_env_specs()
    assert env.action_spec.space.high.tolist() == [2, 2]
    assert env.reset()["mark"].item() == 1


def test_a_leaf_is_transformed_unchanged():
    class Twice(Transform):
        def __init__(self):
            super().__init__(["observation"])

        @apply_to_composite
        def transform_observation_spec(self, spec):
            return Unbounded((2 * spec.shape[0],))

    assert Twice().transform_observation_spec(Unbounded((3,))).shape == (6,)


class Tenfold(Transform):
    """Works on data too."""

    def __init__(self):
        super().__init__(["a"], ["b"], ["c"], ["d"])

    def _apply_transform(self, value):
        return 10 * value

    def _inv_apply_transform(self, value):
        return value / 10


def test_values_can_be_given_by_name():
    assert Tenfold()(a=torch.ones(2)).tolist() == [10, 10]
    assert Tenfold()(TensorDict(a=torch.ones(2)))["b"].tolist() == [10, 10]


def test_methods_for_steps_transform_stored_data():
    """Without _apply_transform, forward calls _call with next, and _reset with the root, as an environment does."""

    class ForSteps(Transform):
        def _call(self, next_tensordict):
            return next_tensordict.set("a", next_tensordict["a"] + 1)

        def _reset(self, tensordict, tensordict_reset):
            return tensordict_reset.set("a", tensordict_reset["a"] - 1)

    steps = TensorDict({"a": torch.ones(2), "next": {"a": torch.ones(2)}}, [2])

    assert ForSteps()(TensorDict(a=torch.ones(2)))["a"].tolist() == [2, 2]
    assert ForSteps()(steps) is steps
    assert (steps["a"].tolist(), steps["next", "a"].tolist()) == ([0, 0], [2, 2])


def test_keys_are_lists_of_keys_however_they_are_given():
    transform = Transform(in_keys="a")
    assert (transform.in_keys, transform.out_keys, transform.in_keys_inv, transform.out_keys_inv) == (
        ["a"],
        ["a"],
        [],
        [],
    )

    transform.in_keys = ("agents", "a")
    assert transform.in_keys == transform.out_keys == [("agents", "a")]
    transform.in_keys = ["x", ("y", ("z",))]
    assert transform.in_keys == ["x", ("y", "z")]


def test_keys_may_be_assigned_early_or_be_a_property():
    """Keys may be assigned in the constructor, or computed by a property."""

    class Early(Transform):
        def __init__(self):
            super().__init__()
            self.in_keys, self.out_keys = ["observation"], ["observation"]

        def _apply_transform(self, value):
            return value + 1

    class WorkedOut(Early):
        def __init__(self):
            Transform.__init__(self)

        @property
        def in_keys(self):
            return ["observation"]

    for kind in (Early, WorkedOut):
        assert TransformedEnv(CountingEnv(3), kind()).reset()["observation"].item() == 1


def test_keys_that_are_assigned_later_take_effect():
    class Plus(Transform):
        def _apply_transform(self, value):
            return value + 1

    env = TransformedEnv(ArrayCountingEnv(3), Plus([], []))
    assert env.reset()["observation"].item() == 0
    env.transform.in_keys = ["observation"]
    env.transform.out_keys = ["observation"]
    assert env.reset()["observation"].item() == 1


def test_torchrls_other_methods_exist():
    transform = StepCounter()

    assert transform.dump(path="somewhere") is None
    assert transform.collector is None
    assert not transform.invertible
    assert TransformedEnv(CountingEnv(3), transform).transform.collector is None


@pytest.mark.parametrize("kind", [Transform, Compose])
def test_a_step_mdp_hook_is_refused(kind):
    class Hidden(kind):
        def _post_step_mdp_hooks(self, tensordict, tensordict_):
            return tensordict, tensordict_

    with pytest.raises(NotSupported, match="Hidden defines _post_step_mdp_hooks, which is never called"):
        TransformedEnv(CountingEnv(3), Hidden()).reset()
    with pytest.raises(NotSupported, match="Hidden defines"):
        SerialEnv(2, lambda: TransformedEnv(CountingEnv(3), Compose(StepCounter(), Hidden()))).reset()


@pytest.mark.parametrize("add", ["transform", "append", "insert"])
def test_a_transform_is_moved_to_the_device_of_its_environment(add):
    class Scaled(Transform):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.ones(1))

    env, transform = TransformedEnv(CountingEnv(3, device="cpu"), RewardSum()), Scaled()
    env.base_env.to("meta")
    env.empty_cache()
    if add == "transform":
        env.transform = transform
    elif add == "append":
        env.append_transform(transform)
    else:
        env.insert_transform(0, transform)

    assert transform.scale.device.type == "meta"


def test_specs_may_be_composites_of_the_environment_with_more():
    class Marked(Transform):
        def _call(self, next_tensordict):
            return next_tensordict.set(("extra", "mark"), torch.ones(1))

        def _reset(self, tensordict, tensordict_reset):
            return self._call(tensordict_reset)

        def transform_observation_spec(self, observation_spec):
            return observation_spec.update(Composite(extra=Composite(mark=Unbounded((1,)))))

    env = SerialEnv(2, lambda: TransformedEnv(ArrayCountingEnv(3), Marked()))

    env.check_env_specs()
    assert env.rollout(2)["next", "extra", "mark"].shape == (2, 2, 1)
