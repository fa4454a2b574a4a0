"""AsyncBatchedCollector: environments at their own pace, and one policy for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steppe.collectors import Continuous, Lockstep, WorkerGroup
from steppe.errors import SpecError
from steppe_remote import InferenceCollector, ThreadGroup

__all__ = ["AsyncBatchedCollector"]

_BACKENDS = ("threading", "multiprocessing")


class AsyncBatchedCollector(InferenceCollector):
    """Collect in slow environments, each in a thread or process, with a policy that acts in one place.

    An environment that has stepped sends its observation to the policy, and waits. The calls that come within
    ``server_timeout`` seconds are answered by one call of the policy. ``inference="worker"`` gives each environment a
    copy of the policy instead. Batches are those of :class:`~steppe.MultiaSyncDataCollector`: a batch holds
    ``frames_per_batch`` frames of one environment.

    Args:
        create_env_fn: a list with a factory or id for each environment; or one for all of ``num_workers``.
        policy, inference, max_batch_size, server_timeout: see :class:`~steppe_remote.InferenceCollector`.
        sync: True: a batch ``[environments, ...]`` holds the data of all environments, made with the latest weights,
            and ``frames_per_batch`` is that of all together.
        backend: ``"threading"``, for environments that mostly wait; or ``"multiprocessing"``.
        **kwargs: see :class:`~steppe.Collector`.

    Raises:
        SpecError: ``backend`` is something else.
        WorkerError: an environment or the policy raised, or a process ended.

    Examples:
        >>> import torch
        >>> from tensordict.nn import TensorDictModule
        >>> from steppe import AsyncBatchedCollector
        >>> def act(observation):
        ...     return torch.nn.functional.one_hot((observation[..., 2] > 0).long(), 2)
        >>> policy = TensorDictModule(act, ["observation"], ["action"])
        >>> with AsyncBatchedCollector(["gym:CartPole-v1"] * 4, policy, frames_per_batch=50) as collector:
        ...     print(next(collector).shape)
        torch.Size([50])
    """

    def __init__(
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        inference: str = "server",
        sync: bool = False,
        backend: str = "threading",
        **kwargs: Any,
    ) -> None:
        if backend not in _BACKENDS:
            raise SpecError(f"{type(self).__name__}: backend is one of {', '.join(_BACKENDS)}, found {backend!r}.")
        self._env_backend = backend
        self.schedule = Lockstep if sync else Continuous  # type: ignore[misc]
        super().__init__(create_env_fn, policy, inference=inference, **kwargs)

    def new_group(self, n: int, settings: Mapping[str, Any]) -> WorkerGroup:
        """Return the workers, not started yet."""
        return ThreadGroup(n) if self._env_backend == "threading" else super().new_group(n, settings)
