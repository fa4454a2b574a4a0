from __future__ import annotations

import sys

import pytest

from steppe import errors
from steppe.registry import current, list_plugins
from steppe.registry.manager import Registry

SOURCE = """
help = "draw what an environment does"


def add_arguments(parser):
    parser.add_argument("id")


def run(args):
    return 0
"""


@pytest.fixture
def sketch(registry, fake_dist):
    fake_dist(
        "acme-sketch",
        "2.0",
        entry_points={"steppe.commands": {"sketch": "acme_sketch", "half": "acme_sketch:run"}},
        files={"acme_sketch.py": SOURCE},
    )


def test_a_command_is_imported_when_it_is_run(sketch):
    assert current().providers.names("command") == ["half", "sketch"]
    assert "acme_sketch" not in sys.modules
    assert current().find_command("sketch") is sys.modules["acme_sketch"]


def test_commands_are_listed_with_the_plugins(sketch):
    assert [(record.kind, record.name) for record in list_plugins()] == [("command", "half"), ("command", "sketch")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("film", "No installed package has the command 'film'. It is in steppe-film: pip install 'steppe[film]'."),
        ("sketsch", "There is no command 'sketsch'. Did you mean 'sketch'?"),
        ("colect", "There is no command 'colect'. Did you mean 'collect'?"),
        ("half", "Command 'half' (acme-sketch 2.0) names 'acme_sketch:run', which is no command: it has no help, "),
    ],
)
def test_a_command_that_cannot_be_had_says_why(sketch, name, text):
    with pytest.raises(errors.PluginError) as caught:
        current().find_command(name, core=["collect", "envs"])
    assert str(caught.value).startswith(text)


def test_two_packages_with_one_command_conflict_only_there(sketch, fake_dist):
    """Other commands of the two packages still work."""
    fake_dist("other", "1.0", entry_points={"steppe.commands": {"half": "other_half"}})
    with pytest.raises(errors.PluginConflict, match="Two packages provide the command 'half'"):
        current().find_command("half")
    assert current().find_command("sketch").help == "draw what an environment does"


def test_a_command_whose_package_lacks_something_names_it(registry, fake_dist):
    fake_dist("acme-film", "1.0", entry_points={"steppe.commands": {"reel": "acme_film"}}, requires=["celluloid>=3"])
    with pytest.raises(errors.LibraryMissing, match=r"needs celluloid>=3, which is not installed: pip install"):
        current().find_command("reel")


@pytest.mark.parametrize("name", ["check", "collect"])
def test_commands_of_the_kit_name_its_package(name):
    with pytest.raises(errors.PluginNotFound, match=rf"command '{name}'. It is in steppe-testing: pip install"):
        Registry(path=[]).find_command(name)
