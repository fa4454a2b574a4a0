"""Errors about wrong return values of plugin hooks."""

from __future__ import annotations

import pytest

from steppe import errors, list_envs, make_env, register_env
from steppe.registry import Registry, current, use

HEAD = "from steppe import LibraryInfo, hookimpl\n"


MAKE = "@hookimpl\ndef steppe_make_env(name, kwargs):\n    return {}\n"


NAMES = "@hookimpl\ndef steppe_env_names():\n    return {}\n"


LIBRARY = "@hookimpl\ndef steppe_library():\n    return {}\n"


SUBJECT = "Plugin 'acme' (acme-sim 2.1)"


@pytest.fixture
def acme(fake_dist, steppe_registry):
    """Install a plugin with these hooks, in a registry that validates results."""
    with use(Registry(path=[str(fake_dist.path)], steppe_version="0.1.0")):

        def write(*hooks: str, head: str = HEAD) -> None:
            fake_dist("acme-sim", "2.1", envs={"acme": "acme_sim"}, files={"acme_sim.py": head + "\n".join(hooks)})

        yield write


def text_of(kind, call, *args):
    with pytest.raises(kind) as caught:
        call(*args)
    assert type(caught.value) is kind
    return str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        MAKE.format("None"),
        MAKE.format("{'Walk': 1, 'Run': 2}[name]"),
        "@hookimpl\ndef steppe_make_env(name, kwargs):\n    raise KeyError(f'no {name}')\n",
    ],
    ids=["None", "a dict's KeyError", "a KeyError of its own"],
)
def test_an_unknown_name_has_suggestions(acme, make):
    """The error is the same however the plugin reports an unknown name."""
    acme(make, NAMES.format("['Walk', 'Run']"))

    expected = f"{SUBJECT} has no environment 'Wolk'. Did you mean 'Walk'? 'steppe envs acme' lists all 2."
    assert text_of(errors.EnvNotFound, make_env, "acme:Wolk") == expected


def test_the_plugins_own_error_is_the_cause(acme):
    acme(MAKE.format("{'Walk': 1}[name]"), NAMES.format("['Walk']"))

    with pytest.raises(errors.EnvNotFound) as caught:
        make_env("acme:Wolk")
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_unrelated_keyerror_is_raised_unchanged(acme):
    """A KeyError that is not about the environment's name is not reworded."""
    acme(MAKE.format("kwargs['terrain']"), NAMES.format("['Walk']"))

    for name in ("Walk", "Wolk"):
        with pytest.raises(KeyError, match="terrain"):
            make_env(f"acme:{name}")


def test_a_keyerror_for_a_listed_name_is_raised_unchanged(acme):
    acme(MAKE.format("{}[name]"), NAMES.format("['Walk']"))

    assert text_of(KeyError, make_env, "acme:Walk") == "'Walk'"


def test_none_for_a_listed_name_is_an_error_of_the_plugin(acme):
    acme(MAKE.format("None"), NAMES.format("['Walk']"))

    expected = f"{SUBJECT} made no environment for 'Walk': steppe_make_env returned None. Write: return env"
    assert text_of(errors.PluginError, make_env, "acme:Walk") == expected


def test_a_wrong_list_of_names_does_not_hide_the_error(acme):
    """If the plugin's list of names is wrong, the KeyError still names the requested environment."""
    acme(MAKE.format("{}[name]"), NAMES.format("3"))

    assert text_of(KeyError, make_env, "acme:Walk") == "'Walk'"


def test_a_hook_that_returns_no_environment_is_refused(acme):
    acme(MAKE.format("[name]"))

    expected = f"{SUBJECT} made a list for 'Walk', which is no environment of steppe. Return an EnvBase from "
    assert text_of(errors.PluginError, make_env, "acme:Walk") == f"{expected}steppe_make_env."


def test_an_environment_of_gymnasium_is_to_be_wrapped(acme):
    pytest.importorskip("gymnasium")
    acme(MAKE.format("__import__('gymnasium').make('CartPole-v1')"))

    text = text_of(errors.PluginError, make_env, "acme:Walk")
    assert "made a gymnasium.wrappers.common." in text
    assert "Return an EnvBase, such as steppe_gym.GymWrapper(env), from steppe_make_env." in text


def test_a_class_instead_of_an_environment_is_refused(acme):
    acme(MAKE.format("dict"))

    assert "made a type for 'Walk', which is no environment" in text_of(errors.PluginError, make_env, "acme:Walk")


def test_results_of_registered_functions_are_validated(acme):
    register_env("toy", lambda name: 3)
    register_env("toy:Nothing", lambda: None)

    text = text_of(errors.PluginError, make_env, "toy:Line")
    assert text == (
        "'toy:' (registered in this process) made an int for 'Line', which is no environment of steppe. "
        "Return an EnvBase from the function registered in this process."
    )
    text = text_of(errors.PluginError, make_env, "toy:Nothing")
    assert text.endswith("the function registered in this process returned None. Write: return env")


def test_an_environment_is_let_through(acme):
    pytest.importorskip("torch")
    acme(MAKE.format("__import__('steppe_testing').CountingEnv()"))

    assert make_env("acme:Walk").rollout(2).batch_size == (2,)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("'Walk'", "steppe_env_names must return a list of names, found 'Walk'. Write: return ['Walk']"),
        ("3", "steppe_env_names must return a list of names, found 3. Write: return ['...']"),
        ("['Walk', 3]", "steppe_env_names must return a list of names, found 3 among them. Write: return ['...']"),
        (
            "['Run', 'acme:Walk']",
            "steppe_env_names gives names without their namespace, found 'acme:Walk'. Write: 'Walk'",
        ),
    ],
)
def test_names_that_are_no_list_of_names_say_what_to_write(acme, names, text):
    acme(MAKE.format("1"), NAMES.format(names))

    assert text_of(errors.PluginError, list_envs, "acme") == f"{SUBJECT}: {text}"


@pytest.mark.parametrize("names", ["('b', 'a')", "{'b', 'a'}", "(name for name in 'ba')", "{'a': 1, 'b': 2}.keys()"])
def test_names_may_be_any_iterable(acme, names):
    acme(MAKE.format("1"), NAMES.format(names))

    assert list_envs("acme") == ["a", "b"]


@pytest.mark.parametrize(
    ("library", "found", "write"),
    [
        ("('acme', '2.0')", "('acme', '2.0')", "LibraryInfo('acme', '2.0')"),
        ("'acme'", "'acme'", "LibraryInfo('...', '...')"),
        ("{}", "{}", "LibraryInfo('...', '...')"),
    ],
)
def test_a_library_that_is_no_libraryinfo_says_what_to_write(acme, library, found, write):
    acme(MAKE.format("1"), LIBRARY.format(library))

    assert text_of(errors.PluginError, current().library, "acme") == (
        f"{SUBJECT}: steppe_library must return a LibraryInfo, found {found}. "
        f"Write: return {write}, from steppe import LibraryInfo"
    )


def test_a_wrong_library_does_not_hide_a_wrong_name(acme):
    """A plugin whose library does not fit still reports a wrong name."""
    acme(
        "@hookimpl\ndef steppe_make_env(name, kwargs):\n"
        "    from steppe.registry import env_not_found\n    raise env_not_found('acme', name)\n",
        LIBRARY.format("('acme', '2.0')"),
    )

    assert "has no environment 'Wolk'" in text_of(errors.EnvNotFound, make_env, "acme:Wolk")
