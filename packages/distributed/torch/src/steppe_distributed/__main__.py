"""Run a node: ``python -m steppe_distributed HOST PORT SIZE TRANSPORT RANK``, as the launcher ``"mp"`` does."""

from __future__ import annotations

import sys

from steppe_distributed.node import serve
from steppe_distributed.rendezvous import Meeting

if __name__ == "__main__":
    host, port, size, transport, rank = sys.argv[1:]
    serve(Meeting(host, int(port), int(size), transport), int(rank))
