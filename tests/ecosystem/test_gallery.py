"""The gallery: its trained policies act in their environments, and the manifest names them."""

from __future__ import annotations

import json

import pytest
import torch

from steppe import EnvBase, make_env
from steppe.cli import import_policy
from steppe.envs import as_policy
from steppe.errors import SteppeError
from tools import gallery, gallery_policies

ENTRIES = {each["id"]: each for each in json.loads(gallery.MANIFEST.read_text(encoding="utf-8"))["environments"]}


def made(name: str, **arguments: object) -> EnvBase:
    try:
        return make_env(name, **arguments)
    except (SteppeError, ImportError) as error:
        pytest.skip(f"{name} cannot be made here: {error}")


@pytest.mark.parametrize("name", gallery_policies.POLICIES)
def test_a_trained_policy_acts_within_its_spec(name: str):
    of = gallery_policies.POLICIES[name].env
    with made(of, **({"num_envs": 2} if of.startswith("vmas:") else {})) as env:
        policy = as_policy(import_policy(f"tools.gallery_policies:{name}"), env)
        data = policy(env.reset())
        assert env.full_action_spec[env.action_key].is_in(data[env.action_key], exact=True)


def test_the_policy_of_pendulum_holds_it_up():
    with made("gym:Pendulum-v1") as env:
        env.set_seed(5)
        data = env.rollout(200, gallery_policies.pendulum)
        assert data["next", "reward"].sum() > -400  # random actions give about -1,200
        assert torch.all(data["next", "observation"][-20:, 0] > 0.95)  # the cosine of the angle to the top


def test_the_manifest_names_every_trained_policy():
    for of in gallery.TRAINED:
        assert list(gallery.policy_problems(ENTRIES[of])) == []
        assert ENTRIES[of]["policy"].startswith("tools.gallery_policies:")


def test_the_check_reports_other_weights(tmp_path, monkeypatch: pytest.MonkeyPatch):
    weights = tmp_path / "pendulum.pt"
    weights.write_bytes(b"others")
    monkeypatch.setattr(gallery_policies, "FOLDER", tmp_path)
    monkeypatch.setattr(gallery_policies, "ROOT", tmp_path)
    (found,) = (each for each in gallery.policy_problems(ENTRIES["gym:Pendulum-v1"]) if ": weights is" in each)
    assert ENTRIES["gym:Pendulum-v1"]["weights"] in found


def test_the_check_reports_a_picture_of_another_policy():
    entry = {**ENTRIES["gym:CarRacing-v3"], "policy": "tools.gallery_policies:pendulum"}
    (found,) = gallery.policy_problems(entry)
    assert "gym:CarRacing-v3: policy is None" in found


def test_all_tiles_show_trained_policies():
    assert len(gallery.TILES) == 8
    assert set(gallery.TILES) <= set(gallery.TRAINED)
