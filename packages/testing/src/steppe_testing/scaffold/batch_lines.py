"""BatchLines: the source of an environment whose simulator steps a batch."""

from __future__ import annotations

from .source_lines import SourceLines

__all__ = ["BatchLines"]


class BatchLines(SourceLines):
    """Write the source of an environment that is a batch.

    Its simulator is the stand-in: libraries step their batches in too many ways to inspect them.
    """

    template = "env_batch.py"
    on_tensordicts = True
    bases = ("Categorical", "Composite", "EnvBase", "Unbounded")
