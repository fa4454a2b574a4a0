"""Images of many environments: one call of a transform serves them, in blocks if they are large."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn.functional import interpolate

from steppe import Bounded, SerialEnv, TransformedEnv
from steppe.transforms import Compose, FrameSkipTransform, RewardSum, StepCounter
from steppe_testing import ArrayDataEnv, DataEnv, assert_equal_data
from steppe_time import CatFrames
from steppe_vision import CenterCrop, Crop, GrayScale, ImageTransform, Resize, ToTensorImage, resize

N = 9  # more than fit into a block with their results
SPEC = {"pixels": Bounded(0, 255, (160, 140, 3), dtype=torch.uint8)}


def small():
    return ToTensorImage(), GrayScale(), Resize(9, 8)


CHAINS = {
    "images": lambda: Compose(*small()),
    "what counts in front": lambda: Compose(RewardSum(), StepCounter(3), *small()),
    "what counts behind": lambda: Compose(*small(), CatFrames(2, dim=-3, in_keys=["pixels"]), StepCounter(3)),
    "images beside the first ones": lambda: Compose(ToTensorImage(out_keys=["image"]), Resize(9, 8, in_keys=["image"])),
    "steps that are repeated": lambda: Compose(FrameSkipTransform(2), *small(), RewardSum()),
    "steps that are repeated later": lambda: Compose(*small(), FrameSkipTransform(2), RewardSum()),
}


def batch(env_class, chain, n=N):
    env = SerialEnv(n, [partial(one, env_class, chain, row) for row in range(n)])
    env.set_seed(3)
    return env


def one(env_class, chain, row):
    return TransformedEnv(env_class(SPEC, max_steps=2 + row % 3), chain())


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_rollout_is_the_same_as_on_tensordicts(chain):
    fast, plain = batch(ArrayDataEnv, chain), batch(DataEnv, chain)
    actions = fast.full_action_spec.rand((7,))

    found, expected = (env.rollout(7, actions=actions, break_when_any_done=False) for env in (fast, plain))

    assert found["next", "done"].any()
    assert not found["next", "done"].all()
    assert_equal_data(found, expected)


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_partial_steps_and_resets_match_those_on_tensordicts(chain):
    data = []
    for env in (batch(ArrayDataEnv, chain), batch(DataEnv, chain)):
        found, action = [env.reset()], env.full_action_spec.zero()
        for rows in ([8, 1, 0], [4, 3], list(range(N)), [7]):
            stepped = env.step_at(found[0][rows].update(action[rows]), rows)
            found += [stepped, env.reset_at(None, rows[:2])]
            _, after = env.step_and_maybe_reset(found[0].clone().update(action))
            found.append(after)
        data.append(found)

    for fast, plain in zip(*data, strict=True):
        assert_equal_data(fast, plain)


class Failing(ArrayDataEnv):
    fails = False

    def step_into(self, action, out):
        if self.fails:
            raise RuntimeError("the emulator is gone")
        return super().step_into(action, out)


def test_an_error_names_the_environment_that_raised_it():
    envs = [one(Failing, CHAINS["images"], row) for row in range(N)]
    envs[6].base_env.fails = True
    batch = SerialEnv(N, [lambda env=env: env for env in envs])
    root = batch.rand_action(batch.reset())

    with pytest.raises(RuntimeError, match="the emulator is gone") as caught:
        batch.step(root)
    assert any("environment 6" in note for note in caught.value.__notes__)


class Calls(ImageTransform):
    """A transform that records the number of images of each call."""

    calls: list[int] = []

    def shared_key(self):
        return (type(self), self.given_keys())

    def _apply_transform(self, value):
        return value

    def row_kernel(self, source, target):
        def run():
            self.calls.append(len(source))
            target[...] = source

        return run


def test_one_call_serves_the_small_images_of_all_environments():
    spec = {"pixels": Bounded(0, 1, (1, 4, 4), dtype=torch.float32)}
    env = SerialEnv(N, lambda: TransformedEnv(ArrayDataEnv(spec), Calls(out_keys=["copy"])))
    root = env.rand_action(env.reset())

    Calls.calls = []
    env.step(root)
    assert Calls.calls == [N]


def test_images_are_resized_in_one_call_after_any_transform(monkeypatch):
    env = batch(ArrayDataEnv, CHAINS["images"])
    root = env.rand_action(env.reset())

    given = []
    monkeypatch.setattr(
        resize, "interpolate", lambda images, *args, **kw: given.append(len(images)) or interpolate(images, *args, **kw)
    )
    env.step(root)
    assert given == [N]


@pytest.mark.parametrize(
    "transform",
    [GrayScale(), Resize(4), ToTensorImage(), Crop(4), CenterCrop(4)],
    ids=lambda transform: type(transform).__name__,
)
def test_image_transforms_with_equal_settings_share_a_call(transform):
    assert transform.key_of_rows() is not None
    assert transform.key_of_rows() == transform.clone().key_of_rows()


def test_a_subclass_without_a_shared_key_shares_no_call():
    class Darker(GrayScale):
        def _apply_transform(self, value):
            return super()._apply_transform(value) // 2

    class Inverted(ImageTransform):
        def _apply_transform(self, value):
            return 1 - value

    assert Darker().key_of_rows() is None
    assert Inverted().key_of_rows() is None
