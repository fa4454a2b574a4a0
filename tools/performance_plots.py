"""Draw the figures of the performance page from the results of benchmarks.

    python tools/performance_plots.py [--check]

Each picture of ``docs/plots`` shows rows of a JSON file of ``benchmarks``. Its background is transparent, and its text
is readable on light and on dark pages. A picture holds a digest of what it shows: ``--check`` fails if the JSON has
changed since.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/plots"
# Grey text and both colours of bars have a contrast of at least 4 to white and to furo's dark background.
TEXT, OURS, OTHERS = "#7c7c7c", "#2f7fd6", "#8d8d8d"

Bars = dict[str, float]


class Plot(NamedTuple):
    """A row of panels; each has a title and bars. ``times`` are sorted with the shortest first."""

    label: str
    panels: dict[str, Bars]
    times: bool = False


def read(name: str) -> Any:
    return json.loads((ROOT / f"benchmarks/{name}.json").read_text(encoding="utf-8"))


def short(name: str) -> str:
    """Return the name of a contestant without the number of its environments."""
    return name.removesuffix("(8)").replace("steppe MultiThreadedEnv", "envpool: through steppe")


def rates(row: Any) -> Bars:
    return {short(name): value / 1_000 for name, value in row["medians"].items() if "raw_rows" not in name}


def plots() -> dict[str, Plot]:
    """Return what each picture shows."""
    vector, replay = read("vector"), read("replay")["rows"]
    titles = {"cartpole": "8 CartPoles", "image": "8 images 84x84x4", "halfcheetah": "8 HalfCheetahs"}
    torchrl = next(value for key, value in vector.items() if key.startswith("torchrl"))
    rows = {
        "vectors": "sample 256 vectors",
        "images": "sample 256 images",
        "extend": "write 1,000 vectors",
        "slices": "sample 32 slices",
    }
    contestants = ("steppe", "numpy", "cpprb", "SB3", "TorchRL")
    replay_bars = {
        title: {name: float(replay[key][name]) for name in contestants if name in replay[key]}
        for key, title in rows.items()
    }
    thousands = "thousand frames a second"
    return {
        "vector": Plot(thousands, {title: rates(vector[key]) for key, title in titles.items()}),
        "ppo": Plot(thousands, {"SB3's PPO on 8 CartPoles": rates(vector["ppo"])}),
        "torchrl": Plot(thousands, {"batches of 8 CartPoles": rates(torchrl)}),
        "replay": Plot("microseconds a call: shorter is better", replay_bars, times=True),
    }


def digest(plot: Plot) -> str:
    return hashlib.sha256(json.dumps(plot).encode()).hexdigest()


def draw(name: str, plot: Plot) -> None:
    """Write one picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), TEXT))
    plt.rcParams.update({"font.size": 9, "axes.edgecolor": TEXT})
    most = max(len(bars) for bars in plot.panels.values())
    columns = len(plot.panels)
    figure, axes = plt.subplots(columns, 1, figsize=(6.6, columns * (0.55 + 0.24 * most)), dpi=110, squeeze=False)
    for panel, (title, bars) in zip(axes[:, 0], plot.panels.items(), strict=True):
        names = sorted(bars, key=lambda key: bars[key], reverse=plot.times)
        values = [bars[key] for key in names]
        panel.barh(names, values, color=[OURS if "steppe" in key else OTHERS for key in names])
        for at, value in enumerate(values):
            panel.annotate(f" {value:,.3g}" if value < 1_000 else f" {value:,.0f}", (value, at), va="center")
        panel.set_title(title, fontsize=10, loc="left", color=TEXT)
        panel.spines[["top", "right", "bottom"]].set_visible(False)
        panel.tick_params(axis="both", which="both", length=0)
        panel.set_xticks([])
        panel.margins(x=0.12)
    axes[-1, 0].set_xlabel(plot.label)
    figure.tight_layout()
    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / f"{name}.png", transparent=True, metadata={"Software": None, "Source": digest(plot)})
    plt.close(figure)


def outdated() -> list[str]:
    """Return the names of pictures that are missing, or show other figures than the JSON has."""
    paths = {name: (FOLDER / f"{name}.png", digest(plot)) for name, plot in plots().items()}
    return [name for name, (path, sha) in paths.items() if not path.exists() or sha.encode() not in path.read_bytes()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="draw nothing; fail if a picture is out of date")
    if parser.parse_args().check:
        old = outdated()
        if old:
            print(f"Out of date: {', '.join(old)}. Run: python tools/performance_plots.py", file=sys.stderr)
        return int(bool(old))
    for name, plot in plots().items():
        draw(name, plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
