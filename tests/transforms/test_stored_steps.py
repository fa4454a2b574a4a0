"""Every transform of every package transforms data that comes from no environment, or says that it needs one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn

import steppe.transforms as t
from steppe import EnvBase, SerialEnv, TransformedEnv
from steppe.errors import NotSupported, SpecError
from steppe.specs import Binary, Bounded, OneHot, Unbounded
from steppe.transforms import Compose, Transform
from steppe_replay import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement, SliceSampler
from steppe_testing import DataEnv

#: Two rows, with episodes of 3 and 5 steps.
ROWS, LENGTHS, T = 2, (3, 5), 8
SPEC = {
    "observation": Unbounded((3,)),
    "other": Unbounded((3,)),
    "pixels": Bounded(0, 255, (6, 6, 3), dtype=torch.uint8),
    "image": Bounded(0, 255, (3, 6, 6), dtype=torch.uint8),
    "column": Unbounded((2, 1)),
    "double": Unbounded((2,), dtype=torch.float64),
    "success": Binary(shape=(1,), dtype=torch.bool),
}
OBSERVATION = ["observation", ("next", "observation")]


def base(**kwargs: Any) -> EnvBase:
    return SerialEnv(ROWS, [partial(DataEnv, dict(SPEC), max_steps=length, **kwargs) for length in LENGTHS])


def both(name: str) -> list[Any]:
    """Return the key of an entry of the root, and of the same below ``next``."""
    return [name, ("next", name)]


def in_both(make: Callable[[Callable[[Any], Any]], Transform]) -> Transform:
    """Return one transform of entries of the root, and one of entries below ``next``."""
    return Compose(make(lambda key: key), make(lambda key: ("next", key)))


def to_go(data: TensorDictBase) -> TensorDictBase:
    """Return the sums of rewards to the end of the episode, discounted by 0.5."""
    data, total = data.clone(), torch.zeros(ROWS, 1)
    for step in reversed(range(T)):
        total = data["next", "reward"][:, step] + 0.5 * total * ~data["next", "done"][:, step]
        data["next", "reward"][:, step] = total
    return data


def flagged(data: TensorDictBase) -> TensorDictBase:
    far = data["next", "observation"][..., :1] > 0
    for name in ("done", "terminated"):
        data["next", name] = data["next", name] | far
    return data


def shifted(data: TensorDictBase) -> TensorDictBase:
    following = data["next", "observation"].clone()
    ended = data["next", "done"].clone()
    ended[:, -1] = True
    return data.set(("next", "observation"), following.masked_fill(ended, -1.0))


def burnt(data: TensorDictBase) -> TensorDictBase:
    rest = data[:, 2:].clone()
    hidden = torch.zeros(*rest.batch_size, 3)
    hidden[:, 0] = 2 * data["observation"][:, 1]
    return rest.set("hidden", hidden)


double = TensorDictModule(lambda x: 2 * x, in_keys=["observation"], out_keys=[("next", "hidden")])


def noise() -> Transform:
    transform = t.gSDENoise(3, 2, expand_specs=True)
    transform._set_seed(0)
    return transform


def frozen() -> Transform:
    """Return statistics of some data, which do not change any more."""
    norm = t.VecNorm(in_keys=["observation", "reward"], shapes=[(3,), (1,)])
    data = {"observation": torch.linspace(-2, 3, 60).reshape(20, 3), "reward": torch.linspace(-3, 1, 20).unsqueeze(1)}
    norm(TensorDict(data, [20]))
    return norm.freeze()


def frozen_v2() -> Transform:
    norm = t.VecNormV2(in_keys=["observation"], reduce_batch_dims=True)
    norm(TensorDict({"observation": torch.linspace(-2, 3, 60).reshape(20, 3)}, [20]))
    return norm.freeze()


@dataclass
class Case:
    """How a transform is tested.

    Attributes:
        make: makes it for an environment.
        on_data: makes it for stored data, with the keys of the root and of ``next``; default: ``make``.
        env: makes the environment of the data.
        expected: function of the data that returns the result; default: what an environment with the transform gives.
        keys: the entries to compare; default: all.
        writes: the transform works on data that is written, and leaves samples as they are.
        needs_env: what the error says that the transform does in its environment.
    """

    make: Callable[[], Transform]
    on_data: Callable[[], Transform] | None = None
    env: Callable[[], EnvBase] = base
    expected: Callable[[TensorDictBase], TensorDictBase] | None = None
    keys: Any = None
    writes: bool = False
    needs_env: str = ""


def unchanged(data: TensorDictBase) -> TensorDictBase:
    return data


def like_image(cls: Any, *args: Any) -> Case:
    return Case(lambda: cls(*args, in_keys=["image"]), lambda: cls(*args, in_keys=both("image")))


CASES: dict[str, Case] = {
    "ActionDiscretizer": Case(lambda: t.ActionDiscretizer(3), needs_env="indices of intervals"),
    "ActionMask": Case(lambda: t.ActionMask(), needs_env="draws random actions in its environment"),
    "ActionScaling": Case(
        lambda: t.ActionScaling(loc=0.5, scale=2.0),
        expected=lambda data: data.set("action", (data["action"] - 0.5) / 2),
    ),
    "AutoResetTransform": Case(lambda: t.AutoResetTransform(), needs_env="environments that reset themselves"),
    "BatchSizeTransform": Case(
        lambda: t.BatchSizeTransform(reshape_fn=lambda data: data.reshape(-1)), expected=lambda data: data.reshape(-1)
    ),
    "BinarizeReward": Case(lambda: t.BinarizeReward()),
    "BurnInTransform": Case(lambda: t.BurnInTransform(double, 2), expected=burnt),
    "CallableTransform": Case(
        lambda: t.CallableTransform(lambda td: td.set("sum", td["observation"].sum(-1, keepdim=True))), keys=["sum"]
    ),
    "CatFrames": Case(lambda: t.CatFrames(3, -1, ["observation"]), lambda: t.CatFrames(3, -1, OBSERVATION)),
    "CatTensors": Case(
        lambda: t.CatTensors(["observation", "other"], "cat"),
        lambda: in_both(lambda key: t.CatTensors([key("observation"), key("other")], key("cat"))),
    ),
    "CenterCrop": like_image(t.CenterCrop, 4),
    "ClipTransform": Case(
        lambda: t.ClipTransform(["observation"], low=-0.5, high=0.5),
        lambda: t.ClipTransform(OBSERVATION, low=-0.5, high=0.5),
    ),
    "Compose": Case(
        lambda: Compose(t.UnsqueezeTransform(-1, in_keys=["observation"]), t.RewardClipping(0, 1), t.StepCounter()),
        lambda: Compose(t.UnsqueezeTransform(-1, in_keys=OBSERVATION), t.RewardClipping(0, 1), t.StepCounter()),
    ),
    "ConditionalPolicySwitch": Case(
        lambda: t.ConditionalPolicySwitch(unchanged, lambda td: td["done"]), needs_env="steps its environment"
    ),
    "ConditionalSkip": Case(lambda: t.ConditionalSkip(lambda td: True), needs_env="skips steps of its environment"),
    "Crop": like_image(t.Crop, 4, 3),
    "DTypeCastTransform": Case(
        lambda: t.DTypeCastTransform(torch.float32, torch.float64, in_keys=["observation"]),
        lambda: t.DTypeCastTransform(torch.float32, torch.float64, in_keys=OBSERVATION),
    ),
    "DeviceCastTransform": Case(lambda: t.DeviceCastTransform("cpu")),
    "DiscreteActionProjection": Case(
        lambda: t.DiscreteActionProjection(2, 4),
        env=lambda: base(action=OneHot(2)),
        expected=lambda data: data.set("action", nn.functional.pad(data["action"], (0, 2))),
    ),
    "DoubleToFloat": Case(lambda: t.DoubleToFloat()),
    "EndOfLifeTransform": Case(lambda: t.EndOfLifeTransform(), needs_env="reads the lives of its environment"),
    "ExcludeTransform": Case(lambda: t.ExcludeTransform("other"), lambda: t.ExcludeTransform(*both("other"))),
    "ExpandAs": Case(
        lambda: t.ExpandAs("success", "column", "wide"),
        lambda: in_both(lambda key: t.ExpandAs(key("success"), key("column"), key("wide"))),
    ),
    "FiniteTensorDictCheck": Case(lambda: t.FiniteTensorDictCheck()),
    "FlattenAction": Case(
        lambda: t.FlattenAction(action_shape=(2, 3)),
        env=lambda: base(action=Bounded(-1.0, 1.0, (2, 3))),
        expected=lambda data: data.set("action", data["action"].flatten(-2, -1)),
    ),
    "FlattenObservation": Case(
        lambda: t.FlattenObservation(-2, -1, ["column"]), lambda: t.FlattenObservation(-2, -1, both("column"))
    ),
    "FrameSkipTransform": Case(lambda: t.FrameSkipTransform(2), needs_env="steps its environment"),
    "GrayScale": like_image(t.GrayScale),
    "Hash": Case(
        lambda: t.Hash(["observation"], ["hash"], seed="salt"), lambda: t.Hash(OBSERVATION, both("hash"), seed="salt")
    ),
    "InitTracker": Case(lambda: t.InitTracker()),
    "LineariseRewards": Case(
        lambda: t.LineariseRewards(in_keys=["reward"], weights=[1.0, -2.0]), env=lambda: base(reward=Unbounded((2,)))
    ),
    "MultiAction": Case(lambda: t.MultiAction(), needs_env="steps its environment"),
    "MultiStepTransform": Case(lambda: t.MultiStepTransform(1, 0.5), keys=[("next", "reward")], writes=True),
    "NextStateReconstructor": Case(
        lambda: t.NextStateReconstructor(traj_key=None, fill_value=-1.0),
        lambda: Compose(
            t.ExcludeTransform(("next", "observation")), t.NextStateReconstructor(traj_key=None, fill_value=-1.0)
        ),
        expected=shifted,
    ),
    "NoopResetEnv": Case(lambda: t.NoopResetEnv(3), needs_env="steps its environment"),
    "ObservationNorm": Case(
        lambda: t.ObservationNorm(0.5, 2.0, in_keys=["observation"]),
        lambda: t.ObservationNorm(0.5, 2.0, in_keys=OBSERVATION),
    ),
    "PermuteTransform": Case(
        lambda: t.PermuteTransform((-1, -3, -2), in_keys=["image"]),
        lambda: t.PermuteTransform((-1, -3, -2), in_keys=both("image")),
    ),
    "PinMemoryTransform": Case(lambda: t.PinMemoryTransform()),
    # Nothing is rendered without an environment, as in TorchRL.
    "PixelRenderTransform": Case(lambda: t.PixelRenderTransform(), expected=unchanged),
    "RandomCropTensorDict": Case(lambda: t.RandomCropTensorDict(T), expected=unchanged),
    "RandomTruncationTransform": Case(lambda: t.RandomTruncationTransform(2, 3), needs_env="ends episodes"),
    "RemoveEmptySpecs": Case(lambda: t.RemoveEmptySpecs()),
    "RenameTransform": Case(
        lambda: t.RenameTransform(["other"], ["name"]), lambda: t.RenameTransform(both("other"), both("name"))
    ),
    "Resize": like_image(t.Resize, 4, 4),
    "Reward2GoTransform": Case(lambda: t.Reward2GoTransform(0.5), expected=to_go, writes=True),
    "RewardClipping": Case(lambda: t.RewardClipping(-0.25, 0.5)),
    "RewardScaling": Case(lambda: t.RewardScaling(0.5, 2.0)),
    "RewardSum": Case(lambda: t.RewardSum()),
    "SelectTransform": Case(
        lambda: t.SelectTransform("observation"),
        lambda: t.SelectTransform(
            "action", *OBSERVATION, ("next", "reward"), *both("done"), *both("terminated"), *both("truncated")
        ),
    ),
    "SignTransform": Case(lambda: t.SignTransform(["observation"]), lambda: t.SignTransform(OBSERVATION)),
    "SqueezeTransform": Case(
        lambda: t.SqueezeTransform(-1, in_keys=["column"]), lambda: t.SqueezeTransform(-1, in_keys=both("column"))
    ),
    "Stack": Case(
        lambda: t.Stack(["observation", "other"], "both"),
        lambda: in_both(lambda key: t.Stack([key("observation"), key("other")], key("both"))),
    ),
    "StepCounter": Case(lambda: t.StepCounter()),
    "SuccessReward": Case(lambda: t.SuccessReward(scale=3.0)),
    "TargetReturn": Case(lambda: t.TargetReturn(4.0)),
    "TensorDictPrimer": Case(
        lambda: t.TensorDictPrimer({"hidden": Unbounded((2,))}, expand_specs=True, default_value=1.0), keys=["hidden"]
    ),
    "TensorDictRecorder": Case(lambda: t.TensorDictRecorder("unused"), expected=unchanged),
    "TerminateTransform": Case(
        lambda: t.TerminateTransform(lambda td: td["observation"][..., 0] > 0), expected=flagged
    ),
    "TimeMaxPool": Case(lambda: t.TimeMaxPool(T=3)),
    "Timer": Case(lambda: t.Timer(), needs_env="measures the time of its environment"),
    "ToTensorImage": Case(lambda: t.ToTensorImage(in_keys=["pixels"]), lambda: t.ToTensorImage(in_keys=both("pixels"))),
    "TrajCounter": Case(lambda: t.TrajCounter()),
    "UnaryTransform": Case(
        lambda: t.UnaryTransform(["observation"], ["square"], fn=torch.square),
        lambda: t.UnaryTransform(OBSERVATION, both("square"), fn=torch.square),
    ),
    "UnsqueezeTransform": Case(
        lambda: t.UnsqueezeTransform(-1, in_keys=["observation"]), lambda: t.UnsqueezeTransform(-1, in_keys=OBSERVATION)
    ),
    "VecNorm": Case(frozen, keys=["observation", ("next", "reward")]),
    "VecNormV2": Case(frozen_v2, keys=["observation"]),
    "VideoRecorder": Case(lambda: t.VideoRecorder(None, "unused", in_keys=["pixels"]), expected=unchanged),
    # Drawn for each step of the data, because it is an entry of the root.
    "gSDENoise": Case(lambda: noise(), expected=lambda data: noise()(data)),
}


def rollout(env: EnvBase, **kwargs: Any) -> TensorDictBase:
    env.set_seed(0)
    return env.rollout(T, break_when_any_done=False, **kwargs)


def stored(case: Case) -> TensorDictBase:
    torch.manual_seed(0)
    return rollout(case.env())


def expected_of(case: Case, data: TensorDictBase) -> TensorDictBase:
    if case.expected is not None:
        return case.expected(data.clone())
    return rollout(TransformedEnv(case.env(), case.make()), actions=data["action"].transpose(0, 1))


# -- the five places -------------------------------------------------------------------------------------------------


def alone(transform: Transform, data: TensorDictBase) -> TensorDictBase:
    return transform(data)


def in_a_compose(transform: Transform, data: TensorDictBase) -> TensorDictBase:
    return Compose(transform)(data)


def in_a_sequential(transform: Transform, data: TensorDictBase) -> TensorDictBase:
    return nn.Sequential(transform, nn.Identity())(data)


def on_extend(transform: Transform, data: TensorDictBase) -> TensorDictBase:
    """Return what a buffer has written."""
    buffer = ReplayBuffer(storage=LazyTensorStorage(ROWS * T))
    buffer.append_transform(transform, invert=True)
    buffer.extend(data)
    return buffer.storage.take(buffer.storage.all_rows())


def on_sample(transform: Transform, data: TensorDictBase) -> TensorDictBase:
    """Return a sample of all rows in order; each row of the buffer has the steps of one environment."""
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(ROWS), sampler=SamplerWithoutReplacement(shuffle=False), batch_size=ROWS
    )
    buffer.extend(data)
    buffer.append_transform(transform)
    return buffer.sample()


PLACES = (alone, in_a_compose, in_a_sequential, on_extend, on_sample)


def assert_same(data: TensorDictBase, expected: TensorDictBase, keys: Any) -> None:
    found = set(data.keys(include_nested=True, leaves_only=True))
    wanted = set(expected.keys(include_nested=True, leaves_only=True))
    if keys is None:
        assert found == wanted
        keys = wanted
    assert data.batch_size == expected.batch_size
    for key in keys:
        assert data[key].dtype == expected[key].dtype, key
        assert torch.equal(data[key], expected[key]), key


def names_of_all() -> set[str]:
    core = {
        name
        for name in ("Compose", "InitTracker", "StepCounter")
        if getattr(t, name).__module__.startswith("steppe.transforms")
    }
    points = entry_points(group="steppe.transforms")
    # steppe-pretrained needs torchvision; tests/transforms/pretrained calls its transforms in the five places.
    apart = {point.name for point in points if point.value.startswith("steppe_pretrained")}
    return core | {point.name for point in points if point.value.startswith("steppe_")} - apart


def test_every_transform_has_a_case():
    assert set(CASES) == names_of_all()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.needs_env and not case.writes])
def test_data_is_transformed_as_in_an_environment(name, place):
    case = CASES[name]
    data = stored(case)
    expected = expected_of(case, data)

    assert_same(place((case.on_data or case.make)(), data.clone()), expected, case.keys)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.writes])
def test_a_transform_of_written_data_leaves_samples(name):
    """Its inverse transforms data on the way into a buffer; elsewhere it changes nothing."""
    case = CASES[name]
    data = stored(case)
    expected = case.expected(data) if case.expected is not None else data
    for place in (alone, in_a_compose, in_a_sequential):
        assert_same(place(case.make(), data.clone()), data, None)
    buffer = ReplayBuffer(storage=LazyTensorStorage(ROWS * T, ndim=2), transform=case.make(), batch_size=4)
    buffer.extend(data.clone())

    assert_same(buffer[:], expected, case.keys or list(expected.keys(include_nested=True, leaves_only=True)))
    assert_same(case.make().inv(data.clone()), expected, case.keys)
    assert_same(Compose(case.make()).inv(data.clone()), expected, case.keys)
    sample = buffer.sample()
    assert all(value in expected["next", "reward"] for value in sample["next", "reward"])


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.needs_env])
def test_transforms_of_environments_refuse_stored_data(name, place):
    case = CASES[name]
    with pytest.raises(NotSupported, match=case.needs_env) as raised:
        place(case.make(), stored(case))
    assert "Append it to the environment" in str(raised.value) or "out_action_key" in str(raised.value)


OVER_TIME = [
    name for name, case in CASES.items() if case.make().over_time and case.expected is None and not case.writes
]


def test_transforms_over_time_are_those_that_keep_values():
    assert set(OVER_TIME) == {
        *("CatFrames", "Compose", "InitTracker", "RewardSum", "StepCounter", "TargetReturn", "TimeMaxPool"),
        "TrajCounter",
    }


@pytest.mark.parametrize("name", OVER_TIME)
def test_slices_of_a_sample_are_transformed_separately(name):
    """Slices of one trajectory, one after the other in a sample, have nothing to do with each other."""
    case = CASES[name]
    data = stored(case)[1]
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(T),
        sampler=SliceSampler(slice_len=3),
        batch_size=30,
        transform=(case.on_data or case.make)(),
    )
    buffer.extend(data)
    plain = ReplayBuffer(storage=LazyTensorStorage(T), sampler=SliceSampler(slice_len=3), batch_size=30)
    plain.extend(data)
    torch.manual_seed(1)
    sample = buffer.sample()
    torch.manual_seed(1)
    slices = plain.sample().reshape(-1, 3).unbind(0)
    transform = (case.on_data or case.make)()
    expected = torch.cat([transform(each.clone()) for each in slices])
    keys = [key for key in expected.keys(include_nested=True, leaves_only=True) if key[-1] not in ("done", "truncated")]

    assert_same(sample, expected, keys)


@pytest.mark.parametrize("name", OVER_TIME)
def test_rows_in_no_order_are_refused(name):
    case = CASES[name]
    buffer = ReplayBuffer(storage=LazyTensorStorage(T), batch_size=4, transform=(case.on_data or case.make)())
    buffer.extend(stored(case)[0])

    with pytest.raises(SpecError, match=r"in no order\. Sample slices: sampler=SliceSampler.*invert=True"):
        buffer.sample()


@pytest.mark.parametrize("name", OVER_TIME)
def test_trajectories_end_where_their_numbers_change(name):
    """Without done entries below next, ("collector", "traj_ids") says where."""
    case = CASES[name]
    data = stored(case)
    expected = expected_of(case, data)
    ended = data["next", "done"].squeeze(-1).long()
    data["collector", "traj_ids"] = ended.cumsum(1) - ended
    data["next", "done"] = torch.zeros_like(data["next", "done"])
    result = (case.on_data or case.make)()(data)

    written = [key for key in expected.keys(include_nested=True, leaves_only=True) if key[-1] not in ("done",)]
    assert_same(result, expected, written)


@pytest.mark.parametrize("name", OVER_TIME)
def test_roots_may_lack_done_entries(name):
    """Data sets and hand-made data often have them below next only."""
    case = CASES[name]
    data, flags = stored(case), ("done", "terminated", "truncated")
    expected = expected_of(case, data).exclude(*flags)
    result = (case.on_data or case.make)()(data.exclude(*flags))
    assert_same(result, expected, None)


def test_a_limit_of_steps_marks_roots_that_lack_done_entries():
    data = stored(CASES["StepCounter"])
    data["next", "done"] = torch.zeros_like(data["next", "done"])
    expected = t.StepCounter(max_steps=3)(data.clone())
    result = t.StepCounter(max_steps=3)(data.exclude("done", "terminated", "truncated"))
    assert_same(result, expected, [key for key in result.keys(True, True) if key != "terminated"])


@pytest.mark.parametrize("name", OVER_TIME)
def test_the_dimension_named_time_may_be_any(name):
    case = CASES[name]
    data = stored(case)
    expected = expected_of(case, data)
    turned = data.transpose(0, 1)
    turned.names = ["time", None]

    result = (case.on_data or case.make)()(turned).transpose(0, 1)
    assert_same(result, expected, None)


def test_a_limit_of_steps_cuts_stored_data():
    """After max_steps the count begins anew, as behind the end of an episode."""
    data = stored(CASES["StepCounter"])[1]
    data["next", "done"] = torch.zeros_like(data["next", "done"])
    result = t.StepCounter(max_steps=3)(data)

    assert result["next", "step_count"].flatten().tolist() == [1, 2, 3, 1, 2, 3, 1, 2]
    assert result["step_count"].flatten().tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert result["next", "truncated"].flatten().tolist() == [False, False, True] * 2 + [False, False]


def test_gradients_flow_through_stored_steps():
    data = stored(CASES["TargetReturn"])
    reward = data["next", "reward"].clone().requires_grad_()
    data["next", "reward"] = reward

    t.TargetReturn(4.0)(data)["next", "target_return"].sum().backward()
    assert reward.grad is not None
    assert bool((reward.grad < 0).all())


@pytest.mark.parametrize(
    "name", ["BurnInTransform", "MultiStepTransform", "NextStateReconstructor", "RandomCropTensorDict"]
)
def test_an_environment_refuses_transforms_of_stored_data(name):
    with pytest.raises(NotSupported, match="works on stored data only"):
        TransformedEnv(base(), CASES[name].make()).reset()
