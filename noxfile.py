"""Every check of this repository: ``nox -l`` lists them, ``nox -s tests`` runs one.

A session that needs torch sees one shared environment (tools/base_env.py). Matrix rows stand in the pyproject.toml of
the package that they test (tools/workspace.py).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import nox
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tools.base_env import CONSTRAINTS, use_base
from tools.wheelhouse import build_wheels, families, install_extras, new_environment
from tools.workspace import ROOT, all_rows, packages, with_required

nox.options.sessions = ["lint", "types", "light", "tests", "programs"]
nox.options.reuse_venv = "yes"

# Images of containers set this. Each of the hundreds of interpreters that tests start would compile torch anew, which
# takes three times as long as importing it does.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Without a display: MuJoCo draws through EGL, pygame into memory and without sound.
HEADLESS = {
    "MUJOCO_GL": "egl",
    "SDL_VIDEODRIVER": "dummy",
    "SDL_AUDIODRIVER": "dummy",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}

# JAX keeps on disk what it has compiled, however quickly.
COMPILED_CACHE = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}

TYPED = [str((package.path / "src").relative_to(ROOT)) for package in packages()]

# The libraries that the tests compare with, beside what the packages need themselves.
TEST_LIBRARIES = [
    "gymnasium[box2d,classic-control,toy-text,mujoco]",
    "gym",
    "ale-py",
    "minigrid",
    "mo-gymnasium",
    "vmas",
    "mujoco==3.17.0",
    "multi-agent-ale-py",
    "envpool",
    "opencv-python-headless",
    "imageio-ffmpeg",
    "tensorboard",
    "wandb",
    "mlflow-skinny",
    "hypothesis",
    "psutil",
]


# Tests on all cores. Those of a file share environments, and stay in one process. Files come in their usual order: by
# themselves, those of few and long tests would come last, and one core would wait for them.
SPREAD = ("-n", "logical", "--maxprocesses", "4", "--no-loadscope-reorder", "--dist", "loadfile")

# What every change is tested with, in the sessions tests and programs.
QUICK = "not slow and not exhaustive and not library"


@nox.session
def demo(session: nox.Session) -> None:
    """Collect 20,000 transitions of Pendulum with two worker processes."""
    use_base(session)
    install_local(session, "steppe", "steppe-gym")
    session.install("-c", str(CONSTRAINTS), "gymnasium")
    out = Path(session.create_tmp()) / "pendulum"
    session.run(
        *("steppe", "collect", "gym:Pendulum-v1", "--num-envs", "8", "--num-processes", "2", "--frames", "20000"),
        *("--seed", "0", "--out", str(out), "--overwrite", *session.posargs),
        env=HEADLESS,
    )


@nox.session(reuse_venv=False)
def clone(session: nox.Session) -> None:
    """Run the line of README that installs from a clone, as it stands, in an environment that has nothing but pip."""
    (line,) = re.findall(r"^python -m pip install torch && .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    # The versions that are tested, and so a build of torch that this machine may have already.
    session.run("sh", "-c", line, external=True, env={"PIP_CONSTRAINT": str(CONSTRAINTS), "PIP_QUIET": "1"})
    session.run("python", "tools/try_extra.py", "gym", "vmas", env=HEADLESS)


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests but those of programs, the slow ones and the long suites; arguments after -- go to pytest."""
    install_for_tests(session)
    session.run("python", "-m", "pytest", "-m", f"{QUICK} and not programs", *SPREAD, *session.posargs, env=HEADLESS)


@nox.session
def programs(session: nox.Session) -> None:
    """Run what starts programs as users do: those of the documents, commands, scripts; arguments as for tests."""
    install_for_tests(session)
    session.run("python", "-m", "pytest", "-m", f"{QUICK} and programs", *SPREAD, *session.posargs, env=HEADLESS)


@nox.session
def pettingzoo(session: nox.Session) -> None:
    """Run the whole suite of steppe-pettingzoo, of which ``tests`` takes the smoke part."""
    install_for_tests(session)
    session.run("python", "-m", "pytest", "tests/envs/pettingzoo", *session.posargs, env=HEADLESS)


@nox.session
def slow(session: nox.Session) -> None:
    """Run the tests that take long; arguments after -- go to pytest."""
    install_for_tests(session)
    session.run("python", "-m", "pytest", "-m", "slow and not exhaustive", *SPREAD, *session.posargs, env=HEADLESS)


@nox.session
def exhaustive(session: nox.Session) -> None:
    """Check at length what other tests check in part: all records, all scenarios; arguments after -- go to pytest."""
    install_for_tests(session)
    # Each process begins with a part of the one long file, whose tests share environments.
    spread = (*SPREAD[:-1], "worksteal")
    session.run("python", "-m", "pytest", "-m", "exhaustive", *spread, *session.posargs, env=HEADLESS)


@nox.session
def portable(session: nox.Session) -> None:
    """Test batches and workers with what other systems have in place of memfd, eventfd and epoll."""
    install_for_tests(session)
    folders = session.posargs or ["tests/core/batched", "tests/core/workers", "tests/pools"]
    session.run("python", "-m", "pytest", *folders, env={**HEADLESS, "PYTHONPATH": "tests/without_linux"})


@nox.session
def torchrl(session: nox.Session) -> None:
    """Train TorchRL's modules and losses on our data, and run programs with either library, side by side."""
    use_base(session)
    ours = ("steppe", "steppe-agents", "steppe-gym", "steppe-pools", "steppe-testing", "steppe-torchrl")
    transforms = [found.name for found in packages() if found.path.parent.name == "transforms"]
    install_local(session, *ours, *transforms, dependencies=False)
    # The newest TorchRL, with the tensordict that it asks for in place of that of the base.
    free = write_constraints(session, "torchrl", "tensordict")
    session.install("-c", free, "torchrl", "gymnasium[classic-control]")
    session.run("python", "-m", "pytest", "tests/with_torchrl", *session.posargs, env=HEADLESS)
    session.run("python", "-m", "pytest", "tests/ecosystem/test_documents.py", "-k", "bridges", env=HEADLESS)


@nox.session
def jax(session: nox.Session) -> None:
    """Test the plugins of libraries in JAX; ``-- -m "not library and not slow"`` takes the smoke part."""
    use_base(session)
    plugins = ("steppe-agents", "steppe-jax", "steppe-brax", "steppe-jumanji", "steppe-record")
    install_local(session, "steppe", "steppe-testing", *plugins)
    session.install("-c", str(CONSTRAINTS), "mujoco==3.17.0", "mujoco-mjx", "psutil")
    # Tests make the same environments again and again, in workers too: each is compiled once.
    env = {**HEADLESS, "JAX_COMPILATION_CACHE_DIR": str(Path(session.create_tmp()) / "compiled"), **COMPILED_CACHE}
    folders = ("tests/libs/jax", "tests/envs/brax", "tests/envs/jumanji")
    session.run("python", "-m", "pytest", *(session.posargs or ("-m", "not slow")), *folders, env=env)
    if not session.posargs:
        session.run("python", "-m", "pytest", "-m", "slow", *folders, env=env)
        documents = "brax or jumanji or libs"
        session.run("python", "-m", "pytest", "tests/ecosystem/test_documents.py", "-k", documents, env=env)


@nox.session
def lint(session: nox.Session) -> None:
    """Check format and style; ``-- --fix`` fixes what can be."""
    session.install("-c", str(CONSTRAINTS), "ruff")
    fix = "--fix" in session.posargs
    session.run("ruff", "check", *(["--fix"] if fix else []), ".")
    session.run("ruff", "format", *([] if fix else ["--check"]), ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types, strictly, in every package."""
    use_base(session)
    install_local(session, "steppe")
    session.install("-c", str(CONSTRAINTS), "mypy")
    session.run("mypy", *TYPED)


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
def light(session: nox.Session) -> None:
    """Test the registry, the version dispatch and the command line without torch, on every Python there is."""
    session.install(
        "-c",
        str(CONSTRAINTS),
        "cloudpickle",
        "editables",
        "hatchling",
        "importlib-metadata",
        "packaging",
        "pluggy",
        "pytest",
        "pytest-timeout",
    )
    install_editable(session, "steppe", "steppe-gym", "steppe-testing")
    session.run("python", "-c", "import importlib.util as u; assert u.find_spec('torch') is None, 'torch is here'")
    session.run(
        *("python", "-m", "pytest", "tests/core/registry", "tests/core/versions", "tests/core/cli"),
        *("tests/testing/test_new_plugin.py", *session.posargs),
    )


@nox.session(reuse_venv=False)
def wheels(session: nox.Session) -> None:
    """Build every package, install the core with its extra ``all`` from the wheels, and load each plugin."""
    use_base(session)
    house = build_wheels(session)
    session.install("-c", str(CONSTRAINTS), "--find-links", house, f"steppe[all]=={packages()[0].version}")
    session.run("steppe", "plugins", "--load")


@nox.session(reuse_venv=False)
def extras(session: nox.Session) -> None:
    """Install extras of the core from local wheels into new environments, as users will from the index, and try them.

    ``gym``, ``gym,vmas``, each family of transforms, and ``all``; names after -- choose some. Libraries come in their
    newest versions. torch and what else the core depends on are those of the base environment (tools/base_env.py).
    """
    use_base(session)
    house = build_wheels(session)
    chosen = session.posargs or ["gym", "gym,vmas", *(family.short for family in families()), "all"]
    for names in chosen:
        python = new_environment(session, names.replace(",", "-"))
        install_extras(session, python, house, *names.split(","))
        session.run(python, "tools/try_extra.py", *names.split(","), external=True, env=HEADLESS)
        if names == "all":
            # What the READMEs of the families show, with the kit's mock environments.
            install_extras(session, python, house, "all", "testing")
            session.run(python, "tools/try_extra.py", "--readmes", external=True, env=HEADLESS)


@nox.session(reuse_venv=False)
def author(session: nox.Session) -> None:
    """Follow docs/authors/write-a-plugin.md with wheels of the core and the kit: each file, command and error in it.

    The environment is new; torch and the build tools are those of the base environment (tools/base_env.py), so that the
    author's packages are built without an index.
    """
    use_base(session)
    house = build_wheels(session)
    session.install("-c", str(CONSTRAINTS), "--find-links", house, f"steppe[testing]=={packages()[0].version}", "nox")
    folder = Path(session.create_tmp()) / "author"
    shutil.rmtree(folder, ignore_errors=True)
    # The shell of the guide finds what lies in the wheelhouse, and the build tools that are installed.
    pip = {"PIP_FIND_LINKS": house, "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "1"}
    session.run("python", "tools/author.py", str(folder), env=pip)


@nox.session(venv_backend="none")
def sync(session: nox.Session) -> None:
    """Write the core's extras and the table of known names from the packages' pyprojects; ``-- --check`` only looks."""
    session.run(sys.executable, "tools/sync.py", *session.posargs)


@nox.session(venv_backend="venv", default=False)
@nox.parametrize(
    "package,row",
    [
        nox.param(of.short, row.id, id=f"{of.short}, {row.id}", tags=[of.short, *(["ci"] if row.ci else [])])
        for of, row in all_rows()
    ],
)
def matrix(session: nox.Session, package: str, row: str) -> None:
    """Test a package with one version of its library: ``nox -s "matrix(gym, gym-0.21.0)"``, ``nox -s matrix -t gym``.

    Of a plugin run the tests that are marked ``matrix``, of the core, whose library is tensordict, all but the slow.
    """
    tested, chosen = next(found for found in all_rows() if (found[0].short, found[1].id) == (package, row))
    running = str(session.run_install("python", "-c", "import platform as p; print(p.python_version())", silent=True))
    if running.strip() not in SpecifierSet(chosen.python):
        session.skip(f"{row} exists for Python {chosen.python} only")
    use_base(session)
    install_local(session, "steppe", "steppe-testing", tested.name, *chosen.local, dependencies=False)
    if chosen.build:
        session.install(*chosen.build)
    constraints = write_constraints(session, *chosen.install)
    how = [*(["--no-build-isolation"] if chosen.build else []), *([] if chosen.dependencies else ["--no-deps"])]
    session.install("-c", constraints, *how, *chosen.install)
    session.run("python", "-c", "import torch, tensordict")  # with the numpy of the row
    marked = ["-m", QUICK if tested.name == "steppe" else "matrix"]
    folders = chosen.tests or (tested.tests,)
    session.run("python", "-m", "pytest", *marked, *folders, *session.posargs, env=HEADLESS)


def install_editable(session: nox.Session, *names: str) -> None:
    """Install packages of this repository where they stand, with those of this repository that they require."""
    folder = Path(session.create_tmp()).resolve() / "editable"
    paths = [str(package.path) for package in with_required(names)]
    session.run_install("python", str(ROOT / "tools/build_packages.py"), "--editable", str(folder), *paths)
    wheels = sorted(str(wheel) for wheel in folder.glob("*.whl"))
    # Also where this version is there already: its entry points may have changed.
    session.install("--no-deps", "--no-index", "--force-reinstall", *wheels)


def install_local(session: nox.Session, *names: str, dependencies: bool = True) -> None:
    """Install packages of this repository, all in one command: they depend on each other and on no index."""
    install_editable(session, *names)
    if dependencies:
        session.install("-c", str(CONSTRAINTS), *names)


def install_for_tests(session: nox.Session) -> None:
    """Install the packages that are not tested apart, and show the libraries that they are tested with."""
    tested = [package for package in packages() if not package.apart]
    needed = [requirement for package in tested for requirement in package.pyproject["project"]["dependencies"]]
    use_base(session, [*(each for each in needed if not each.startswith("steppe")), *TEST_LIBRARIES])
    install_local(session, *(package.name for package in tested))


def write_constraints(session: nox.Session, *requirements: str) -> str:
    """The usual constraints without the packages that these requirements name."""
    own = {Requirement(requirement).name.lower() for requirement in requirements}
    kept = [
        line
        for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#") and Requirement(line).name.lower() not in own
    ]
    path = Path(session.create_tmp()) / "constraints.txt"
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return str(path)
