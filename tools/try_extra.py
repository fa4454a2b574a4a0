"""Test the packages that an extra of the core installs.

The session ``extras`` runs this in a new environment.

python tools/try_extra.py gym vmas
python tools/try_extra.py --readmes
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.documents import blocks
from tools.workspace import ROOT, packages

_LIMIT = 300.0  # time limit of a program in seconds
_ID = "gym:Pendulum-v1"  # steps of the README's program

_BOTH_GYMS = """
import importlib.metadata
import warnings

from steppe import make_env
from steppe_gym import set_gym_backend

if __name__ == "__main__":
    for backend in ("gymnasium", "gym"):
        version = importlib.metadata.version(backend)
        with set_gym_backend(backend):
            env = make_env("gym:CartPole-v1")
        data = env.rollout(20)
        module = type(env.unwrapped).__module__
        assert module.startswith(backend + "."), module
        print(backend, version, data["next", "reward"].sum().item())
    assert make_env("gym:CartPole-v1").unwrapped.__module__.startswith("gymnasium."), "the default"
"""


def run(program: str, what: str) -> None:
    """Run a program in a temporary folder.

    Raises:
        SystemExit: the program fails.
    """
    print(f"-- {what}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "program.py")
        file.write_text(program, encoding="utf-8")
        done = subprocess.run([sys.executable, str(file)], cwd=folder, timeout=_LIMIT)
    if done.returncode != 0:
        raise SystemExit(f"{what} ended with status {done.returncode}:\n{program}")


def ten_lines(id: str) -> None:
    """Run the program of the README with an environment."""
    (program,) = [block for block in blocks(ROOT / "README.md") if _ID in block]
    run(program.replace(_ID, id), f"README's program with {id}")


def plugins() -> list[dict[str, str]]:
    """Load all installed plugins.

    ``steppe plugins --load`` fails if one is broken.
    """
    command = [sys.executable, "-m", "steppe", "plugins", "--load", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT)
    if done.returncode != 0:
        raise SystemExit(f"a plugin is broken:\n{done.stdout}{done.stderr}")
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def check_transforms(distribution: str) -> None:
    """Import each transform of a package by its name.

    Raises:
        SystemExit: a transform cannot be imported.
    """
    import steppe.transforms

    package = next(one for one in packages() if one.name == distribution)
    for name, target in package.entry_points("steppe.transforms").items():
        found = getattr(steppe.transforms, name)
        if not issubclass(found, steppe.transforms.Transform):
            raise SystemExit(f"{name} of {distribution} is not a transform: {found}")
        print(f"-- {name}: {target}", flush=True)


def readmes() -> None:
    """Run the programs in the READMEs of the installed families of transforms.

    The READMEs of environments are not run, because they need other extras. Those of environments show what other
    extras of their libraries bring, and are tested with these.
    """
    from importlib.metadata import packages_distributions

    installed = {dist for dists in packages_distributions().values() for dist in dists}
    for package in packages():
        if package.name in installed and package.entry_points("steppe.transforms") and "envs" not in package.path.parts:
            for number, program in enumerate(blocks(package.path / "README.md")):
                run(program, f"README of {package.name}, program {number}")


def main(names: list[str]) -> None:
    """Test the extras."""
    if names == ["--readmes"]:
        return readmes()
    loaded = plugins()
    print("\n".join(f"-- {one['kind']} {one['name']}: {one['state']}" for one in loaded), flush=True)
    own = {one["dist"] for one in loaded}
    # `all` and `transforms` name several packages, and none has their name.
    wanted = {f"steppe-{name}" for name in names} & {package.name for package in packages()}
    if not wanted <= own:
        raise SystemExit(f"{sorted(wanted - own)} are not among the installed plugins {sorted(own)}")
    for distribution in sorted(own):
        check_transforms(distribution)
    if "steppe-gym" in own:
        ten_lines(_ID)
    if "steppe-vmas" in own:
        ten_lines("vmas:balance")
    if {"steppe-gym", "steppe-vmas"} <= own:
        run(_BOTH_GYMS, "gym and gymnasium side by side")
    if names == ["all"] and find_spec("jax") is not None:
        raise SystemExit("`all` installs JAX, which takes gigabytes that most users do not need")


if __name__ == "__main__":
    main(sys.argv[1:])
