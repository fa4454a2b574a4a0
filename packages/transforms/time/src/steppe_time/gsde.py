"""gSDENoise: the noise of state-dependent exploration, drawn at each reset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steppe.errors import SpecError
from steppe.specs import Composite, Unbounded

from .primer import TensorDictPrimer

__all__ = ["gSDENoise"]


class gSDENoise(TensorDictPrimer):
    """Draw ``_eps_gSDE`` at each reset, and keep it through the episode.

    The noise is drawn from a normal distribution. A module for generalized state-dependent exploration (gSDE)
    multiplies this matrix ``[*shape, action_dim, state_dim]`` with its features. If one of the sizes is None, the entry
    is ``[*shape, 1]`` of zeros, which such a module fills at its first call. Rollouts and collectors keep it, because
    losses need the noise that the policy acted with.

    >>> from steppe import TransformedEnv, gSDENoise, make_env
    >>> env = TransformedEnv(make_env("gym:Pendulum-v1"), gSDENoise(state_dim=3, action_dim=1))
    >>> data = env.rollout(5)
    >>> data["_eps_gSDE"].shape, bool((data["_eps_gSDE"][0] == data["_eps_gSDE"][-1]).all())
    (torch.Size([5, 1, 3]), True)

    Args:
        state_dim: number of features.
        action_dim: number of actions.
        shape: batch size of the matrix. Default: that of the environment.
        **kwargs: arguments of :class:`TensorDictPrimer`.

    Raises:
        SpecError: a size is not a whole number >= 1.
    """

    def __init__(
        self,
        state_dim: int | None = None,
        action_dim: int | None = None,
        shape: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        for name, size in (("state_dim", state_dim), ("action_dim", action_dim)):
            if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
                raise SpecError(f"gSDENoise: {name} must be a whole number >= 1 or None, found {size!r}.")
        lead = () if shape is None else tuple(shape)
        known = state_dim is not None and action_dim is not None
        tail = (action_dim, state_dim) if known else (1,)
        primers = Composite({"_eps_gSDE": Unbounded((*lead, *tail))}, shape=lead)
        super().__init__(primers, random=known, **kwargs)
        self.state_dim, self.action_dim = state_dim, action_dim
