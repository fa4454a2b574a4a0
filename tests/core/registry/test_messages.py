"""Every error text, word for word, as a user meets it."""

from __future__ import annotations

import traceback

import pytest

from steppe import errors, make_env

GYM_REQUIRES = [
    "gym<0.27,>=0.13; extra == 'any-of'",
    "gymnasium>=0.28; extra == 'any-of'",
    "gym<0.27,>=0.13; extra == 'gym'",
    "gymnasium>=0.28; extra == 'gymnasium'",
]


def text_of(kind: type[Exception], id: str) -> str:
    with pytest.raises(kind) as caught:
        make_env(id)
    assert type(caught.value) is kind
    return str(caught.value)


@pytest.fixture
def vmas(fake_dist, registry):
    fake_dist(
        "steppe-vmas",
        "0.1.0",
        envs={"vmas": "fake_vmas"},
        requires=["steppe<0.2,>=0.1", "vmas<2,>=1.3"],
        files={"fake_vmas.py": "raise AssertionError('imported')"},
    )


@pytest.fixture
def acme(fake_dist, registry):
    def write(source: str, *, requires=(), target="acme_sim.plugin"):
        fake_dist("acme-sim", "2.1", envs={"acme": target}, requires=requires, files={"acme_sim/plugin.py": source})

    return write


def test_a_misspelt_group_of_entry_points_is_named(fake_dist, registry):
    fake_dist("crane-sim", "0.3", entry_points={"steppe.env": {"crane": "crane_sim.plugin"}})
    fake_dist("crane-later", "0.3", entry_points={"steppe.datasets": {"crane": "x"}, "steppe.metrics": {"crane": "y"}})

    assert text_of(errors.PluginNotFound, "crane:hook") == (
        "No plugin provides 'crane:' (asked for 'crane:hook'). Installed namespaces: none ('steppe plugins' lists "
        "them). crane-sim has entry points in the group 'steppe.env', which does not exist: write "
        '[project.entry-points."steppe.envs"] in its pyproject.toml, and install it again.'
    )


@pytest.mark.parametrize("installed", [True, False])
def test_malformed_id(request, registry, installed):
    if installed:
        request.getfixturevalue("gym"), request.getfixturevalue("vmas")
    expected = (
        "'Pendulum-v1' is not an environment id. Write 'namespace:name', for example 'gym:Pendulum-v1'. "
        f"Installed namespaces: {'gym, vmas' if installed else 'none'}."
    )
    assert text_of(errors.EnvIdError, "Pendulum-v1") == expected


def test_known_plugin_not_installed(gym):
    expected = (
        "No installed plugin provides 'vmas:' (asked for 'vmas:balance'). It is in the package steppe-vmas: "
        "pip install 'steppe[vmas]'. Installed namespaces: gym."
    )
    assert text_of(errors.PluginNotFound, "vmas:balance") == expected


def test_unknown_namespace(gym, vmas):
    expected = (
        "No plugin provides 'gmy:' (asked for 'gmy:Pendulum-v1'). Did you mean 'gym:Pendulum-v1'? "
        "Installed namespaces: gym, vmas ('steppe plugins' lists them)."
    )
    assert text_of(errors.PluginNotFound, "gmy:Pendulum-v1") == expected


def test_only_similar_words_suggest_a_known_package(gym):
    """A word that is only a little like a known package is not taken for it."""
    assert "Did you mean" not in text_of(errors.PluginNotFound, "vomis:a")
    assert "Did you mean 'vmas:a'?" in text_of(errors.PluginNotFound, "vmass:a")


def test_unknown_namespace_like_no_other(gym):
    expected = (
        "No plugin provides 'warehouse:' (asked for 'warehouse:a'). "
        "Installed namespaces: gym ('steppe plugins' lists them)."
    )
    assert text_of(errors.PluginNotFound, "warehouse:a") == expected


def test_unknown_env(gym):
    expected = (
        "Plugin 'gym' (steppe-gym 0.1.0, gymnasium 1.4.0) has no environment 'Pendulam-v1'. "
        "Did you mean 'Pendulum-v1'? 'steppe envs gym' lists all 4."
    )
    assert text_of(errors.EnvNotFound, "gym:Pendulam-v1") == expected


def test_library_missing(vmas):
    expected = (
        "Plugin 'vmas' (steppe-vmas 0.1.0) needs vmas>=1.3,<2, which is not installed: pip install 'vmas>=1.3,<2'."
    )
    assert text_of(errors.LibraryMissing, "vmas:balance") == expected


@pytest.mark.parametrize(
    "any_of",
    [
        GYM_REQUIRES[:2],
        [
            "steppe-gym[gymnasium]; extra == 'any-of'",
            "steppe-gym[gym]; extra == 'any-of'",
        ],
    ],
    ids=["flattened", "self-reference"],
)
def test_none_of_several(registry, fake_dist, any_of):
    fake_dist(
        "steppe-gym",
        "0.1.0",
        envs={"gym": "nowhere"},
        requires=[*any_of, *GYM_REQUIRES[2:]],
        extras=["any-of", "gym", "gymnasium"],
    )
    expected = (
        "Plugin 'gym' (steppe-gym 0.1.0) needs gymnasium>=0.28 or gym>=0.13,<0.27; neither is installed: "
        "pip install 'steppe-gym[gymnasium]'."
    )
    assert text_of(errors.LibraryMissing, "gym:Pendulum-v1") == expected


def test_version_unsupported(vmas, fake_dist):
    fake_dist("vmas", "1.2.9")
    expected = (
        f"Plugin 'vmas' (steppe-vmas 0.1.0) supports vmas>=1.3,<2, but vmas 1.2.9 is installed in {fake_dist.path}: "
        "pip install 'vmas>=1.3,<2'."
    )
    assert text_of(errors.LibraryVersionError, "vmas:balance") == expected


def test_version_of_the_only_alternative_unsupported(registry, fake_dist):
    fake_dist("gym", "0.12.5")
    fake_dist(
        "steppe-gym",
        "0.1.0",
        envs={"gym": "nowhere"},
        requires=GYM_REQUIRES,
        extras=["any-of", "gym", "gymnasium"],
    )
    expected = (
        "Plugin 'gym' (steppe-gym 0.1.0) supports gymnasium>=0.28 or gym>=0.13,<0.27, but gym 0.12.5 is installed in "
        f"{fake_dist.path}: pip install 'steppe-gym[gymnasium]'."
    )
    assert text_of(errors.LibraryVersionError, "gym:Pendulum-v1") == expected


HOOK = "from steppe import hookimpl\n\n@hookimpl\n"


WRITTEN = "Plugin 'acme' (acme-sim 2.1) was written for steppe"


UNFIT = "Plugin 'acme' (acme-sim 2.1) does not fit steppe 0.1.0: "


#: What the plugin's file holds, other arguments of the package, the error, and its text.
MESSAGES = {
    "two libraries missing": (
        "",
        {"requires": ["acme-engine>=3", "acme-assets"]},
        errors.LibraryMissing,
        "Plugin 'acme' (acme-sim 2.1) needs acme-engine>=3 and acme-assets, which are not installed: "
        "pip install 'acme-engine>=3' 'acme-assets'.",
    ),
    "for a newer steppe": (
        "raise AssertionError('imported')",
        {"requires": ["steppe>=0.9"]},
        errors.PluginIncompatible,
        f"{WRITTEN}>=0.9, but steppe 0.1.0 is running: pip install -U 'steppe>=0.9', or an acme-sim made for 0.1.",
    ),
    "for an older steppe": (
        "raise AssertionError('imported')",
        {"requires": ["steppe<0.1,>=0.0.5"]},
        errors.PluginIncompatible,
        f"{WRITTEN}>=0.0.5,<0.1, but steppe 0.1.0 is running: "
        "pip install -U acme-sim, or pip install 'steppe>=0.0.5,<0.1'.",
    ),
    "an unknown argument": (
        f"{HOOK}def steppe_make_env(name, render):\n    pass\n",
        {},
        errors.PluginIncompatible,
        f"{UNFIT}steppe_make_env takes (name, kwargs), the plugin's function takes 'render' (acme_sim/plugin.py:3).",
    ),
    "an unknown hook": (
        f"{HOOK}def steppe_make_envs(name):\n    pass\n",
        {},
        errors.PluginIncompatible,
        f"{UNFIT}there is no hook 'steppe_make_envs'; did you mean 'steppe_make_env'? (acme_sim/plugin.py:3).",
    ),
    "without its one necessary hook": (
        "",
        {},
        errors.PluginIncompatible,
        f"{UNFIT}it has no steppe_make_env. Write @hookimpl, def steppe_make_env(name, kwargs).",
    ),
    "a missing import of its own": (
        "\nimport acme_engine\n",
        {},
        errors.PluginBroken,
        "Plugin 'acme' (acme-sim 2.1, acme_sim.plugin) failed to import: "
        "ModuleNotFoundError: No module named 'acme_engine' (acme_sim/plugin.py:2). "
        "Other plugins still work. Hide it with STEPPE_DISABLE_PLUGINS=acme.",
    ),
    "an entry point to nothing": (
        "",
        {"target": "acme_sim.plugn"},
        errors.PluginBroken,
        "Plugin 'acme' (acme-sim 2.1) names the module 'acme_sim.plugn', which does not exist: "
        "correct the name in [project.entry-points] of its pyproject.toml, and install the package again.",
    ),
    "an entry point to a missing attribute": (
        "",
        {"target": "acme_sim.plugin:hooks"},
        errors.PluginBroken,
        "Plugin 'acme' (acme-sim 2.1) names 'hooks' of 'acme_sim.plugin', which has none: "
        "correct the name in [project.entry-points] of its pyproject.toml, and install the package again.",
    ),
    "a plugin that makes nothing": (
        f"{HOOK}def steppe_make_env(name):\n    pass\n",
        {},
        errors.PluginError,
        "Plugin 'acme' (acme-sim 2.1) made no environment for 'a': steppe_make_env returned None. Write: return env",
    ),
}


@pytest.mark.parametrize(("source", "package", "error", "expected"), MESSAGES.values(), ids=MESSAGES.keys())
def test_a_plugin_that_cannot_be_used_says_why(acme, source, package, error, expected):
    acme(source, **package)

    assert text_of(error, "acme:a") == expected


def test_broken(acme):
    acme("# line 1\n# line 2\n1 / 0\n")
    with pytest.raises(errors.PluginBroken) as caught:
        make_env("acme:a")
    assert str(caught.value) == (
        "Plugin 'acme' (acme-sim 2.1, acme_sim.plugin) failed to import: ZeroDivisionError: division by zero "
        "(acme_sim/plugin.py:3). Other plugins still work. Hide it with STEPPE_DISABLE_PLUGINS=acme."
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_broken_by_a_syntax_error(acme):
    acme("x = 1\ndef\n")
    text = text_of(errors.PluginBroken, "acme:a")
    assert "SyntaxError" in text
    assert "(acme_sim/plugin.py:2)" in text


def test_requirement_that_cannot_be_read(acme):
    acme("", requires=["acme engine >> 3"])
    text = text_of(errors.PluginBroken, "acme:a")
    assert text.startswith("Plugin 'acme' (acme-sim 2.1) has a requirement that cannot be read (")
    assert text.endswith("): its package metadata is wrong.")


def test_the_traceback_of_a_broken_plugin_shows_its_own_line(acme):
    acme("1 / 0\n")
    with pytest.raises(errors.PluginBroken) as caught:
        make_env("acme:a")
    assert "acme_sim/plugin.py" in "".join(traceback.format_exception(None, caught.value, caught.value.__traceback__))
