"""Consistency of the packages' metadata."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.limits import CHILD
from tools.publishing import rounds
from tools.workspace import ROOT, Package, packages, rows, with_required

PACKAGES = packages()
PLUGINS = [package for package in PACKAGES if package.name != "steppe"]
named = pytest.mark.parametrize("package", PLUGINS, ids=lambda package: package.name)


def test_generated_files_are_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/sync.py"), "--check"], capture_output=True, text=True, timeout=CHILD
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_all_packages_have_one_version():
    assert len({package.version for package in PACKAGES}) == 1


@named
def test_a_package_requires_the_series_of_its_steppe(package: Package):
    pin = next(Requirement(each) for each in package.pyproject["project"]["dependencies"] if each.startswith("steppe>"))
    major, minor = package.version.split(".")[:2]

    assert pin.specifier == SpecifierSet(f">={major}.{minor},<{major}.{int(minor) + 1}")


@named
def test_the_core_has_an_extra_for_each_package(package: Package):
    extra = [Requirement(each) for each in PACKAGES[0].extras[package.short]]

    assert [each.name for each in extra] == [package.name]
    assert package.version in extra[0].specifier
    assert extra[0].extras <= set(package.extras)


@named
def test_a_package_declares_description_types_and_pythons(package: Package):
    """A package is described, typed, and for the Python versions of the core."""
    project = package.pyproject["project"]

    assert project["description"]
    assert (package.path / project["readme"]).read_text(encoding="utf-8").count("\n") > 5
    assert list((package.path / "src").glob("*/py.typed"))
    assert project["requires-python"].startswith(">=3.1")


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_the_page_of_a_package_on_an_index_is_complete(package: Package):
    """A package has authors, classifiers (both from `nox -s sync`), keywords, and a README that says what it is."""
    project = package.pyproject["project"]
    title, _, rest = (package.path / "README.md").read_text(encoding="utf-8").partition("\n\n")

    assert {"authors", "classifiers", "keywords"} <= set(project)
    assert "reinforcement learning" in project["keywords"]
    assert title == f"# {package.name}"
    assert "steppe" in rest.partition("\n\n")[0] or package.name == "steppe"


def test_every_wheel_has_a_py_typed_marker(tmp_path):
    build = [sys.executable, str(ROOT / "tools/build_packages.py"), str(tmp_path)]
    subprocess.run([*build, *(str(package.path) for package in PACKAGES)], check=True, timeout=CHILD)

    typed = {wheel.name: marked(zipfile.ZipFile(wheel)) for wheel in tmp_path.glob("*.whl")}
    assert len(typed) == len(PACKAGES)
    assert [name for name, is_marked in typed.items() if not is_marked] == []


def marked(wheel: zipfile.ZipFile) -> bool:
    """Whether each package of Python in a wheel has the marker of PEP 561."""
    names = wheel.namelist()
    found = {name.partition("/")[0] for name in names if name.endswith(".py")}
    return bool(found) and all(f"{package}/py.typed" in names for package in found)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_matrix_rows_are_within_the_declared_ranges(package: Package):
    declared = {requirement.name: requirement.specifier for requirement in package.requirements}
    outside = []
    for row in rows(package):
        for requirement in map(Requirement, row.install):
            for pin in requirement.specifier:
                if pin.operator == "==" and pin.version not in declared.get(requirement.name, SpecifierSet()):
                    outside.append(f"{row.id}: {requirement}")

    assert outside == []
    assert len({row.id for row in rows(package)}) == len(rows(package))


def test_each_plugin_with_rows_has_some_for_every_submission():
    # The session jax runs the newest of those that are tested apart.
    chosen = {
        package.name: [row.id for row in rows(package) if row.ci]
        for package in PLUGINS
        if rows(package) and not package.apart
    }

    assert chosen["steppe-gym"] == ["gym-0.21.0", "gym-0.26.2", "gymnasium-0.29.1", "gymnasium-newest"]
    assert all(chosen.values())


def test_the_core_is_tested_with_both_ends_of_tensordict():
    """The matrix has the lowest and the usual version of tensordict."""
    core = PACKAGES[0]
    specifier = next(each.specifier for each in core.requirements if each.name == "tensordict")
    lowest = next(Version(pin.version) for pin in specifier if pin.operator == ">=")
    usual = next(
        Version(pin.version)
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line.startswith("tensordict==")
        for pin in Requirement(line).specifier
    )
    whole, submitted = (
        {
            Version(pin.version)
            for row in rows(core)
            for requirement in map(Requirement, row.install)
            if requirement.name == "tensordict"
            for pin in requirement.specifier
            if chosen(row)
        }
        for chosen in (lambda row: not row.tests, lambda row: row.ci)
    )

    assert whole == {lowest, usual}
    assert submitted == {lowest}, "the session tests runs the usual version"
    assert lowest < usual


def test_the_readme_lists_every_plugin():
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert [package.name for package in PLUGINS if package.name not in text] == []


def test_the_editable_install_names_all_requirements():
    """The install line of CONTRIBUTING.md also names the packages that its packages require."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if "install" in line and "packages/core" in line]
    folders = {ROOT / folder for folder in re.findall(r"packages/[\w/-]+", line)}
    named = {package.name for package in PACKAGES if package.path in folders}

    assert len(named) == len(folders)
    assert {package.name for package in with_required(named)} <= named


def test_a_package_is_published_after_those_that_it_requires():
    order = rounds()
    published = [name for names in order for name in names]

    assert order[0] == ["steppe"]
    assert sorted(published) == sorted(package.name for package in PACKAGES)
    for number, names in enumerate(order):
        earlier = {name for before in order[:number] for name in before}
        for package in PACKAGES:
            if package.name in names:
                needed = {Requirement(each).name for each in package.pyproject["project"]["dependencies"]}
                assert needed & set(published) <= earlier, package.name


def test_each_session_runs_on_each_change_or_in_a_workflow():
    """All sessions run in a workflow, except those for developers: ``bench``, ``curves``, ``demo``, ``sync``."""
    source = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    sessions = set(re.findall(r"^@nox\.session.*?^def (\w+)", source, re.DOTALL | re.MULTILINE))
    runs = [ROOT / ".ci/run", *(ROOT / ".github/workflows").glob("*.yml")]
    words = {word for path in runs for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}

    assert sessions - words == {"bench", "curves", "demo", "sync"}


def test_jobs_of_a_change_run_every_session_of_the_script():
    """The workflow of a change has the sessions of .ci/run, as jobs that run at the same time."""
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    steps = re.findall(r"^(?:run|both) (.*)$", script, re.MULTILINE)
    sessions = {word.strip('"') for step in steps for word in step.split()} - {"-t"}
    jobs = set(re.findall(r"[\w-]+", (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")))

    assert {"lint", "types", "light", "tests", "programs", "matrix", "ci-1", "ci-2"} <= sessions
    assert sessions <= jobs


def test_commits_are_checked_with_the_tested_versions_of_tools():
    pinned = set((ROOT / "constraints.txt").read_text(encoding="utf-8").split())
    hooks = re.findall(r"\w+==[\d.]+", (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))

    assert hooks
    assert set(hooks) <= pinned


def test_texts_name_only_extras_and_packages_that_exist():
    names = {package.name for package in PACKAGES}
    extras = set(PACKAGES[0].extras)
    unknown = []
    for path in [*ROOT.glob("packages/**/src/**/*.py"), *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for line in path.read_text(encoding="utf-8").splitlines():
            asked = {extra for group in re.findall(r"'steppe\[([\w,-]+)\]'", line) for extra in group.split(",")}
            required = set(re.findall(r"pip install (?:-U )?'?(steppe-[\w-]+)", line))
            unknown += [f"{path.relative_to(ROOT)}: {name}" for name in (asked - extras) | (required - names)]

    assert unknown == []
