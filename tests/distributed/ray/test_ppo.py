"""The example of PPO learns with the data of an actor."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("ray")
pytest.importorskip("gymnasium")
pytest.importorskip("steppe_agents")

from steppe_ray import RayCollector

pytestmark = [pytest.mark.matrix, pytest.mark.usefixtures("cluster"), pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[3] / "docs/examples/ppo.py"


def example() -> ModuleType:
    """The example, with the one line changed that names its collector."""
    text = EXAMPLE.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("COLLECTOR = "))
    changed = text.replace(line, "COLLECTOR = steppe.RayCollector")
    module = ModuleType("ppo_on_ray")
    exec(compile(changed, str(EXAMPLE), "exec"), vars(module))
    return module


def test_ppo_learns_by_one_changed_line() -> None:
    ppo = example()
    assert ppo.COLLECTOR is RayCollector
    returns = [mean_return for _, _, mean_return in ppo.train(16_384, seed=0, evaluate_every=8)]

    assert max(returns[-3:]) > 150, returns
    assert max(returns[-3:]) > 2 * returns[0] or returns[0] > 150, returns
