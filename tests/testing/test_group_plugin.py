"""The plugin for groups of agents, as its page writes it, passes the conformance kit in few lines."""

from __future__ import annotations

import re
import sys
from typing import Any, ClassVar

import pytest

from steppe.registry import Registry
from steppe_testing import EnvConformance
from tools.documents import blocks
from tools.workspace import ROOT

PAGE = ROOT / "docs/authors/groups-of-agents.md"


def files() -> dict[str, str]:
    """Return the sources of the page by module: its first block has the simulator and the environment."""
    first, plugin = blocks(PAGE)[0], next(block for block in blocks(PAGE) if "plugin.py" in block)
    imports, simulator, env = re.split(r"# streets(?:_steppe/env)?\.py: .*\n", first.partition("if __name__")[0])
    return {
        "streets.py": f"import numpy as np\n{simulator}",
        "streets_steppe/__init__.py": "",
        "streets_steppe/env.py": f"from streets import Town\n{imports}{env}",
        "streets_steppe/plugin.py": plugin,
    }


@pytest.fixture(scope="module", autouse=True)
def streets(tmp_path_factory):
    """The modules of the plugin, on the import path of this process and of its workers."""
    folder = tmp_path_factory.mktemp("streets")
    (folder / "streets_steppe").mkdir()
    for name, source in files().items():
        (folder / name).write_text(source, encoding="utf-8")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("streets", "streets_steppe")]:
        del sys.modules[name]


class TestLane(EnvConformance):
    max_steps: ClassVar = 60
    supports_pixels: ClassVar = True

    def make_env(self, **kwargs: Any) -> Any:
        from streets_steppe.env import TownEnv

        return TownEnv(5, time_limit=20, **kwargs)


def test_the_plugin_has_at_most_150_lines():
    sources = [source for name, source in files().items() if name.startswith("streets_steppe/")]

    assert 50 < sum(len(source.splitlines()) for source in sources) <= 150


def test_the_entry_point_makes_each_name(fake_dist):
    fake_dist("streets-steppe", "0.1.0", envs={"streets": "streets_steppe.plugin"}, requires=["steppe"])
    registry = Registry(path=[str(fake_dist.path)])

    assert registry.env_names("streets") == ["avenue", "lane"]
    env = registry.make("streets:avenue", {"time_limit": 3})
    assert env.rollout(9)["red", "action_mask"].shape[1:] == (2, 3)
    with pytest.raises(LookupError, match=r"no environment 'lan'\. Did you mean 'lane'"):
        registry.make("streets:lan", {})
