"""WholeSpecs: transforms that work out all specs of an environment at once."""

from __future__ import annotations

from typing import Any

import torch

from steppe.specs import Binary, Composite, Unbounded
from steppe.transforms.base import Transform
from steppe.transforms.compiled.hooks import EnvSpecs

__all__ = ["WholeSpecs"]

_OUTPUTS = ("observation", "reward", "done")
_INPUTS = ("action", "state")


class WholeSpecs(Transform):
    """A transform that writes ``transform_specs``, from which the methods for single specs follow.

    For entries that depend on several specs: a count has the shape of ``done``, a sum that of the reward. Where a
    method for one spec is called directly, the others are those of the environment before the transform, or, without
    one, of an environment with ``reward``, ``done`` and ``terminated`` at the root.
    """

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        return specs

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        return self.transform_specs(self.specs_around(observation=observation_spec)).observation

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        return self.transform_specs(self.specs_around(reward=reward_spec)).reward

    def transform_done_spec(self, done_spec: Composite) -> Composite:
        return self.transform_specs(self.specs_around(done=done_spec)).done

    def transform_action_spec(self, action_spec: Composite) -> Composite:
        return self.transform_specs(self.specs_around(action=action_spec)).action

    def transform_state_spec(self, state_spec: Composite) -> Composite:
        return self.transform_specs(self.specs_around(state=state_spec)).state

    def transform_output_spec(self, output_spec: Composite) -> Composite:
        return self._transform_packed(output_spec, _OUTPUTS)

    def transform_input_spec(self, input_spec: Composite) -> Composite:
        return self._transform_packed(input_spec, _INPUTS)

    def _transform_packed(self, packed: Composite, kinds: tuple[str, ...]) -> Composite:
        given = {kind: packed[f"full_{kind}_spec"] for kind in kinds if f"full_{kind}_spec" in packed.keys()}
        after = self.transform_specs(self.specs_around(**given))
        return Composite({f"full_{kind}_spec": getattr(after, kind) for kind in given}, shape=after.batch_size)

    def specs_around(self, **given: Composite) -> EnvSpecs:
        """The specs of the environment before the transform, with those that are given in their place.

        Args:
            **given: Composites by kind: ``observation``, ``reward``, ``done``, ``action``, ``state``; at least one.
        """
        one = next(iter(given.values()))
        env = self.parent
        if env is not None and env.batch_size == one.shape:
            return EnvSpecs.of(env).changed(**given)
        size, device = torch.Size(one.shape), one.device
        shape = torch.Size((*size, 1))
        flags = {name: Binary(shape=shape, dtype=torch.bool, device=device) for name in ("done", "terminated")}
        kinds: dict[str, dict[Any, Any]] = {
            "observation": {},
            "reward": {"reward": Unbounded(shape, device=device)},
            "done": flags,
            "action": {},
            "state": {},
        }
        others = {kind: Composite(leaves, shape=size, device=device) for kind, leaves in kinds.items()}
        return EnvSpecs(**{**others, **given}, batch_size=size, device=device)
