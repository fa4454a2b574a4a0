"""The fork server forks workers from processes that have imported modules of the caller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.core.batched.callers_modules import OWN, run_own

pytestmark = [pytest.mark.programs, pytest.mark.usefixtures("nothing_left")]


def test_a_module_of_the_caller_is_imported_once_for_all_workers(run_script: Any, tmp_path: Path) -> None:
    code = """
import own
print(begun(own.make))
print(begun(own.make))
print(begun(lambda: own.make()))
with MultiSyncDataCollector([own.make] * 2, frames_per_batch=2) as collector:
    print(next(collector)["observation"].flatten().tolist())
print(len(Path(own.__file__ + ".log").read_text().splitlines()))
"""
    said = run_own(run_script, code, tmp_path, own=OWN.format(more="", shift=0))

    assert said[:4] == ["[0.0, 0.0]"] * 4
    assert said[4] == "2"  # by the caller, and for all workers


EDITED = """
import own
print(begun(own.make), begun(own.make))
text = Path(own.__file__).read_text()
write("own", text.replace("SHIFT = 10", "SHIFT = 300"))
print(begun(own.make), begun(own.make))
write("helper", "LIMIT = 55555")  # which it imports
print(begun(own.make), begun(own.make))
"""
VARIABLES = """
os.environ["SHIFT"] = "20"
import own
print(begun(own.make), begun(own.make))
os.environ["UNRELATED"] = "1"
print(begun(own.make))
os.environ["SHIFT"] = "70"
print(begun(own.make), begun(own.make))
"""
KILLED = """
import own, signal
print(begun(own.make), begun(own.make))
(children,) = Path(f"/proc/{fork_server().process.pid}/task").glob("*/children")
(module_server,) = children.read_text().split()
os.kill(int(module_server), signal.SIGKILL)
while Path(f"/proc/{module_server}").exists():
    time.sleep(0.01)
print(begun(own.make), begun(own.make))
"""


@pytest.mark.parametrize(
    ("code", "more", "shift", "expected"),
    [
        pytest.param(EDITED, "import helper", 10, [[10.0] * 2, [300.0] * 2, [300.0] * 2], id="edited"),
        pytest.param(VARIABLES, "", 'int(os.environ["SHIFT"])', [[20.0] * 2, [20.0], [70.0] * 2], id="variables"),
        pytest.param(KILLED, "", 0, [[0.0] * 2] * 2, id="its holder killed"),
    ],
)
def test_workers_import_the_callers_current_module(
    code: str, more: str, shift: Any, expected: list[list[float]], run_script: Any, tmp_path: Path
) -> None:
    """Workers import a module again after an edit or a changed variable."""
    said = run_own(run_script, code, tmp_path, own=OWN.format(more=more, shift=shift), helper="LIMIT = 5")

    assert said == [" ".join(f"[{first}, {first}]" for first in line) for line in expected]
