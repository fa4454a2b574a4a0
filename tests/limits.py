"""Time limits of what tests start and wait for.

They only end what hangs: a machine that is busy with other work may take five times as long as a quiet one, and no test
may fail for that. The limit of a test stands in pyproject.toml and is longer than these, so that what hung is named.
"""

from __future__ import annotations

__all__ = ["ANSWER", "AT_ONCE", "CHILD"]

#: Seconds that a process which a test has started may take; on a quiet machine the longest takes 20.
CHILD = 240.0

#: ``step_timeout`` of environments that hang, in seconds: the others, which answer in a millisecond on a quiet machine,
#: must have answered by then.
ANSWER = 2.0

#: Seconds for what happens at once, milliseconds on a quiet machine, where the alternative is to wait until a limit.
AT_ONCE = 20.0
