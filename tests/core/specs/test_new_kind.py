"""A new kind of spec is one class: environments, batches and collectors use it without any other change."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe import Collector, ParallelEnv, SerialEnv
from steppe.envs import ArrayEnv, EnvBase, check_env_specs
from steppe.errors import ActionError
from steppe.specs import ActionDecoder, Composite, Unbounded
from steppe.specs.leaf import Leaf
from steppe.transforms import StepCounter, TransformedEnv


class Even(Leaf):
    """Even numbers from 0 to ``2 * (n - 1)``. A library gets half of them, as text."""

    def __init__(self, n, shape=(), device=None):
        super().__init__(shape=shape, device=device, dtype=torch.int64)
        self._n = n

    def _contains(self, val):
        return bool(((val >= 0) & (val < 2 * self._n) & (val % 2 == 0)).all())

    def _nearest(self, val):
        return (val.double() / 2).round().clamp(0, self._n - 1).long() * 2

    def _draw(self, lead, generator, device):
        return 2 * torch.randint(0, self._n, self._full(lead), generator=generator, device=device)

    def _domain_text(self):
        return f"even numbers below {2 * self._n}"

    def array_check(self):
        n = self._n
        return lambda array: bool(((array >= 0) & (array < 2 * n) & (array % 2 == 0)).all())

    def action_decoder(self, refuse):
        def one(action):
            number = action.item()
            if number % 2 or not 0 <= number < 2 * self._n:
                refuse(action)
            return str(number // 2)

        return ActionDecoder(one, lambda rows: [str(number // 2) for number in rows.tolist()], validates=True)

    def action_text(self):
        return self._domain_text()

    def action_hint(self, value, expected, name):
        if value.shape == expected:
            return f" Round it: {name}.project(action)."
        return f" Sum the bits: {name}.from_bits(action)."


class Adding(ArrayEnv):
    """Adds the numbers that its actions are the text of."""

    def __init__(self):
        super().__init__()
        self.observation_spec = Composite(total=Unbounded(shape=(1,)))
        self.action_spec = Even(4)

    def reset_into(self, out, seed, env_info):
        self.total = 0
        out["total"][0] = 0

    def step_into(self, action, out):
        assert type(action) is str
        self.total += int(action)
        out["total"][0] = out["reward"][0] = self.total
        return False, False


class AddingTensors(EnvBase):
    """The same on TensorDicts."""

    def __init__(self):
        super().__init__()
        self.observation_spec = Composite(total=Unbounded(shape=(1,)))
        self.action_spec = Even(4)

    def _reset(self, td):
        return self.data(total=torch.zeros(1))

    def _step(self, td):
        total = td["total"] + td["action"] // 2
        return self.data(total=total, reward=total.clone())

    def _set_seed(self, seed):
        pass

    def data(self, **entries):
        done = torch.zeros(1, dtype=torch.bool)
        return TensorDict({**entries, "done": done, "terminated": done.clone()}, [])


BATCHES = {
    "one": lambda make: make(),
    "serial": lambda make: SerialEnv(2, make),
    "parallel": lambda make: ParallelEnv(2, make),
    "transformed": lambda make: TransformedEnv(SerialEnv(2, make), StepCounter()),
}


@pytest.fixture(params=[Adding, AddingTensors], ids=["arrays", "tensors"])
def make(request):
    return request.param


@pytest.fixture(params=BATCHES)
def env(request, make):
    env = BATCHES[request.param](make)
    yield env
    env.close()


def test_rollouts_sample_and_decode_it(env):
    data = env.rollout(8)

    assert Even(4).is_in(data["action"])
    assert len(data["action"].unique()) > 1
    torch.testing.assert_close(data["next", "total"][..., 0], (data["action"] // 2).cumsum(-1).float())


def test_steps_decode_it(env):
    td = env.reset()
    td["action"] = torch.full(env.batch_size, 6)
    td = env.step(td)

    assert (td["next", "reward"] == 3).all()


@pytest.mark.parametrize(("value", "hint"), [(3, "Round it"), (8, "Round it"), ([0, 1], "Sum the bits")])
def test_invalid_actions_are_refused_with_its_hint(env, value, hint):
    td = env.reset()
    action = torch.tensor(value)
    td["action"] = action.expand((*env.batch_size, *action.shape)).clone()

    with pytest.raises(ActionError, match=hint) as caught:
        env.step(td)
    assert hint == "Sum the bits" or "must be even numbers below 8, found" in str(caught.value)


def test_another_dtype_is_converted(env):
    td = env.reset()
    td["action"] = torch.full(env.batch_size, 4, dtype=torch.float32)

    assert (env.step(td)["next", "reward"] == 2).all()


def test_checks_of_environments_accept_it(make):
    check_env_specs(make())


@pytest.mark.parametrize("batch", ["serial", "parallel"])
def test_collectors_sample_it(make, batch):
    collector = Collector(BATCHES[batch](make), frames_per_batch=12, total_frames=24)
    for data in collector:
        assert Even(4).is_in(data["action"])
        assert (data["next", "total"] - data["total"] == (data["action"] // 2)[..., None]).all()
    collector.shutdown()


def test_new_spec_kinds_follow_shape_operations():
    spec = Even(3, (2,)).unsqueeze(0).expand(5, 2)

    assert spec.shape == (5, 2)
    assert spec.is_in(spec.rand((7,)))
    assert spec.project(torch.tensor([[1.2, 9.0]]).expand(5, 2))[0].tolist() == [2, 4]
