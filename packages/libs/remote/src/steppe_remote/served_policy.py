"""ServedPolicy: a policy that asks a PolicyServer, from whichever process it is called in."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.envs import EnvBase
from steppe.errors import NotSupported, PolicyError
from steppe.specs import Composite, is_private

__all__ = ["EnvDescription", "Key", "ServedPolicy"]

Key: TypeAlias = "str | tuple[str, ...]"


@dataclass
class EnvDescription:
    """What a policy may ask of the environment in which it acts; the attributes are those of an environment."""

    full_observation_spec: Composite
    full_action_spec: Composite
    action_keys: list[Any]
    observation_keys: list[Any]
    batch_size: torch.Size

    @classmethod
    def of(cls, env: EnvBase) -> EnvDescription:
        """Describe an environment."""
        specs = env.full_observation_spec.cpu(), env.full_action_spec.cpu()
        return cls(*specs, list(env.action_keys), list(env.observation_keys), env.batch_size)


class ServedPolicy(torch.nn.Module):
    """Ask a :class:`PolicyServer` for actions. Each copy has a connection of its own, opened at the first call.

    >>> import torch
    >>> from steppe import make_env
    >>> from steppe_remote import PolicyServer, ServedPolicy
    >>> from tensordict.nn import TensorDictModule
    >>> server = PolicyServer(TensorDictModule(torch.nn.Linear(3, 1), ["observation"], ["action"]))
    >>> client = server.client()  # can be sent to other processes
    >>> isinstance(client, ServedPolicy), make_env("gym:Pendulum-v1").rollout(3, client)["action"].shape
    (True, torch.Size([3, 1]))
    >>> server.shutdown()

    Args:
        address: of the server.
        key: with which clients and the server recognise each other.

    Raises:
        PolicyError: the server has ended, cannot be reached, or its policy has raised; the text has the traceback.
    """

    def __init__(self, address: Any, key: bytes) -> None:
        super().__init__()
        # One text, because a collector looks for weights in the attributes of policies.
        self._server = pickle.dumps((address, key)).hex()
        self._forget()

    def _forget(self) -> None:
        self._connection: Connection | None = None
        self._env: EnvDescription | None = None
        self._owner = 0
        self._in_keys: list[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_connection": None, "_env": None, "_owner": 0, "_in_keys": None}

    def check_env(self, env: EnvBase) -> None:
        """Note what the server tells its policy of the environment."""
        self._env = EnvDescription.of(env)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the actions of the served policy.

        Args:
            tensordict: the root ``[*B]``.
        """
        if self._connection is None or self._owner != os.getpid():
            self._connect()
        batch = tensordict.batch_size
        rows = batch.numel()
        keys: Any = self._in_keys
        if keys is None:
            keys = [key for key in tensordict.keys(True, True) if not is_private(key)]
        values = {key: _array(key, tensordict.get(key), len(batch), rows) for key in keys if key in tensordict}
        for key, value in self._asked((rows, values)).items():
            tensor = torch.from_numpy(value)
            tensor = tensor.reshape((*batch, *tensor.shape[1:]))
            tensordict.set(key, tensor if tensordict.device is None else tensor.to(tensordict.device))
        return tensordict

    def _connect(self) -> None:
        address, key = pickle.loads(bytes.fromhex(self._server))
        try:
            self._connection = Client(address, authkey=key)
        except (OSError, EOFError) as error:
            raise PolicyError(
                f"No policy server answers at {_shown(address)} ({type(error).__name__}: {error}). It ends with its "
                "collector; if it runs, this machine does not reach it: open its port, or take inference='worker'."
            ) from error
        self._owner = os.getpid()
        self._in_keys = self._asked(self._env or EnvDescription(Composite(), Composite(), [], [], torch.Size([])))

    def _asked(self, message: Any) -> Any:
        """Send the server a message, and return its reply."""
        connection = self._connection
        assert connection is not None
        try:
            connection.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
            kind, reply = pickle.loads(connection.recv_bytes())
        except (OSError, EOFError) as error:
            self._connection = None
            raise PolicyError(
                f"The policy server has ended, and this environment waited for its action "
                f"({type(error).__name__}: {error})."
            ) from error
        if kind == "failed":
            raise PolicyError(reply)
        return reply


def _array(key: Any, value: Any, dims: int, rows: int) -> np.ndarray[Any, Any]:
    """Return an entry of the root as an array ``[rows, ...]``."""
    if not isinstance(value, torch.Tensor):
        raise NotSupported(f"A served policy reads tensors, found {key!r} of {type(value).__name__}.")
    try:
        return value.detach().cpu().reshape(rows, *value.shape[dims:]).numpy()
    except TypeError as error:
        raise NotSupported(
            f"A served policy reads entries that numpy knows, found {key!r} of {value.dtype}."
        ) from error


def _shown(address: Any) -> str:
    return "a socket of this machine" if isinstance(address, str) else f"{address[0]}:{address[1]}"
