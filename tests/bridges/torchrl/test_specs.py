"""Conversion of specs to TorchRL's and back."""

from __future__ import annotations

import pytest
import torch
from tensordict import NonTensorData, TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn

import steppe.specs as ours
from steppe import RandomPolicy, TensorDictPrimer
from steppe.errors import SpecError
from steppe_testing import CountingEnv, MultiAgentCountingEnv

theirs = pytest.importorskip("torchrl.data")
bridge = pytest.importorskip("steppe_torchrl")
modules = pytest.importorskip("torchrl.modules")
objectives = pytest.importorskip("torchrl.objectives")
to_torchrl, from_torchrl = bridge.to_torchrl, bridge.from_torchrl

pytestmark = pytest.mark.matrix

MASK = torch.tensor([[True, False, True], [False, True, True]])


class Place:
    """Non-tensor data."""


PLACE = Place()

# How a spec is made, with the classes of either library.
SPECS = {
    "bounded": lambda lib: lib.Bounded(torch.tensor([-1.0, -2.0]), torch.tensor([1.0, 3.0]), device="cpu"),
    "bounded integers": lambda lib: lib.Bounded(0, 255, (3, 4), dtype=torch.uint8, device="cpu"),
    "bounded, one end": lambda lib: lib.Bounded(0.0, float("inf"), (2,), dtype=torch.float64, device="cpu"),
    "bounded, dynamic": lambda lib: lib.Bounded(-1, 1, (2, -1), device="cpu"),
    "bounded, other domain": lambda lib: lib.Bounded(0, 4, (2,), domain="discrete", device="cpu"),
    "unbounded": lambda lib: lib.Unbounded((2, -1), device="cpu"),
    "unbounded bools": lambda lib: lib.Unbounded((2,), dtype=torch.bool, device="cpu"),
    "unbounded integers": lambda lib: lib.Unbounded((), dtype=torch.int64, device="cpu"),
    "categorical": lambda lib: lib.Categorical(3, (2,), dtype=torch.int32, device="cpu"),
    "categorical, masked": lambda lib: lib.Categorical(3, (2,), mask=MASK, device="cpu"),
    "categorical, unknown": lambda lib: lib.Categorical(-1, (2,), device="cpu"),
    "one-hot": lambda lib: lib.OneHot(3, device="cpu"),
    "one-hot, masked": lambda lib: lib.OneHot(3, (2, 3), dtype=torch.int64, mask=MASK, device="cpu"),
    "multi-categorical": lambda lib: lib.MultiCategorical((2, 3), (4, 2), device="cpu"),
    "multi-categorical, masked": lambda lib: lib.MultiCategorical(
        (2, 1), mask=torch.tensor([True, False, True]), device="cpu"
    ),
    "multi-one-hot": lambda lib: lib.MultiOneHot((2, 3), (4, 5), device="cpu"),
    "multi-one-hot, masked": lambda lib: lib.MultiOneHot(
        (2, 1), dtype=torch.uint8, mask=torch.tensor([True, False, True]), device="cpu"
    ),
    "binary": lambda lib: lib.Binary(3, (2, 3), device="cpu"),
    "flag": lambda lib: lib.Binary(1, dtype=torch.bool, device="cpu"),
    "text": lambda lib: lib.NonTensor((2,), example_data="a"),
    "object": lambda lib: lib.NonTensor((), example_data=PLACE, device="cpu"),
    "choice": lambda lib: lib.Choice([lib.Categorical(3, device="cpu"), lib.Categorical(5, device="cpu")]),
    "choice of text": lambda lib: lib.Choice([NonTensorData("left"), NonTensorData("right")]),
    "stacked": lambda lib: lib.Stacked(
        lib.Bounded(-1, 1, (2,), device="cpu"), lib.Bounded(-1, 1, (3,), device="cpu"), dim=0
    ),
    "composite": lambda lib: lib.Composite(
        {
            "observation": lib.Unbounded((2, 3), device="cpu"),
            "nothing": None,
            "agents": lib.Composite(action=lib.OneHot(4, (2, 5, 4), device="cpu"), shape=(2, 5)),
        },
        shape=(2,),
    ),
    "composite, named": lambda lib: lib.Composite(
        x=lib.Unbounded((2, 3), device="cpu"), shape=(2,), device="cpu", names=["rows"]
    ),
    "stacked composite": lambda lib: lib.StackedComposite(
        lib.Composite(a=lib.Unbounded((4, 2), device="cpu"), shape=(4,)),
        lib.Composite(a=lib.Unbounded((4, 3), device="cpu"), b=lib.OneHot(3, (4, 3), device="cpu"), shape=(4,)),
        dim=1,
    ),
}


@pytest.mark.parametrize("make", SPECS.values(), ids=SPECS)
def test_each_spec_is_converted_either_way(make):
    mine, its = make(ours), make(theirs)

    assert type(to_torchrl(mine)) is type(its)
    assert to_torchrl(mine) == its
    assert type(from_torchrl(its)) is type(mine)
    assert from_torchrl(its) == mine


@pytest.mark.parametrize("name", [name for name in SPECS if name not in ("categorical, unknown", "text", "object")])
def test_data_of_one_is_data_of_the_other(name):
    mine = SPECS[name](ours)
    its = to_torchrl(mine)

    if "one end" not in name:  # TorchRL draws infinities there
        assert mine.is_in(its.rand())
    if name != "stacked":  # of nested tensors, which have no shape and are compared with nothing
        assert mine.zero().shape == its.zero().shape
    if "text" not in name and "stacked" not in name:
        assert bool(its.is_in(mine.rand()))


def test_converted_specs_and_none_stay_unchanged():
    mine, its = ours.OneHot(3), theirs.OneHot(3)

    assert to_torchrl(its) is its
    assert from_torchrl(mine) is mine
    assert to_torchrl(None) is from_torchrl(None) is None
    for convert, found in ((to_torchrl, "takes a spec of steppe, found int"), (from_torchrl, "found dict")):
        with pytest.raises(SpecError, match=found):
            convert(3 if convert is to_torchrl else {})


def test_the_two_share_nothing():
    mine = ours.Composite(a=ours.Bounded(-1, 1, (2,)))
    mine.lock_()
    its = to_torchrl(mine)
    its["a"].space.low[0] = -5
    its["b"] = theirs.Unbounded(1)

    assert mine["a"].space.low.tolist() == [-1, -1]
    assert list(mine.keys()) == ["a"]


def test_a_leaf_without_a_device_is_on_the_cpu():
    """A leaf of a converted spec is on the CPU for any default device of torch."""
    with torch.device("meta"):
        assert to_torchrl(ours.Bounded(-1, 1, (2,))).device == torch.device("cpu")
        assert to_torchrl(ours.Composite(a=ours.Unbounded(1))).device is None


def test_a_provisional_number_of_categories_is_converted():
    its = theirs.Categorical(-1)
    its.set_provisional_n(4)
    mine = from_torchrl(its)

    assert mine.n == 4
    assert to_torchrl(mine).n == 4


def batch(**entries):
    return TensorDict(entries, [5])


def observations():
    return batch(observation=100 * torch.rand(5, 3))


def actor(spec):
    net = nn.Sequential(nn.Linear(3, 4), NormalParamExtractor())
    return modules.ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        spec=spec,
        distribution_class=modules.TanhNormal,
    )


def critic():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 1)

        def forward(self, observation, action):
            return self.layer(torch.cat([observation, action], -1))

    return modules.ValueOperator(Net(), in_keys=["observation", "action"])


def transitions(spec):
    following = {"observation": torch.rand(5, 3), "reward": torch.rand(5, 1)}
    flags = {name: torch.zeros(5, 1, dtype=torch.bool) for name in ("done", "terminated")}
    return batch(observation=torch.rand(5, 3), action=spec.rand((5,)), next={**following, **flags})


HOT, NUMBER = ours.OneHot(4), ours.Categorical(4)
PUSH = ours.Bounded(-1, 1, (2,))


@pytest.mark.parametrize("spec", [HOT, NUMBER, ours.Composite(action=HOT)], ids=lambda spec: type(spec).__name__)
def test_modules_of_values_learn_the_kind_of_action(spec):
    chosen = modules.QValueActor(nn.Linear(3, 4), in_keys=["observation"], spec=to_torchrl(spec))(observations())

    leaf = spec["action"] if isinstance(spec, ours.Composite) else spec
    assert leaf.is_in(chosen["action"].to(leaf.dtype)), "TorchRL's one-hot actions are integers, which steps take"


def test_losses_for_discrete_actions_learn_the_kind_of_action():
    spec = to_torchrl(HOT)
    values = modules.QValueActor(nn.Linear(3, 4), in_keys=["observation"], spec=spec)
    scores = TensorDictModule(nn.Linear(3, 4), in_keys=["observation"], out_keys=["logits"])
    chooser = modules.ProbabilisticActor(
        scores, in_keys=["logits"], spec=spec, distribution_class=modules.OneHotCategorical
    )
    action_values = modules.ValueOperator(nn.Linear(3, 4), in_keys=["observation"], out_keys=["action_value"])

    losses = [
        objectives.DQNLoss(values, action_space=spec),
        objectives.DiscreteSACLoss(chooser, action_values, action_space=spec, num_actions=4),
        objectives.DiscreteCQLLoss(values, action_space=spec),
    ]
    for loss in losses:
        assert all(value.isfinite().all() for value in loss(transitions(HOT)).values(True, True)), type(loss)


def test_losses_for_continuous_actions_learn_the_bounds():
    spec = to_torchrl(PUSH)
    pusher = modules.Actor(nn.Linear(3, 2), in_keys=["observation"], spec=spec)

    losses = [
        objectives.TD3Loss(pusher, critic(), action_spec=spec),
        objectives.TD3Loss(pusher, critic(), action_spec=to_torchrl(ours.Composite(action=PUSH))["action"]),
        objectives.SACLoss(actor(spec), critic(), action_spec=spec),
        objectives.DDPGLoss(pusher, critic()),
    ]
    for loss in losses:
        assert all(value.isfinite().all() for value in loss(transitions(PUSH)).values(True, True)), type(loss)


@pytest.mark.parametrize("spec", [PUSH, ours.Composite(action=PUSH)], ids=lambda spec: type(spec).__name__)
def test_modules_project_what_they_write(spec):
    module = modules.SafeModule(
        nn.Linear(3, 2), spec=to_torchrl(spec), in_keys=["observation"], out_keys=["action"], safe=True
    )

    assert PUSH.is_in(module(observations())["action"])


@pytest.mark.parametrize("whole", [False, True], ids=["leaf", "composite"])
def test_exploration_modules_take_converted_specs(whole):
    """Exploration modules take the spec of a single leaf or of all actions."""

    def spec_of(leaf):
        return to_torchrl(ours.Composite(action=leaf) if whole else leaf)

    flags = {"is_init": torch.zeros(5, 1, dtype=torch.bool), "step_count": torch.zeros(5, 1, dtype=torch.int64)}

    for make in (modules.AdditiveGaussianModule, modules.OrnsteinUhlenbeckProcessModule):
        assert PUSH.is_in(make(spec=spec_of(PUSH))(batch(action=PUSH.rand((5,)), **flags))["action"])
    assert PUSH.is_in(
        modules.TanhModule(in_keys=["action"], spec=spec_of(PUSH))(batch(action=torch.randn(5, 2)))["action"]
    )
    assert HOT.is_in(modules.EGreedyModule(spec=spec_of(HOT), eps_init=1.0)(batch(action=HOT.rand((5,))))["action"])
    assert PUSH.is_in(actor(spec_of(PUSH))(observations())["action"])


def test_a_spec_of_torchrl_is_an_error_with_the_converter():
    """The error for a spec of TorchRL in the place of ours names from_torchrl."""
    given = theirs.Bounded(-1, 1, (1,))
    env = CountingEnv(3)
    for wrong in (
        lambda: ours.Composite(action=given),
        lambda: setattr(env, "action_spec", given),
        lambda: setattr(env, "action_spec", theirs.Composite(action=given)),
        lambda: RandomPolicy(given),
        lambda: TensorDictPrimer(state=given),
        lambda: TensorDictPrimer(theirs.Composite(state=given)),
    ):
        with pytest.raises(SpecError, match=r"from_torchrl\(spec\) of steppe_torchrl"):
            wrong()


def test_agents_of_a_group_act_through_torchrls_networks():
    env = MultiAgentCountingEnv(4)
    group = env.full_action_spec["agents"]
    n, width = group["action"].shape[0], env.full_observation_spec["agents", "observation"].shape[-1]
    net = modules.MultiAgentMLP(width, group["action"].shape[-1], n, centralized=False, share_params=True, depth=1)
    actor = modules.ProbabilisticActor(
        TensorDictModule(net, in_keys=[("agents", "observation")], out_keys=[("agents", "logits")]),
        in_keys=[("agents", "logits")],
        out_keys=[("agents", "action")],
        spec=to_torchrl(env.full_action_spec),
        distribution_class=modules.OneHotCategorical,
    )

    data = env.rollout(3, actor)

    assert env.full_action_spec.is_in(data.select(("agents", "action")))
    assert data.shape == (3,)
