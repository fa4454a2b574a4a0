"""Pretrained transforms, compared with torchvision's networks on weights made here."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

pytest.importorskip("torchvision")

from torchvision import models

from steppe import TransformedEnv
from steppe.errors import SpecError, TransformNotFound
from steppe.specs import Bounded
from steppe.transforms import Compose
from steppe_pretrained import R3MTransform, VIPRewardTransform, VIPTransform
from steppe_testing import DataEnv

pytestmark = [pytest.mark.library, pytest.mark.matrix]

IMAGE = Bounded(0, 255, (10, 12, 3), dtype=torch.uint8)


def env_of(*names):
    return DataEnv(dict.fromkeys(names, IMAGE))


def publish(folder, network, name, entry):
    """Write weights as their publishers do, with a part of the model that is no network of images."""
    weights = {f"module.convnet.{key}": value for key, value in network.state_dict().items()}
    torch.save({entry: {**weights, "module.lang_rew.weight": torch.zeros(2)}}, folder / name)


def by_hand(network, images, size):
    """Embed images ``[n, H, W, 3]`` with torchvision's own steps."""
    values = images.movedim(-1, -3).float() / 255
    values = torch.nn.functional.interpolate(values, (size, size), mode="bilinear", antialias=True)
    mean, std = (torch.tensor(numbers).view(3, 1, 1) for numbers in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        return network.eval()((values - mean) / std)


def test_published_weights_give_their_vectors(tmp_path):
    torch.manual_seed(1)
    network = models.resnet18(weights=None)
    network.fc = torch.nn.Identity()
    publish(tmp_path, network, "r3m_18.pt", "r3m")
    images = torch.randint(0, 256, (4, 10, 12, 3), dtype=torch.uint8)

    transform = R3MTransform("resnet18", ["pixels"], size=32, download=True, download_path=str(tmp_path))

    data = transform(TensorDict({"pixels": images}, [4]))
    torch.testing.assert_close(data["r3m_vec"], by_hand(network, images, 32))
    assert "pixels" not in data.keys()


def test_vip_has_a_layer_of_1024_numbers(tmp_path):
    torch.manual_seed(2)
    network = models.resnet50(weights=None)
    network.fc = torch.nn.Linear(2048, 1024)
    publish(tmp_path, network, "vip_50.pt", "vip")
    images = torch.randint(0, 256, (2, 10, 12, 3), dtype=torch.uint8)

    transform = VIPTransform("resnet50", size=32, download=True, download_path=str(tmp_path))

    data = transform(TensorDict({"pixels": images}, [2]))
    torch.testing.assert_close(data["vip_vec"], by_hand(network, images, 32))


def test_images_are_stacked_or_stay_apart():
    torch.manual_seed(0)
    joined = TransformedEnv(env_of("a", "b"), R3MTransform("resnet18", ["a", "b"], size=16))
    torch.manual_seed(0)
    apart = TransformedEnv(env_of("a", "b"), R3MTransform("resnet18", ["a", "b"], size=16, stack_images=False))
    for env in (joined, apart):
        env.set_seed(0)

    one, two = joined.rollout(3), apart.rollout(3)

    assert one["next", "r3m_vec"].shape == (3, 1024)
    both = torch.cat([two["next", "r3m_vec_0"], two["next", "r3m_vec_1"]], -1)
    torch.testing.assert_close(one["next", "r3m_vec"], both)


def test_images_are_kept_under_other_keys():
    env = TransformedEnv(env_of("pixels"), R3MTransform("resnet18", ["pixels"], size=16, tensor_pixels_keys=["raw"]))

    data = env.rollout(2)

    assert data["next", "raw"].dtype == torch.uint8
    assert "pixels" not in data.keys()


def test_gradients_reach_the_network_only_on_request():
    images = torch.randint(0, 256, (2, 10, 12, 3), dtype=torch.uint8)
    frozen = R3MTransform("resnet18", ["pixels"], size=16)
    trained = R3MTransform("resnet18", ["pixels"], size=16, requires_grad=True)

    assert not frozen(TensorDict({"pixels": images}, [2]))["r3m_vec"].requires_grad
    trained(TensorDict({"pixels": images}, [2]))["r3m_vec"].sum().backward()
    assert trained.network.convnet.conv1.weight.grad.abs().sum() > 0
    frozen.train()
    assert not frozen.network.convnet.training, "statistics of a batch would change the vectors"


@pytest.mark.parametrize("make", [R3MTransform, VIPTransform], ids=lambda make: make.__name__)
def test_stored_images_are_embedded_everywhere(make):
    """Alone, in a Compose, in a Sequential, and in a buffer, as data is written or sampled."""
    replay = pytest.importorskip("steppe_replay")
    transform = make("resnet50", ["pixels", ("next", "pixels")], ["vec", ("next", "vec")], size=16, stack_images=False)
    data = TensorDict({key: torch.randint(0, 256, (2, 3, 10, 12, 3), dtype=torch.uint8) for key in ("pixels", "after")})
    data = TensorDict({"pixels": data["pixels"], "next": {"pixels": data["after"]}}, [2, 3])
    expected = transform(data.clone())
    written, sampled = (
        replay.ReplayBuffer(
            storage=replay.LazyTensorStorage(2), sampler=replay.SamplerWithoutReplacement(shuffle=False), batch_size=2
        )
        for _ in range(2)
    )
    written.append_transform(transform, invert=True).extend(data.clone())
    sampled.append_transform(transform).extend(data.clone())
    results = [
        Compose(transform)(data.clone()),
        torch.nn.Sequential(transform, torch.nn.Identity())(data.clone()),
        written.storage.take(written.storage.all_rows()),
        sampled.sample(),
    ]
    for result in results:
        torch.testing.assert_close(result["vec"], expected["vec"])
        torch.testing.assert_close(result["next", "vec"], expected["next", "vec"])
        assert result["next", "vec"].shape[:2] == (2, 3)


def test_the_reward_is_the_way_to_the_goal():
    torch.manual_seed(0)
    env = TransformedEnv(env_of("pixels"), VIPRewardTransform("resnet50", size=16))
    goal = torch.full((10, 12, 3), 200, dtype=torch.uint8)

    data = env.rollout(4, tensordict=env.reset(TensorDict({"goal_image": goal})), auto_reset=False)

    embedded = env.transform.network.embed(goal)
    torch.testing.assert_close(data["goal_embedding"], embedded.expand(4, 1024))
    before = (data["vip_vec"] - embedded).norm(dim=-1)
    after = (data["next", "vip_vec"] - embedded).norm(dim=-1)
    torch.testing.assert_close(data["next", "reward"][:, 0], before - after)


def test_later_episodes_keep_the_goal():
    env = TransformedEnv(env_of("pixels"), VIPRewardTransform("resnet50", size=16))
    goal = torch.full((10, 12, 3), 90, dtype=torch.uint8)
    root = env.reset(TensorDict({"goal_image": goal}))

    data = env.rollout(12, tensordict=root, auto_reset=False, break_when_any_done=False)

    assert data["next", "done"].sum() > 1
    assert (data["goal_embedding"] == data["goal_embedding"][0]).all()


def test_a_reset_without_a_goal_says_how_to_pass_one():
    env = TransformedEnv(env_of("pixels"), VIPRewardTransform("resnet50", size=16))
    with pytest.raises(SpecError, match="goal_image"):
        env.reset()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"model_name": "resnet101"}, "must be one of"),
        ({"model_name": "resnet18", "in_keys": ["a", "b"], "out_keys": ["x", "y"]}, "are 1 entries"),
        ({"model_name": "resnet18", "in_keys": ["a"], "tensor_pixels_keys": ["x", "y"]}, "as many as"),
        ({"model_name": "resnet18", "download": "IMAGENET"}, "IMAGENET1K_V1"),
    ],
)
def test_wrong_arguments_are_named(arguments, text):
    with pytest.raises(SpecError, match=text):
        R3MTransform(**arguments)


def test_an_image_of_another_shape_is_named():
    with pytest.raises(SpecError, match=r"\[10, 12, 4\]|\(10, 12, 4\)"):
        R3MTransform("resnet18", ["pixels"], size=16)(TensorDict({"pixels": torch.zeros(10, 12, 4)}, []))


def test_steppe_finds_the_transforms():
    from steppe.transforms import R3MTransform as Found

    assert Found is R3MTransform
    assert issubclass(TransformNotFound, ImportError)
