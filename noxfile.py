"""All checks of this repository.

``nox -l`` lists them, ``nox -s tests`` runs one.

Sessions that need torch use one shared environment (tools/base_env.py). Matrix entries are in the pyproject.toml of the
package that they test (tools/workspace.py).
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import nox
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tools.base_env import CONSTRAINTS, use_base
from tools.documents import shell_blocks
from tools.wheelhouse import build_wheels, families, install_extras, new_environment
from tools.workspace import ROOT, Package, Row, all_rows, packages, with_required

nox.options.sessions = ["lint", "types", "light", "tests", "programs"]
nox.options.reuse_venv = "yes"

# Container images set this. Each of the hundreds of interpreters that tests start would compile torch's modules again,
# which takes three times as long as the import.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Without a display: MuJoCo draws through EGL, pygame into memory and without sound.
HEADLESS = {
    "MUJOCO_GL": "egl",
    "SDL_VIDEODRIVER": "dummy",
    "SDL_AUDIODRIVER": "dummy",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}

# Let JAX cache every compiled function on disk, however short the compilation.
COMPILED_CACHE = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}

TYPED = [str((package.path / "src").relative_to(ROOT)) for package in packages()]

# The libraries that the tests compare with, in addition to the requirements of the packages.
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
    "matplotlib",
    "hypothesis",
    "psutil",
    "submitit",
]

# What builds the documentation site.
SITE_LIBRARIES = [
    *("sphinx>=9", "furo", "myst-parser", "sphinx-copybutton", "sphinx-design"),
    *("playwright", "axe-playwright-python"),
]

# What the learning curves compare with, and draw with.
CURVE_LIBRARIES = ["stable-baselines3>=2.7", "sb3-contrib>=2.7", "matplotlib", "pandas"]

# Run tests on all cores. The tests of a file share environments, so they stay in one process. Keep the order of files:
# by default, xdist runs files with few tests last, and one core would wait for their long tests.
SPREAD = ("-n", "logical", "--maxprocesses", "4", "--no-loadscope-reorder", "--dist", "loadfile")

# The entries of the matrix that every change runs. The tags ci-1 and ci-2 have half of them each.
CI_ROWS = [(package.name, row.id) for package, row in all_rows() if row.ci]


def ci_tags(package: Package, row: Row) -> list[str]:
    return ["ci", f"ci-{CI_ROWS.index((package.name, row.id)) % 2 + 1}"] if row.ci else []


# The examples in docstrings of packages that are tested apart. Those of other packages than the installed are skipped.
APART_EXAMPLES = "tests/ecosystem/test_apart_examples.py"

# The marks of the tests that every change must pass, in the sessions tests and programs.
QUICK = "not slow and not exhaustive and not library"


@nox.session
def demo(session: nox.Session) -> None:
    """Collect 20,000 transitions of Pendulum with two worker processes."""
    use_base(session)
    install_local(session, "steppe", "steppe-gym", "steppe-testing", "steppe-models", "steppe-reward")
    session.install("-c", str(CONSTRAINTS), "gymnasium")
    out = Path(session.create_tmp()) / "pendulum"
    session.run(
        *("steppe", "collect", "gym:Pendulum-v1", "--num-envs", "8", "--num-processes", "2", "--frames", "20000"),
        *("--seed", "0", "--out", str(out), "--overwrite", *session.posargs),
        env=HEADLESS,
    )


@nox.session(reuse_venv=False)
def clone(session: nox.Session) -> None:
    """Run the commands of the README that install from a clone.

    The new environment has only pip. Then further extras are installed, as error messages say.
    """
    # The tested versions. pip may have this build of torch in its cache.
    pip: dict[str, str | None] = {"PIP_CONSTRAINT": str(CONSTRAINTS), "PIP_QUIET": "1"}
    for lines in shell_blocks(ROOT / "README.md", "Install"):
        session.run("sh", "-e", "-c", lines, external=True, env=pip)
    session.run("python", "tools/try_extra.py", "gym", "vmas", env=HEADLESS)
    for extras in ("record", "agents,pools", "transforms", "dm-control"):
        # The README's setting counts: a variable of the machine would replace it.
        session.run("python", "-m", "pip", "install", f"steppe[{extras}]", env={**pip, "PIP_FIND_LINKS": None})
        session.run("python", "tools/try_extra.py", *extras.split(","), env=HEADLESS)


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests except programs, slow tests and long suites.

    Arguments after ``--`` are passed to pytest.
    """
    install_for_tests(session)
    session.run("python", "-m", "pytest", "-m", f"{QUICK} and not programs", *SPREAD, *session.posargs, env=HEADLESS)


@nox.session
def programs(session: nox.Session) -> None:
    """Run the tests that start programs as users do.

    These are programs of documents, commands and scripts. Arguments after ``--`` are passed to pytest.
    """
    install_for_tests(session)
    session.run("python", "-m", "pytest", "-m", f"{QUICK} and programs", *SPREAD, *session.posargs, env=HEADLESS)


@nox.session
def pettingzoo(session: nox.Session) -> None:
    """Run all tests of steppe-pettingzoo.

    ``tests`` runs only its smoke tests.
    """
    install_for_tests(session)
    session.run("python", "-m", "pytest", "tests/envs/pettingzoo", *session.posargs, env=HEADLESS)


@nox.session
def slow(session: nox.Session) -> None:
    """Run the slow tests.

    Arguments after ``--`` are passed to pytest.
    """
    install_for_tests(session)
    session.run("python", "-m", "pytest", "-m", "slow and not exhaustive", *SPREAD, *session.posargs, env=HEADLESS)


@nox.session
def exhaustive(session: nox.Session) -> None:
    """Run the exhaustive tests: all records, all scenarios.

    Arguments after ``--`` are passed to pytest.
    """
    install_for_tests(session)
    # Divide the long file among processes. Its tests share environments.
    spread = (*SPREAD[:-1], "worksteal")
    session.run("python", "-m", "pytest", "-m", "exhaustive", *spread, *session.posargs, env=HEADLESS)


@nox.session
def portable(session: nox.Session) -> None:
    """Test batches and workers without memfd, eventfd and epoll.

    Other systems than Linux lack these.
    """
    install_for_tests(session)
    folders = session.posargs or ["tests/core/batched", "tests/core/workers", "tests/pools"]
    session.run("python", "-m", "pytest", *folders, env={**HEADLESS, "PYTHONPATH": "tests/without_linux"})


@nox.session
def torchrl(session: nox.Session) -> None:
    """Test environments of each library in the other, train TorchRL's modules, compare programs of both."""
    install_for_tests(session)
    install_local(session, "steppe-torchrl", dependencies=False)
    # The newest TorchRL, with the version of tensordict that it requires instead of that of the base.
    session.install("-c", write_constraints(session, "torchrl", "tensordict"), "torchrl")
    session.run("python", "-m", "pytest", "tests/bridges/torchrl", APART_EXAMPLES, *session.posargs, env=HEADLESS)
    session.run("python", "-m", "pytest", "tests/ecosystem/test_documents.py", "-k", "bridges", env=HEADLESS)


@nox.session
def jax_quick(session: nox.Session) -> None:
    """Run the smoke tests of the plugins of JAX libraries."""
    run_jax_tests(session, "-m", "not library and not slow")


@nox.session
def jax(session: nox.Session) -> None:
    """Test the plugins of JAX libraries.

    Arguments after ``--`` are passed to pytest.
    """
    run_jax_tests(session, *session.posargs)


def run_jax_tests(session: nox.Session, *arguments: str) -> None:
    """Test the plugins of JAX libraries; with arguments for pytest, neither slow tests nor documents."""
    use_base(session)
    plugins = (
        "steppe-agents",
        "steppe-jax",
        "steppe-brax",
        "steppe-jumanji",
        "steppe-gymnax",
        "steppe-pgx",
        "steppe-record",
        "steppe-reward",
    )
    install_local(session, "steppe", "steppe-testing", *plugins)
    session.install("-c", str(CONSTRAINTS), "mujoco==3.17.0", "mujoco-mjx", "psutil")
    # Tests make the same environments many times, also in workers. The cache compiles each one once.
    env = {**HEADLESS, "JAX_COMPILATION_CACHE_DIR": str(Path(session.create_tmp()) / "compiled"), **COMPILED_CACHE}
    folders = ("tests/libs/jax", "tests/envs/brax", "tests/envs/jumanji", "tests/envs/gymnax", "tests/envs/pgx")
    folders = (*folders, APART_EXAMPLES)
    session.run("python", "-m", "pytest", *(arguments or ("-m", "not slow")), *folders, env=env)
    if not arguments:
        session.run("python", "-m", "pytest", "-m", "slow", *folders, env=env)
        documents = "brax or jumanji or gymnax or pgx or libs"
        session.run("python", "-m", "pytest", "tests/ecosystem/test_documents.py", "-k", documents, env=env)


@nox.session
def lint(session: nox.Session) -> None:
    """Check format and style; ``-- --fix`` fixes errors."""
    session.install("-c", str(CONSTRAINTS), "ruff")
    fix = "--fix" in session.posargs
    session.run("ruff", "check", *(["--fix"] if fix else []), ".")
    session.run("ruff", "format", *([] if fix else ["--check"]), ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of every package with mypy (strict).

    Folders after ``--`` are checked instead of all: ``-- packages/core/src``.
    """
    use_base(session)
    install_local(session, "steppe")
    session.install("-c", str(CONSTRAINTS), "mypy")
    session.run("mypy", *(session.posargs or TYPED))


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
def light(session: nox.Session) -> None:
    """Test the registry, versions and command line without torch.

    They are tested on every installed Python.
    """
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
        *("tests/testing/scaffold", *session.posargs),
    )


@nox.session(reuse_venv=False)
def wheels(session: nox.Session) -> None:
    """Build every package, install ``steppe[all]`` from wheels, load each plugin."""
    use_base(session)
    house = build_wheels(session)
    session.install("-c", str(CONSTRAINTS), "--find-links", house, f"steppe[all]=={packages()[0].version}")
    session.run("steppe", "plugins", "--load")


@nox.session(reuse_venv=False)
def extras(session: nox.Session) -> None:
    """Install extras of the core from local wheels, and test them.

    The environments are new, as they are for users who install from the index.

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
            # The READMEs of the families use the kit's mock environments.
            install_extras(session, python, house, "all", "testing")
            session.run(python, "tools/try_extra.py", "--readmes", external=True, env=HEADLESS)


@nox.session(reuse_venv=False)
def author(session: nox.Session) -> None:
    """Run the commands of docs/authors/write-a-plugin.md, and compare the output.

    The core and the kit are installed from wheels.

    The environment is new; torch and the build tools are those of the base environment (tools/base_env.py), so that the
    author's packages are built without an index.
    """
    use_base(session)
    house = build_wheels(session)
    session.install("-c", str(CONSTRAINTS), "--find-links", house, f"steppe[testing]=={packages()[0].version}", "nox")
    folder = Path(session.create_tmp()) / "author"
    shutil.rmtree(folder, ignore_errors=True)
    # pip, called by the guide, finds the wheels, and uses the installed build tools.
    pip = {"PIP_FIND_LINKS": house, "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "1"}
    session.run("python", "tools/author.py", str(folder), env=pip)


@nox.session
def bench(session: nox.Session) -> None:
    """Compare the speed of this checkout with the last commit on main.

    Fails if a row is more than a tenth slower. Writes ``.nox/bench/tmp/bench.json`` and a table, ``bench.md``.
    Arguments after ``--`` are passed to benchmarks/compare.py, such as ``--rows 'step loop*'``.
    """
    install_for_tests(session)
    folder = Path(session.create_tmp()).resolve()
    old = folder / "main"
    git = {"external": True, "silent": True}
    branches = ("refs/heads/main", "refs/remotes/origin/main")
    found = str(session.run("git", "for-each-ref", "--format=%(objectname)", *branches, **git)).split()
    if not found:
        session.error("this clone has no branch main to compare with")
    session.run("git", "worktree", "prune", **git)
    if not old.exists():
        session.run("git", "worktree", "add", "--detach", str(old), found[0], **git)
    session.run("git", "-C", str(old), "checkout", "--detach", "--force", found[0], **git)
    written = ("--write", str(folder / "bench.json"), "--table", str(folder / "bench.md"))
    limit = () if "--limit" in session.posargs else ("--limit", "1.10")
    command = ("python", "benchmarks/compare.py", str(old), str(ROOT))
    session.run(*command, *limit, *written, *session.posargs, env=HEADLESS)


@nox.session
def coverage(session: nox.Session) -> None:
    """Measure which lines of the core its tests run, in worker processes too.

    Writes the lines that no test runs to ``.nox/coverage/tmp/coverage.txt``. Arguments after ``--`` are folders of
    tests, by default those of the core and of the packages that extend it.
    """
    install_for_tests(session)
    session.install("-c", str(CONSTRAINTS), "coverage>=7.10")
    folder = Path(session.create_tmp()).resolve()
    env = {**HEADLESS, "COVERAGE_FILE": str(folder / ".coverage")}
    folders = session.posargs or ["tests/core", "tests/agents", "tests/pools"]
    session.run("coverage", "erase", env=env)
    session.run("coverage", "run", "-m", "pytest", "-m", QUICK, *SPREAD, *folders, env=env)
    session.run("coverage", "combine", "--quiet", env=env)
    with (folder / "coverage.txt").open("w") as file:
        session.run("coverage", "report", "--show-missing", "--skip-covered", "--sort=miss", stdout=file, env=env)
    session.run("coverage", "report", "--format=total", env=env)


@nox.session
def site(session: nox.Session) -> None:
    """Build the documentation site with warnings as errors, check its links, and test it in a browser.

    Writes ``.nox/site/tmp/html``; open index.html there. Without chromium (``apt-get install chromium``), the tests in
    a browser are skipped.
    """
    install_for_tests(session)
    apart = [package.name for package in packages() if package.apart]
    install_local(session, *apart, dependencies=False)  # their libraries are replaced by mocks
    session.install("-c", str(CONSTRAINTS), *SITE_LIBRARIES)
    folder = Path(session.create_tmp()).resolve()
    session.run("python", "-m", "tools.site.assemble", str(folder / "source"), env=HEADLESS)
    build = ("-W", "--keep-going", "-q", "-b", "html")
    session.run("sphinx-build", *build, str(folder / "source"), str(folder / "html"), env=HEADLESS)
    session.run("python", "-m", "tools.site.check", str(folder / "html"))
    session.run("python", "tools/gallery.py", "--check", env=HEADLESS)
    session.run("python", "-m", "pytest", "tests/site", *session.posargs, env={"STEPPE_SITE": str(folder / "html")})


@nox.session
def curves(session: nox.Session) -> None:
    """Train the programs of docs/examples and Stable-Baselines3 with five seeds, and draw their learning curves.

    Arguments after ``--`` are passed to tools/learning_curves.py, such as ``--jobs 8 --only ppo-cartpole``.
    """
    install_for_tests(session)
    session.install("-c", str(CONSTRAINTS), *CURVE_LIBRARIES)
    session.run("python", "tools/learning_curves.py", *session.posargs, env=HEADLESS)


@nox.session
def gallery(session: nox.Session) -> None:
    """Draw the pictures of environments again, and write their manifest.

    Arguments after ``--`` are passed to tools/gallery.py, such as ids of environments, or ``--check``.
    """
    install_for_tests(session)
    session.run("python", "tools/gallery.py", *session.posargs, env=HEADLESS)


@nox.session(venv_backend="none")
def sync(session: nox.Session) -> None:
    """Write the generated files; ``-- --check`` only checks them.

    These are the core's extras, the table of known names, and tables in documents.
    """
    session.run(sys.executable, "tools/sync.py", *session.posargs)


@nox.session(venv_backend="venv", default=False)
@nox.parametrize(
    "package,row",
    [
        nox.param(of.short, row.id, id=f"{of.short}, {row.id}", tags=[of.short, *ci_tags(of, row)])
        for of, row in all_rows()
    ],
)
def matrix(session: nox.Session, package: str, row: str) -> None:
    """Test a package with one version of its library.

    Examples: ``nox -s "matrix(gym, gym-0.21.0)"``, ``nox -s matrix -t gym``.

    For a plugin, the tests marked ``matrix`` are run. For the core, whose library is tensordict, all tests except slow
    ones are run.
    """
    tested, chosen = next(found for found in all_rows() if (found[0].short, found[1].id) == (package, row))
    running = str(session.run_install("python", "-c", "import platform as p; print(p.python_version())", silent=True))
    if running.strip() not in SpecifierSet(chosen.python):
        session.skip(f"{row} exists for Python {chosen.python} only")
    use_base(session)
    # Tests of many packages append transforms of these families, which wrap no library.
    families = ("steppe-action", "steppe-norm", "steppe-reward", "steppe-tensor", "steppe-time")
    local = ("steppe", "steppe-testing", *families, tested.name, *chosen.local)
    install_local(session, *dict.fromkeys(local), dependencies=False)
    if chosen.build:
        session.install(*chosen.build)
    constraints = write_constraints(session, *chosen.install)
    # A library that is installed without its dependencies may require an older Python too.
    alone = [] if chosen.dependencies else ["--no-deps", "--ignore-requires-python"]
    how = [*(["--no-build-isolation"] if chosen.build else []), *alone]
    session.install("-c", constraints, *how, *chosen.install)
    session.run("python", "-c", "import torch, tensordict")  # import them, because the row may have another numpy
    marked = ["-m", QUICK if tested.name == "steppe" else "matrix and not exhaustive"]
    folders = [*(chosen.tests or (tested.tests,)), *([APART_EXAMPLES] if tested.apart else [])]
    session.run("python", "-m", "pytest", *marked, *folders, *session.posargs, env=HEADLESS)


def install_editable(session: nox.Session, *names: str) -> None:
    """Install packages in editable mode, with local packages that they require."""
    folder = Path(session.create_tmp()).resolve() / "editable"
    paths = [str(package.path) for package in with_required(names)]
    session.run_install("python", str(ROOT / "tools/build_packages.py"), "--editable", str(folder), *paths)
    wheels = sorted(str(wheel) for wheel in folder.glob("*.whl"))
    # Reinstall the same version too, because its entry points may have changed.
    session.install("--no-deps", "--no-index", "--force-reinstall", *wheels)


def install_local(session: nox.Session, *names: str, dependencies: bool = True) -> None:
    """Install packages of this repository in one command.

    They depend on each other, and no index has them.
    """
    install_editable(session, *names)
    if dependencies:
        session.install("-c", str(CONSTRAINTS), *names)


def install_for_tests(session: nox.Session) -> None:
    """Install the packages for ``tests``, and the libraries to compare with.

    Packages that are tested apart are not installed.
    """
    tested = [package for package in packages() if not package.apart]
    needed = [requirement for package in tested for requirement in package.pyproject["project"]["dependencies"]]
    use_base(session, [*(each for each in needed if not each.startswith("steppe")), *TEST_LIBRARIES])
    install_local(session, *(package.name for package in tested))


def write_constraints(session: nox.Session, *requirements: str) -> str:
    """Write the constraints without the packages of these requirements."""
    own = {Requirement(requirement).name.lower() for requirement in requirements}
    kept = [
        line
        for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#") and Requirement(line).name.lower() not in own
    ]
    path = Path(session.create_tmp()) / "constraints.txt"
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return str(path)
