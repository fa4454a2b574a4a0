"""Measure the time to find plugins: whole commands, and a scan of many packages.

    python benchmarks/bench_discovery.py [--rounds 9]

``steppe plugins`` is compared with a process that only imports importlib_metadata, pluggy and packaging; the import of
the public classes with a process that imports torch and tensordict. The scan reads fake packages.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Contest, show

BARE = "import importlib_metadata, pluggy, packaging.requirements, packaging.version"
TORCH = "import torch, tensordict"
CLASSES = "from steppe import EnvBase, ParallelEnv, SyncDataCollector"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()

    rows = []
    contest = Contest("processes", "s")
    contest.add("importing importlib_metadata, pluggy, packaging", lambda: process("-c", BARE))
    contest.add("steppe plugins", lambda: process("-m", "steppe", "plugins"))
    contest.add("import steppe", lambda: process("-c", "import steppe"))
    contest.add("importing torch, tensordict", lambda: process("-c", TORCH))
    contest.add(CLASSES, lambda: process("-c", f"{TORCH}; {CLASSES}"))
    medians = contest.run(args.rounds)
    base = {"steppe plugins": "importing importlib_metadata, pluggy, packaging", CLASSES: "importing torch, tensordict"}
    for name, seconds in medians.items():
        over = f"{seconds - medians[base[name]]:+.3f}" if name in base else ""
        rows.append([name, f"{seconds:.3f}", over])
    show("a whole process, s", ["what", "median", "over its base"], rows)
    show("discovery in one process, ms", ["packages", "median"], [[str(n), f"{scan(n):.1f}"] for n in (10, 100, 1000)])


def process(*arguments: str) -> float:
    """Run an interpreter; return the seconds that it took."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def scan(n: int) -> float:
    """Read the metadata of ``n`` fake packages, of which one in ten is a plugin.

    Returns the median of several scans in ms.
    """
    script = """
import sys, time, statistics
sys.path.insert(0, sys.argv[1])
from steppe.registry import list_plugins, refresh
list_plugins()
times = []
for _ in range(7):
    refresh()
    start = time.perf_counter()
    list_plugins()
    times.append(time.perf_counter() - start)
print(statistics.median(times) * 1e3)
"""
    with tempfile.TemporaryDirectory() as folder:
        for i in range(n):
            info = Path(folder) / f"fake_{i}-1.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fake-{i}\nVersion: 1.0\n")
            if i % 10 == 0:
                (info / "entry_points.txt").write_text(f"[steppe.envs]\nfake{i} = fake_{i}:plugin\n")
        output = subprocess.run([sys.executable, "-c", script, folder], check=True, capture_output=True, text=True)
    return float(output.stdout)


if __name__ == "__main__":
    main()
