"""The kit for plugins catches each wrong one with one test."""

from __future__ import annotations

import inspect

import pytest

from steppe_testing import PluginConformance

pytestmark = pytest.mark.programs

MODULE = """
    from steppe.registry import LibraryInfo, env_not_found, hookimpl

    @hookimpl
    def steppe_make_env(name, kwargs):
        from steppe_testing import CountingEnv
        if name != "Count":
            raise env_not_found("acme", name)
        return CountingEnv()

    @hookimpl
    def steppe_env_names():
        return ["Count"]

    @hookimpl
    def steppe_library():
        return LibraryInfo("acme-sim", "2.0")
"""
REQUIRES = ("steppe>=0.1,<0.2", "acme-sim>=2")


class Sound(PluginConformance):
    namespace = "acme"
    smoke = ("Count",)


@pytest.fixture
def plugin(fake_dist, steppe_registry, tmp_path_factory):
    """Installs a plugin and gives the names of the conformance tests that fail."""

    def failures(module=MODULE, *, requires=REQUIRES, envs=None, others=(), **flags):
        envs = {"acme": "acme_steppe.plugin"} if envs is None else envs
        fake_dist("acme-steppe", "1.0", envs=envs, requires=requires, files={"acme_steppe/plugin.py": module})
        fake_dist("acme-sim", "2.0")
        for name in others:
            fake_dist(name, "1.0", envs={name: f"{name}_steppe"}, files={f"{name}_steppe/__init__.py": ""})
        steppe_registry.refresh()
        case = type("TestAcme", (Sound,), flags)()
        failed = set()
        for name, test in inspect.getmembers(case, inspect.ismethod):
            if not name.startswith("test_"):
                continue
            arguments = {}
            try:
                for parameter in inspect.signature(test).parameters:
                    records = case._records()
                    if parameter == "record" and len(records) != 1:
                        pytest.skip("no record")
                    arguments[parameter] = tmp_path_factory.mktemp("p") if parameter == "tmp_path" else records[0]
                test(**arguments)
            except pytest.skip.Exception:
                continue
            except (Exception, pytest.fail.Exception) as error:
                print(name, error)
                failed.add(name)
        return failed

    return failures


def test_a_sound_plugin_passes(plugin):
    assert plugin() == set()


WRONG = [
    ({"envs": {"another": "acme_steppe.plugin"}}, "test_one_package_provides_the_namespace"),
    ({"requires": ("steppe>=0.1", "acme-sim>=2")}, "test_steppe_is_required_with_an_upper_bound"),
    ({"requires": ("steppe>=0.1,<0.2", "acme-sim")}, "test_an_old_library_says_which_is_needed"),
    (
        {"module": "import torch\n" + inspect.cleandoc(MODULE)},
        "test_its_module_imports_neither_its_library_nor_torch",
    ),
    ({"module": MODULE.replace("(name, kwargs)", "(name, options)")}, "test_its_hooks_fit"),
    (
        {
            "module": MODULE.replace(
                "from steppe_testing import",
                "from steppe.envs.base import EnvBase\n        from steppe_testing import",
            )
        },
        "test_it_imports_public_names_of_steppe_only",
    ),
    (
        {"module": MODULE + "\n    def other():\n        import rival_steppe\n", "others": ("rival",)},
        "test_it_imports_no_other_plugin",
    ),
    ({"module": MODULE.replace('return ["Count"]', 'return ["acme:Count", "Count"]')}, "test_names_are_listed"),
    ({"module": MODULE.replace('if name != "Count":', 'if name == "":')}, "test_an_unknown_name_is_not_found"),
    ({"module": MODULE.replace("return CountingEnv()", "return 3")}, "test_smoke_names_are_built"),
]


@pytest.mark.parametrize(("change", "caught_by"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_each_wrong_plugin_fails_exactly_one_test(plugin, change, caught_by):
    """Each mistake is caught by the one test that is meant for it."""
    assert plugin(**change) == {caught_by}


NO_LIBRARY = MODULE.replace('LibraryInfo("acme-sim", "2.0")', "None")
ABOUT_LIBRARY = {"test_a_missing_library_says_how_to_install_it", "test_an_old_library_says_which_is_needed"}
STEPPE_ALONE = ("steppe>=0.1,<0.2",)


@pytest.mark.parametrize("flags", [{}, {"wraps_library": True}])
def test_a_plugin_must_require_its_library(plugin, capsys, flags):
    assert plugin(requires=STEPPE_ALONE, **flags) == ABOUT_LIBRARY
    told = capsys.readouterr().out
    assert "its steppe_library() names 'acme-sim'. Write it into `dependencies` of pyproject.toml" in told
    assert "write `wraps_library = False` in TestAcme" in told


@pytest.mark.parametrize("module", [NO_LIBRARY, MODULE.split("    @hookimpl\n    def steppe_library")[0]])
def test_a_plugin_that_wraps_no_library_passes(plugin, module):
    assert plugin(module, requires=STEPPE_ALONE) == set()


def test_the_flag_overrules_a_library_that_is_named(plugin):
    assert plugin(requires=STEPPE_ALONE, wraps_library=False) == set()


def test_the_flag_overrules_that_no_library_is_named(plugin, capsys):
    assert plugin(NO_LIBRARY, requires=STEPPE_ALONE, wraps_library=True) == ABOUT_LIBRARY
    assert "requires no library, and TestAcme.wraps_library is True" in capsys.readouterr().out


def test_a_library_that_cannot_be_imported_is_named(plugin, capsys):
    module = MODULE.replace("return LibraryInfo", "import acme_engine\n        return LibraryInfo")
    assert plugin(module, requires=STEPPE_ALONE) == ABOUT_LIBRARY
    assert "names 'acme_engine'" in capsys.readouterr().out


def test_a_required_library_needs_a_lower_bound(plugin, capsys):
    assert plugin(requires=("steppe>=0.1,<0.2", "acme-sim<9")) == {"test_an_old_library_says_which_is_needed"}
    assert '"acme-sim>=..."' in capsys.readouterr().out


def test_each_test_of_the_kit_catches_a_wrong_plugin():
    tests = {name for name in vars(PluginConformance) if name.startswith("test_")}

    # A plugin that does not require its library fails two tests, above.
    assert tests - {caught_by for _, caught_by in WRONG} == {"test_a_missing_library_says_how_to_install_it"}
