"""RayReplayBuffer: a replay buffer in an actor, which collectors write to and learners sample from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import ray
from tensordict import TensorDictBase

from steppe_ray.cluster import check_resources, connect
from steppe_ray.ray_group import DEFAULT_CONFIG
from steppe_remote import Packed, dumps, loads

__all__ = ["RayReplayBuffer"]


class _Buffer:
    """The actor. Its methods run one after another."""

    def __init__(self, make: bytes) -> None:
        self._buffer = cloudpickle.loads(make)()

    def extend(self, data: Packed) -> None:
        # The memory of the message is the object store's, and the buffer may keep what it gets.
        self._buffer.extend(loads(data).clone())

    def call(self, method: str, args: Packed) -> Packed:
        positional, named = loads(args)
        return dumps(getattr(self._buffer, method)(*positional, **named))

    def get(self, name: str) -> Any:
        return len(self._buffer) if name == "__len__" else getattr(self._buffer, name)


class RayReplayBuffer:
    """A replay buffer that lives in an actor of a Ray cluster.

    Copies of this object in other processes are the same buffer. As ``replay_buffer=`` of a collector, it is written by
    the workers themselves: no data passes through the process of the collector. Methods raise what the buffer raises.

    Args:
        make_buffer: makes the buffer, in the actor: any class with ``extend``, ``sample`` and ``write_count``.
        remote_config: options of the actor, such as ``{"num_cpus": 1, "memory": 8 * 2**30}``.
        ray_init_config: arguments of ``ray.init``, if this process is not connected to a cluster.

    Examples:
        >>> from steppe import LazyTensorStorage, ReplayBuffer, make_env
        >>> from steppe_ray import RayReplayBuffer
        >>> def make():
        ...     return ReplayBuffer(storage=LazyTensorStorage(10_000), batch_size=32)
        >>> buffer = RayReplayBuffer(make)
        >>> indices = buffer.extend(make_env("gym:CartPole-v1").rollout(50, break_when_any_done=False))
        >>> len(buffer), buffer.sample().shape
        (50, torch.Size([32]))
    """

    def __init__(
        self,
        make_buffer: Callable[[], Any],
        *,
        remote_config: Mapping[str, Any] | None = None,
        ray_init_config: Mapping[str, Any] | None = None,
    ) -> None:
        config = {**DEFAULT_CONFIG, **(remote_config or {})}
        connect(type(self).__name__, ray_init_config)
        check_resources(type(self).__name__, [config])
        self._actor = ray.remote(_Buffer).options(**config).remote(cloudpickle.dumps(make_buffer))
        ray.get(self._actor.get.remote("write_count"))  # raises the error of make_buffer

    def extend(self, data: TensorDictBase) -> None:
        """Write data; returns when it is in the buffer."""
        ray.get(self._actor.extend.remote(dumps(data)))

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Return a sample, see the method of the buffer. Its memory is read from the object store without a copy."""
        return self.call("sample", *args, **kwargs)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the buffer, and return its result."""
        return loads(ray.get(self._actor.call.remote(method, dumps((args, kwargs)))))

    @property
    def write_count(self) -> int:
        """The number of frames that were written."""
        return int(ray.get(self._actor.get.remote("write_count")))

    def __len__(self) -> int:
        return int(ray.get(self._actor.get.remote("__len__")))

    def writers(self, n: int, example: TensorDictBase) -> list[_Writer]:
        """Return what ``n`` workers of a collector write with."""
        return [_Writer(self._actor) for _ in range(n)]

    def close(self) -> None:
        """End the actor; its data is lost."""
        ray.kill(self._actor)


class _Writer:
    """Write batches to the actor from a worker; each write waits until the buffer has the batch."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def extend(self, data: TensorDictBase) -> None:
        ray.get(self._actor.extend.remote(dumps(data)))
