"""InferenceCollector: a collector whose policy acts in each worker, or in one place for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steppe.collectors import Collector
from steppe.envs import ExplorationType
from steppe.errors import NotSupported, PolicyError, SpecError
from steppe_remote.policy_server import PolicyServer

__all__ = ["InferenceCollector"]

#: Arguments of a collector that a policy must be in the worker for.
_NEED_POLICY = ("compile_policy", "auto_register_policy_transforms", "policy_seeds")


class InferenceCollector(Collector):
    """The base class of collectors with ``inference="server"``: the policy acts in this process for all workers.

    The calls of workers that come within ``server_timeout`` seconds are one call of the policy, of at most
    ``max_batch_size`` rows. This is faster where the policy is large, or needs a GPU, and environments are slow. New
    weights are used at once: with ``sync=False``, the later steps of a batch may be made with newer weights than its
    ``("collector", "policy_version")`` says. With a stochastic policy, the order in which calls arrive changes what is
    drawn.

    >>> import torch
    >>> from steppe import CategoricalActor
    >>> from steppe.collectors import Lockstep
    >>> from steppe_remote import InferenceCollector, ThreadGroup
    >>> class ThreadCollector(InferenceCollector):
    ...     schedule = Lockstep
    ...     def new_group(self, n, settings):
    ...         return ThreadGroup(n)
    >>> actor = CategoricalActor(torch.nn.Linear(4, 2))
    >>> settings = {"frames_per_batch": 40, "total_frames": -1, "inference": "server"}
    >>> with ThreadCollector(["gym:CartPole-v1"] * 2, actor, **settings) as collector:
    ...     next(collector).shape, collector.stats()["served_rows"] >= 40
    (torch.Size([2, 20]), True)

    Args:
        create_env_fn, policy, **kwargs: see :class:`~steppe.Collector`.
        inference: ``"worker"``: each worker has a copy of the policy; or ``"server"``.
        max_batch_size: with ``"server"``: the largest number of rows in a call of the policy.
        server_timeout: with ``"server"``: seconds that a call waits for those of other workers; None: as long as calls
            take, on average of the last.

    Attributes:
        server: the :class:`PolicyServer`, or None.

    Raises:
        SpecError: ``inference`` is something else.
        NotSupported: an argument needs the policy in the workers.
    """

    server: PolicyServer | None = None

    def __init__(
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        inference: str = "worker",
        max_batch_size: int = 64,
        server_timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        if inference not in ("worker", "server"):
            raise SpecError(f"{name}: inference is 'worker' or 'server', found {inference!r}.")
        if inference == "server":
            policy = self._serve(name, policy, max_batch_size, server_timeout, kwargs)
        try:
            super().__init__(create_env_fn, policy, **kwargs)
        except BaseException:
            self._end_server()
            raise

    def inference_host(self) -> str | None:
        """Return the name under which workers find this machine; None if they are on it."""
        return None

    def _serve(
        self, name: str, policy: Any, max_batch_size: int, server_timeout: float | None, settings: dict[str, Any]
    ) -> Any:
        """Start the server, and return the policy of the workers."""
        for argument in _NEED_POLICY:
            if settings.get(argument):
                raise NotSupported(f"{name} takes {argument}= with inference='worker' only.")
        factory = settings.pop("policy_factory", None)
        if policy is None and factory is None:
            raise PolicyError(f"{name}: inference='server' serves a policy, and policy= is None.")
        device = settings.pop("policy_device", None)
        self.server = PolicyServer(
            policy if policy is not None else factory(),
            max_batch_size=max_batch_size,
            server_timeout=server_timeout,
            device=settings.get("device") if device is None else device,
            exploration_type=settings.get("exploration_type") or ExplorationType.RANDOM,
            host=self.inference_host(),
        )
        return self.server.client()

    def update_policy_weights_(
        self,
        policy_or_weights: Any = None,
        *,
        weights: Any = None,
        policy: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Take over new weights, see :meth:`Collector.update_policy_weights_`; a served policy has them at once."""
        if self.server is None:
            super().update_policy_weights_(policy_or_weights, weights=weights, policy=policy, attributes=attributes)
            return
        values = [each for each in (policy_or_weights, weights, policy) if each is not None]
        if len(values) > 1:
            raise TypeError(f"{type(self).__name__}.update_policy_weights_ takes weights once, found {len(values)}.")
        self.server.update_weights(values[0] if values else None, attributes)
        super().update_policy_weights_(_without_weights)

    def state_dict(self) -> dict[str, Any]:
        """Return what :meth:`load_state_dict` needs, see :meth:`Collector.state_dict`."""
        state = super().state_dict()
        return state if self.server is None else {**state, "served_policy": self.server.weights()}

    def load_state_dict(self, state_dict: dict[str, Any], *, strict: bool = True) -> None:
        """Take over what :meth:`state_dict` returned."""
        super().load_state_dict(state_dict, strict=strict)
        if self.server is not None:
            self.server.update_weights(state_dict["served_policy"])

    def stats(self) -> dict[str, float]:
        """Counts as in every collector; with a server, ``served_calls`` of its policy and ``served_rows`` in them."""
        counts = super().stats()
        if self.server is not None:
            served = self.server.stats()
            counts.update(served_calls=served["calls"], served_rows=served["rows"])
        return counts

    def shutdown(self, timeout: float | None = None, close_env: bool = True, raise_on_error: bool = True) -> None:
        """End the workers and the server; see :meth:`Collector.shutdown`."""
        try:
            super().shutdown(timeout, close_env, raise_on_error)
        finally:
            if self.closed:
                self._end_server()

    def _end_server(self) -> None:
        if self.server is not None:
            self.server.shutdown()


def _without_weights() -> None:
    """Stand for a policy that has no weights: workers whose policy is served only count the version."""
