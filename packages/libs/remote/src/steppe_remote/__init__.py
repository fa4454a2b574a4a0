"""Workers of collectors in processes that other engines start, such as Ray or torch.distributed."""

from __future__ import annotations

from steppe_remote.group import RemoteGroup, WorkerGone
from steppe_remote.inference import InferenceCollector
from steppe_remote.node_arguments import makers_of_nodes, weight_update_hook
from steppe_remote.packing import Packed, dumps, loads
from steppe_remote.policy_server import PolicyServer
from steppe_remote.remote_worker import Message, RemoteWorker
from steppe_remote.served_policy import ServedPolicy
from steppe_remote.thread_group import ThreadGroup
from steppe_remote.weights import Published, ReceivedWeights, RemoteWeights

__all__ = [
    "InferenceCollector",
    "Message",
    "Packed",
    "PolicyServer",
    "Published",
    "ReceivedWeights",
    "RemoteGroup",
    "RemoteWeights",
    "RemoteWorker",
    "ServedPolicy",
    "ThreadGroup",
    "WorkerGone",
    "dumps",
    "loads",
    "makers_of_nodes",
    "weight_update_hook",
]
