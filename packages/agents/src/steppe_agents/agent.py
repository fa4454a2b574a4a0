"""Agent: base class of policies with an info or a recurrent state for each row."""

from __future__ import annotations

from typing import Any, ClassVar

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase

from steppe.specs import Composite

__all__ = ["Agent"]


class Agent(TensorDictModuleBase):
    """Base class of policies with an info and a recurrent state for each row.

    Requests and batches call it. Policies without an info or a recurrent state do not need this class. Any class with
    the same attributes can be used instead.

    ``forward`` is called with the data of the active rows ``[k]``: observations, ``("agent_info", ...)``,
    ``("agent_state", ...)`` and ``"is_init"``. It writes the action, any other entries to store, and the next state at
    ``("next", "agent_state", ...)``.

    Attributes:
        agent_info_spec: the info of one row, which a request passes.
        agent_info_default: the info in batches, and in requests without ``agent_info``; None if requests must pass it.
        agent_state_spec: the recurrent state of one row.
    """

    agent_info_spec: Composite = Composite({})
    agent_info_default: TensorDictBase | dict[str, object] | None = None
    agent_state_spec: Composite = Composite({})
    in_keys: ClassVar[list[Any]] = []
    out_keys: ClassVar[list[Any]] = ["action"]

    def initial_state(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the state of rows at the first step of an episode.

        Args:
            tensordict: the first observations of the rows ``[k]``, with ``agent_info`` and ``env_info``.

        Returns:
            Data of ``agent_state_spec`` ``[k]``: zeros, unless a subclass overrides this method.
        """
        zeros: TensorDictBase = self.agent_state_spec.expand(
            *tensordict.batch_size, *self.agent_state_spec.shape
        ).zero()
        return zeros
