"""Agent: the base of policies that take an info for each row, or keep a recurrent state for it."""

from __future__ import annotations

from typing import Any, ClassVar

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase

from steppe.specs import Composite

__all__ = ["Agent"]


class Agent(TensorDictModuleBase):
    """A policy that may be told something about each row, and remember something of it, in requests and in batches.

    An ordinary policy needs none of this, and any class with these attributes will do.

    ``forward`` is called with data of the rows that are at work ``[k]``: observations, ``("agent_info", ...)`` of the
    request, ``("agent_state", ...)``, and ``"is_init"``. It writes actions, whatever else is to be kept, and the next
    state at ``("next", "agent_state", ...)``.

    Attributes:
        agent_info_spec: what a request says of each row; shapes of one row.
        agent_info_default: values where a request says nothing, and of all batches; None where a request has to say.
        agent_state_spec: what is remembered of each row; shapes of one row.
    """

    agent_info_spec: Composite = Composite({})
    agent_info_default: TensorDictBase | dict[str, Any] | None = None
    agent_state_spec: Composite = Composite({})
    in_keys: ClassVar[list[Any]] = []
    out_keys: ClassVar[list[Any]] = ["action"]

    def initial_state(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The state of rows that begin an episode.

        Args:
            tensordict: their first observations, ``agent_info`` and ``env_info``, ``[k]``.

        Returns:
            Data of ``agent_state_spec`` ``[k]``; zeros, unless a subclass says otherwise.
        """
        zeros: TensorDictBase = self.agent_state_spec.expand(
            *tensordict.batch_size, *self.agent_state_spec.shape
        ).zero()
        return zeros
