"""Which packages provide a name, and which are hidden."""

from __future__ import annotations

import pytest

from steppe import errors, make_env


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


def test_conflict(registry, fake_dist):
    fake_dist("other-gym", "0.3", envs={"gym": "other_gym:plugin"})
    fake_dist("steppe-gym", "0.1.0", envs={"gym": "steppe_gym.plugin"})
    expected = (
        "Two packages provide 'gym:': steppe-gym 0.1.0 (steppe_gym.plugin) and other-gym 0.3 (other_gym:plugin). "
        "Uninstall one, or hide it: STEPPE_DISABLE_PLUGINS=other-gym."
    )
    assert text_of(errors.PluginConflict, "gym:Pendulum-v1") == expected


def test_conflict_of_three(registry, fake_dist):
    for name in ("a-gym", "b-gym", "steppe-gym"):
        fake_dist(name, "1.0", envs={"gym": "m"})
    expected = (
        "Three packages provide 'gym:': steppe-gym 1.0 (m), a-gym 1.0 (m) and b-gym 1.0 (m). "
        "Uninstall all but one, or hide them: STEPPE_DISABLE_PLUGINS=a-gym,b-gym."
    )
    assert text_of(errors.PluginConflict, "gym:Pendulum-v1") == expected


@pytest.mark.parametrize(("variable", "value"), [("STEPPE_DISABLE_PLUGINS", "vmas"), ("STEPPE_PLUGINS", "gym")])
def test_a_hidden_plugin_names_what_hides_it(vmas, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    expected = f"Plugin 'vmas' is installed (steppe-vmas 0.1.0) but hidden by {variable}={value}."
    assert text_of(errors.PluginBlocked, "vmas:balance") == expected
