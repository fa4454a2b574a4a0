"""VIPRewardTransform: rewards from distances to the image of a goal."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import Unbounded
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform

from .embed_images import EmbedImages
from .transforms import VIPTransform

__all__ = ["VIPRewardTransform"]

_GOAL = "goal_embedding"
_IMAGE = "goal_image"


class VIPRewardTransform(VIPTransform):
    """Replace the reward by how much closer a step came to the image of a goal.

    The distance is that of VIP's vectors, and the reward of a step is the distance before it minus the distance after
    it. ``reset`` needs the image of the goal, which a rollout takes from its first data::

        env.reset(TensorDict({"goal_image": image}))

    Its vector is the entry ``"goal_embedding"``. Rows that are reset without an image keep their goal.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> import gymnasium
    >>> from steppe import TransformedEnv, make_env
    >>> from steppe_pretrained import VIPRewardTransform
    >>> transform = VIPRewardTransform("resnet50", size=64)  # download=True loads the weights of VIP
    >>> env = TransformedEnv(make_env("gym:Pendulum-v1", from_pixels=True), transform)
    >>> root = env.reset(TensorDict(goal_image=torch.zeros(500, 500, 3, dtype=torch.uint8)))
    >>> env.rollout(3, tensordict=root, auto_reset=False)["next", "reward"].shape
    torch.Size([3, 1])

    Args:
        model_name: ``"resnet50"``.
        goal_image: the goal of episodes whose reset has none, ``[H, W, 3]`` uint8.
        **kwargs: see :class:`VIPTransform`. There can be only one vector.

    Raises:
        SpecError: a reset has no image, or there are several vectors.
    """

    def __init__(
        self, model_name: str = "resnet50", *args: Any, goal_image: torch.Tensor | None = None, **kwargs: Any
    ) -> None:
        self.__dict__["_goal_image"] = goal_image
        super().__init__(model_name, *args, **kwargs)

    def _further(self, network: EmbedImages, out_keys: list[NestedKey]) -> list[Any]:
        if len(out_keys) != 1 or len(network.in_keys) != 1:
            raise SpecError(f"VIPRewardTransform takes one image, found in_keys={network.in_keys}.")
        return [GoalReward(network, out_keys[0], self.__dict__["_goal_image"])]


class GoalReward(PlannedTransform):
    """Replace the reward by how much closer the vector of a step is to that of the goal.

    Args:
        network: turns images into vectors.
        vector_key: the vector of a step.
        goal_image: the goal of episodes whose reset has none, ``[H, W, 3]`` uint8.
    """

    def __init__(self, network: EmbedImages, vector_key: NestedKey, goal_image: torch.Tensor | None) -> None:
        super().__init__()
        # Not a submodule: the network belongs to the transform before.
        self.__dict__["network"] = network
        self.vector_key: Any = vector_key
        self.goal_image = goal_image

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        if len(list(specs.reward.keys(include_nested=True, leaves_only=True))) != 1:
            raise SpecError("VIPRewardTransform replaces one reward; the environment has several.")
        specs = specs.copy()
        leaf = Unbounded((*specs.batch_size, self.network.vector_size), device=specs.observation.device)
        specs.observation[_GOAL], specs.state[_GOAL] = leaf, leaf.clone()
        key = next(iter(specs.reward.keys(include_nested=True, leaves_only=True)))
        specs.reward[key] = Unbounded((*specs.batch_size, 1), device=specs.reward[key].device)
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        reward_key = next(iter(specs.reward.keys(include_nested=True, leaves_only=True)))

        def step(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
            goal = self.kept_entry(_GOAL, td)
            before = torch.linalg.vector_norm(self.kept_entry(self.vector_key, td) - goal, dim=-1, keepdim=True)
            after = torch.linalg.vector_norm(following.get(self.vector_key) - goal, dim=-1, keepdim=True)
            following.set(reward_key, before - after)
            following.set(_GOAL, goal.clone())
            return following

        def reset(td: TensorDictBase | None, fresh: TensorDictBase) -> TensorDictBase:
            fresh.set(_GOAL, self._goal(td, fresh.get(self.vector_key)))
            return fresh

        return Hooks(step=step, reset=reset, reads_root=[_GOAL, self.vector_key])

    def _goal(self, td: TensorDictBase | None, vectors: torch.Tensor) -> torch.Tensor:
        """Return the vectors of the goals of an episode that begins."""
        image = None if td is None else td.get(_IMAGE, None)
        kept: torch.Tensor | None = None if td is None else td.get(_GOAL, None)
        # A batch hands rows that have never been reset their zeros.
        if image is None and kept is not None and bool((kept != 0).any(-1).all()):
            return kept.clone()
        if image is None:
            image = self.goal_image
        if image is None:
            raise SpecError(
                "VIPRewardTransform needs the image of the goal: env.reset(TensorDict({'goal_image': image})), or "
                "VIPRewardTransform(..., goal_image=image)."
            )
        goal: torch.Tensor = self.network.embed(image)
        return goal.expand_as(vectors).clone()

    def _repr_keys(self) -> Any:
        return f"vector={self.vector_key!r}"
