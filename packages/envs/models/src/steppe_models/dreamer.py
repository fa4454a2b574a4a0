"""DreamerEnv: imagination in the latent space of a recurrent state-space model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import Composite, Unbounded
from steppe_models.model_based import ModelBasedEnvBase

if TYPE_CHECKING:
    from tensordict.nn import TensorDictModuleBase

    from steppe.envs import EnvBase

__all__ = ["DreamerEnv"]


class DreamerEnv(ModelBasedEnvBase):
    """The imagined environment of Dreamer.

    Its observations are the latents ``state`` and ``belief``. ``state`` (the stochastic part, ``prior_shape``) and
    ``belief`` (the deterministic part, ``belief_shape``) are both observations and state: a step computes the next
    latents from the current ones and the action. ``reset(td)`` begins an episode at the latents in ``td`` (of encoded
    real data), or at zeros if ``td`` has none.

    >>> import torch
    >>> from steppe import DreamerEnv, make_env
    >>> from tensordict.nn import TensorDictModule
    >>> class World(torch.nn.Module):
    ...     def forward(self, state, belief, action):
    ...         return state + action, belief * 0.9, -state.square().sum(-1, keepdim=True)
    >>> keys = ["state", "belief"]
    >>> model = TensorDictModule(World(), [*keys, "action"], [*keys, "reward"])
    >>> env = DreamerEnv(model, prior_shape=(1,), belief_shape=(8,), batch_size=[4])
    >>> _ = env.set_specs_from_env(make_env("gym:Pendulum-v1"))
    >>> env.rollout(5)["belief"].shape
    torch.Size([4, 5, 8])

    Args:
        world_model: a TensorDictModule from ``state``, ``belief`` and ``action`` to ``state``, ``belief``, ``reward``,
            and ``terminated`` if it predicts the end of episodes.
        prior_shape: shape of ``state``, without batch dimensions.
        belief_shape: shape of ``belief``, without batch dimensions.
        obs_decoder: a TensorDictModule from the latents to observations, for :meth:`decode_obs`.
        device: see :class:`~steppe.envs.EnvBase`.
        batch_size: see :class:`~steppe.envs.EnvBase`. By default data may have any batch size.
        **kwargs: for :class:`~steppe.envs.EnvBase`.
    """

    def __init__(
        self,
        world_model: TensorDictModuleBase,
        prior_shape: tuple[int, ...],
        belief_shape: tuple[int, ...],
        obs_decoder: TensorDictModuleBase | None = None,
        device: torch.device | str | int | None = None,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(world_model, device=device, batch_size=batch_size, **kwargs)
        self.obs_decoder = obs_decoder
        self.prior_shape = torch.Size(prior_shape)
        self.belief_shape = torch.Size(belief_shape)
        self._set_latent_specs()

    def _set_latent_specs(self) -> None:
        def latents() -> Composite:
            shapes = {"state": self.prior_shape, "belief": self.belief_shape}
            leaves = {name: Unbounded((*self.batch_size, *shape)) for name, shape in shapes.items()}
            return Composite(leaves, shape=self.batch_size, device=self.device)

        self.observation_spec = latents()
        self.state_spec = latents()

    def set_specs_from_env(self, env: EnvBase) -> DreamerEnv:
        """Copy the action, reward and done specs of the real environment.

        The batch size is not copied. Returns this environment. The observations of the real environment are replaced by
        latents.
        """
        for kind in ("reward", "done", "action"):
            spec = getattr(env, f"full_{kind}_spec_unbatched").expand(self.batch_size)
            self.assign_spec(kind, spec if self.device is None else spec.to(self.device))
        self._set_latent_specs()
        return self

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        size = self.batch_size if tensordict is None else tensordict.batch_size
        lead = size[: len(size) - len(self.batch_size)]
        fresh = TensorDict(self.full_observation_spec.zero(lead).to_dict(), batch_size=size, device=self.device)
        if tensordict is not None and tensordict.get("_reset", None) is None:
            for key in ("state", "belief"):
                value = tensordict.get(key, None)
                if value is not None:
                    fresh.set(key, value.clone())
        return fresh

    def decode_obs(self, tensordict: TensorDictBase, compute_latents: bool = False) -> TensorDictBase:
        """Decode the latents in ``tensordict`` to observations, in place.

        Returns ``tensordict``.

        Args:
            tensordict: data with ``state`` and ``belief``.
            compute_latents: call the world model first.

        Raises:
            SpecError: the environment was made without ``obs_decoder``.
        """
        if self.obs_decoder is None:
            raise SpecError("DreamerEnv.decode_obs needs a decoder: make the environment with obs_decoder=...")
        data: TensorDictBase = self.obs_decoder(self.world_model(tensordict) if compute_latents else tensordict)
        return data
