"""The kit for environments catches each wrong one with one test, and says so."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from steppe_testing import EnvConformance
from tests.forked import python
from tests.limits import CHILD

pytestmark = pytest.mark.programs

WRONG = Path(__file__).with_name("wrong_envs.py")


def cases():
    spec = importlib.util.spec_from_file_location("wrong_envs", WRONG)
    module = importlib.util.module_from_spec(spec)
    sys.modules["wrong_envs"] = module
    spec.loader.exec_module(module)
    return {name: case.caught_by for name, case in vars(module).items() if name.startswith("Test")}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run pytest over the wrong environments once.

    Returns outcomes by class, and the output.
    """
    folder = tmp_path_factory.mktemp("run")
    report = folder / "report.xml"
    # One process for all rows, so that environments in it can disturb each other.
    arguments = ["-q", "-p", "no:cacheprovider", "--rootdir", str(folder), "-c", str(folder / "none.ini")]
    (folder / "none.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [*python(), "-m", "pytest", *arguments, "--steppe-workers=1", f"--junitxml={report}", str(WRONG)],
        capture_output=True,
        text=True,
        timeout=CHILD,
    )
    assert report.is_file(), done.stdout + done.stderr
    outcomes: dict[str, dict[str, str]] = {}
    for test in ET.parse(report).getroot().iter("testcase"):
        outcome = next((child.tag for child in test if child.tag in ("failure", "error", "skipped")), "passed")
        outcomes.setdefault(test.get("classname").rpartition(".")[2], {})[test.get("name")] = outcome
    return outcomes, done.stdout


@pytest.mark.parametrize(("case", "caught_by"), cases().items())
def test_each_wrong_environment_fails_exactly_one_test(run, case, caught_by):
    """Each mistake is caught by the one test that is meant for it."""
    outcomes = run[0][case]
    failed = {name for name, outcome in outcomes.items() if outcome in ("failure", "error")}

    assert failed == ({caught_by} if caught_by else set())


def test_a_sound_environment_passes_what_it_says_it_can_do(run):
    passed = [name for name, outcome in run[0]["TestSound"].items() if outcome == "passed"]

    assert len(passed) >= 15


def test_skips_are_printed_and_counted(run):
    printed = run[1]

    assert "steppe conformance" in printed
    assert "1 skipped by TestSound.supports_pixels=False" in printed
    assert "not run before this is fixed: TestDtype.test_data_fits_the_specs: CountingEnv" not in printed
    assert "TestDtype.test_data_fits_the_specs: wrong: the data does not fit the specs" in printed
    assert "skipped by capability flags" in printed


def test_each_test_of_the_kit_catches_a_wrong_environment():
    tests = {name for name in vars(EnvConformance) if name.startswith("test_")}

    # What moves to a GPU in the wrong way needs one to be found out.
    assert tests - set(cases().values()) == {"test_it_moves_to_cuda"}
