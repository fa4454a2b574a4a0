"""The package that ``steppe new-plugin`` writes passes the conformance kit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import python
from tests.limits import CHILD
from tests.testing.scaffold.conftest import FLEET

pytestmark = pytest.mark.programs

# A simulator of somebody else's: arrays of a size that depends on the name, and a seed of its own where none is given.
WAREHOUSE = """
import numpy as np

MOVES = [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)]


class Warehouse:
    n_actions = len(MOVES)

    def __init__(self, layout="small", robots=1):
        self.size = {"small": 4, "large": 8}[layout]

    def reset(self, seed=None):
        self.random = np.random.default_rng(seed)
        self.robot, self.shelf = self.random.integers(0, self.size, (2, 2))
        return self.seen()

    def seen(self):
        floor = np.zeros((self.size, self.size), np.uint8)
        floor[tuple(self.shelf)] = 1
        floor[tuple(self.robot)] = 2
        return {"floor": floor, "carrying": False, "battery": 0.5}

    def step(self, action):
        self.robot = np.clip(self.robot + MOVES[action], 0, self.size - 1)
        found = bool((self.robot == self.shelf).all())
        return self.seen(), float(found), found, {}
"""

# One in the manner of gymnasium, with spaces, five values from step and something to close.
DRIFT = """
import numpy as np


class Box:
    def __init__(self, low, high, shape):
        self.low, self.high, self.shape = np.full(shape, low), np.full(shape, high), shape
        self.dtype = np.dtype("float32")


class Drift:
    observation_space = Box(-8.0, 8.0, (2,))
    action_space = Box(-1.0, 1.0, (2,))

    def __init__(self):
        self.random = np.random.default_rng()

    def reset(self, *, seed=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.at, self.steps = self.random.normal(size=2).clip(-2, 2).astype(np.float32), 0
        return self.at, {}

    def step(self, action):
        self.at = (self.at + action + self.random.normal(size=2) / 9).clip(-8, 8).astype(np.float32)
        self.steps += 1
        return self.at, -float(abs(self.at).sum()), bool(abs(self.at).max() > 6), self.steps == 40, {}

    def close(self):
        self.at = None
"""


def run(*command: str, folder: Path, site: Path | None = None) -> str:
    """The output of a command, which must succeed."""
    path = [*([str(site)] if site else []), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(
        [*python(), "-m", *command], capture_output=True, text=True, timeout=CHILD, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def install(package: Path, site: Path) -> None:
    """Build the wheel of a package and unpack it into a folder of installed packages."""
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    run("pip", "install", *options, "--target", str(site), str(package), folder=site)


def install_library(site: Path, name: str, source: str) -> None:
    (site / f"{name}.py").write_text(source, encoding="utf-8")
    info = site / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n", encoding="utf-8")
    (info / "RECORD").write_text(f"{name}.py,,\n", encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    pytest.importorskip("hatchling", reason="builds wheels without an index")
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def kit(package: Path, site: Path, *options: str) -> str:
    """The last line that the tests of a package print."""
    return run("pytest", "-q", "-p", "no:cacheprovider", *options, folder=package, site=site).splitlines()[-1]


def test_a_generated_plugin_of_a_library_passes_the_kit(tmp_path, site):
    """A generated plugin of an installed library passes the conformance tests."""
    install_library(site, "warehouse", WAREHOUSE)
    library = ("--library", "warehouse>=1,<2", "--names", "small,large", "--transform", "GridOneHot")
    run("steppe", "new-plugin", "warehouse", *library, folder=tmp_path, site=site)
    package = tmp_path / "warehouse-steppe"
    install(package, site)

    assert run("steppe", "envs", "warehouse", folder=tmp_path, site=site).split() == ["large", "small"]
    plugins = run("steppe", "plugins", "--load", folder=tmp_path, site=site)
    assert "OK (warehouse 1.2)" in plugins
    assert "GridOneHot" in plugins
    # Neither the kit's tests of the library nor any of the environment is left out for a reason but a flag.
    assert "65 passed, 7 skipped" in kit(package, site)


def test_generated_specs_and_a_library_time_limit_pass_the_kit(tmp_path, site):
    """The specs come from spaces of the library, and the time limit is its own."""
    install_library(site, "drift", DRIFT)
    run("steppe", "new-plugin", "drift", "--library", "drift>=1,<2", "--names", "plain", folder=tmp_path, site=site)
    env = (tmp_path / "drift-steppe/src/drift_steppe/env.py").read_text(encoding="utf-8")

    assert '"observation": Bounded(-8.0, 8.0, shape=(2,)),' in env
    assert "self.action_spec = Bounded(-1.0, 1.0, shape=(2,))" in env
    assert "return bool(terminated), bool(truncated) or at_limit" in env
    install(tmp_path / "drift-steppe", site)
    assert " passed" in kit(tmp_path / "drift-steppe", site, "-k", "fit or seed or episode or paths or closed")


@pytest.mark.exhaustive
def test_a_generated_plugin_without_a_library_passes_the_kit(tmp_path, site):
    run("steppe", "new-plugin", "maze", "--names", "one", "--transform", "MazeOneHot", folder=tmp_path, site=site)
    install(tmp_path / "maze-steppe", site)

    assert " passed" in kit(tmp_path / "maze-steppe", site)


@pytest.mark.exhaustive
def test_a_new_family_of_transforms_passes_the_kit(tmp_path, site):
    command = ("new-plugin", "grids", "--kind", "transforms", "--transform", "GridOneHot,GridPlanes")
    run("steppe", *command, folder=tmp_path, site=site)
    install(tmp_path / "grids-steppe", site)

    assert " passed" in kit(tmp_path / "grids-steppe", site)


# A simulator of several agents: values by entry, a text for each, masks as numbers, ends of each agent.
MEADOW = """
import numpy as np


class Meadow:
    agents = ["goat_0", "goat_1", "dog_0"]
    n_actions = 3

    def __init__(self, name):
        self.days = {"short": 4, "long": 9}[name]
        self.random = np.random.default_rng()

    def seed(self, seed):
        self.random = np.random.default_rng(seed)

    def wake(self):
        self.day = 0
        self.at = {agent: self.random.normal(size=2) for agent in self.agents}
        return self.seen()

    def seen(self):
        cries = {agent: f"{agent} on day {self.day}" for agent in self.agents}
        masks = {agent: np.array([1, self.day % 2, 1], np.int8) for agent in self.agents}
        return {"at": self.at, "cry": cries, "mask": masks, "sky": {"day": self.day, "weather": "rain"}}

    def live(self, moves):
        self.at = {agent: self.at[agent] + moves[agent] for agent in self.agents}
        self.day += 1
        ends = {agent: self.day >= self.days for agent in self.agents}
        return self.seen(), {agent: 0.5 for agent in self.agents}, ends, {}
"""


def test_generated_groups_of_agents_pass_the_kit(tmp_path, site):
    """Texts, masks, shared and nested entries, and methods of other names come from the simulator."""
    install_library(site, "meadow", MEADOW)
    options = ("--kind", "group", "--library", "meadow>=1,<2", "--names", "short,long")
    methods = ("--reset", "wake", "--step", "live")
    written = run("steppe", "new-plugin", "meadow", *options, *methods, folder=tmp_path, site=site)

    assert "stands in" not in written
    install(tmp_path / "meadow-steppe", site)

    assert "47 passed, 8 skipped" in kit(tmp_path / "meadow-steppe", site)


# Ships and cranes: other entries, other actions, masks of the ships alone. The first argument takes the name.
HARBOUR = """
import numpy as np


class Box:
    low, high, shape, dtype = np.full(2, -1.0), np.full(2, 1.0), (2,), np.dtype("float32")


class Discrete:
    n = 3


class Harbour:
    possible_agents = ["ship_0", "crane_0", "ship_1"]
    action_spaces = {"ship_0": Discrete, "crane_0": Box, "ship_1": Discrete}

    def __init__(self, port="oslo"):
        self.berths = {"oslo": 5, "rotterdam": 12}[port]

    def reset(self, seed=None):
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.default_rng(seed)
        self.berth = {ship: int(self.random.integers(1, self.berths)) for ship in ("ship_0", "ship_1")}
        self.arm, self.hours = self.random.normal(size=2), 0
        return self.seen()

    def seen(self):
        ships = {
            ship: {"berth": berth, "cargo": {"kind": "tea", "tons": 3}, "mask": [berth > 0, True, berth < self.berths]}
            for ship, berth in self.berth.items()
        }
        return {**ships, "crane_0": {"arm": self.arm.copy(), "load": 0.5}}

    def step(self, moves):
        for ship in self.berth:
            self.berth[ship] = min(max(self.berth[ship] + moves[ship] - 1, 0), self.berths)
        self.arm += moves["crane_0"]
        self.hours += 1
        rewards = {agent: float(self.berth.get(agent, 0) == 0) for agent in self.possible_agents}
        return self.seen(), rewards, min(self.berth.values()) == 0, self.hours >= 20, {}
"""


def test_generated_groups_of_other_entries_pass_the_kit(tmp_path, site):
    install_library(site, "harbour", HARBOUR)
    options = ("--kind", "group", "--library", "harbour>=1,<2", "--names", "oslo,rotterdam")
    written = run("steppe", "new-plugin", "harbour", *options, folder=tmp_path, site=site)

    assert "stands in" not in written
    assert "takes no name" not in written
    install(tmp_path / "harbour-steppe", site)

    assert " passed" in kit(tmp_path / "harbour-steppe", site, "-k", "fit or seed or episode or mask or closed")


def test_a_generated_batch_passes_the_kit(tmp_path, site):
    """Arrays, texts and methods of other names come from the simulator, which resets some rows, and steps all."""
    install_library(site, "fleet", FLEET)
    options = ("--kind", "batch", "--library", "fleet>=1,<2", "--names", "bay,ocean")
    methods = ("--reset", "launch", "--step", "sail")
    written = run("steppe", "new-plugin", "fleet", *options, *methods, folder=tmp_path, site=site)

    assert "stands in" not in written
    install(tmp_path / "fleet-steppe", site)

    assert "37 passed, 18 skipped" in kit(tmp_path / "fleet-steppe", site)


@pytest.mark.parametrize("kind", ["group", "batch"])
@pytest.mark.exhaustive
def test_the_example_of_each_kind_passes_the_kit(tmp_path, site, kind):
    run("steppe", "new-plugin", "herd", "--kind", kind, "--names", "one", folder=tmp_path, site=site)
    install(tmp_path / "herd-steppe", site)

    assert " passed" in kit(tmp_path / "herd-steppe", site)
