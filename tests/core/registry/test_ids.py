from __future__ import annotations

import pytest

from steppe.errors import EnvIdError
from steppe.registry import EnvId


@pytest.mark.parametrize(
    ("text", "namespace", "name"),
    [
        ("gym:Pendulum-v1", "gym", "Pendulum-v1"),
        ("gym:ALE/Pong-v5", "gym", "ALE/Pong-v5"),
        ("gym:my.module:Env-v0", "gym", "my.module:Env-v0"),
    ],
)
def test_only_the_first_colon_splits(text, namespace, name):
    assert EnvId.parse(text) == EnvId(namespace, name)
    assert str(EnvId.parse(text)) == text


@pytest.mark.parametrize("text", ["Pendulum-v1", "", ":", "gym:", "gym: ", ":Pendulum-v1", "my gym:a", None, 3])
def test_malformed_ids_are_refused(text):
    with pytest.raises(EnvIdError, match="is not an environment id"):
        EnvId.parse(text)


def test_a_malformed_id_is_a_value_error():
    with pytest.raises(ValueError, match="'namespace:name'"):
        EnvId.parse("Pendulum-v1")


def test_the_error_suggests_an_id_of_the_given_name():
    with pytest.raises(EnvIdError, match="for example 'gym:Acrobot-v1'"):
        EnvId.parse("Acrobot-v1")
    with pytest.raises(EnvIdError, match="for example 'gym:Pendulum-v1'"):
        EnvId.parse("")
