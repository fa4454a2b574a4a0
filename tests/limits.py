"""Time limits for processes and waits of tests.

They only end processes that hang: a busy machine may take five times as long as an idle one, and no test may fail
because of that. The limit of a whole test, in pyproject.toml, is longer, so that the error names what hung.
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
