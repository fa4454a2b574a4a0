"""Environments that a program registers with gymnasium reach other processes."""

from __future__ import annotations

import pickle
import sys
import threading
from types import SimpleNamespace

import cloudpickle
import pytest

from steppe.versions.gym_registrations import apply_registrations, registrations

POLE = "gymnasium.envs.classic_control:CartPoleEnv"


@pytest.fixture
def gymnasium(monkeypatch):
    """Let ids that a test registers vanish with it."""
    library = pytest.importorskip("gymnasium")
    from gymnasium.envs import registration

    monkeypatch.setattr(registration, "registry", dict(registration.registry))
    return library


def records():
    return registrations(cloudpickle.dumps).get("gymnasium", {})


def test_ids_of_the_program_alone_are_sent(gymnasium):
    gymnasium.register("Mine-v0", entry_point="mine.envs:Mine")
    gymnasium.register("Local-v0", entry_point=lambda: "local")

    assert {"Mine-v0", "Local-v0"} <= set(records())
    assert "CartPole-v1" not in records()


def test_another_process_can_make_what_was_sent(gymnasium):
    gymnasium.register("Mine-v0", entry_point=lambda: "mine", max_episode_steps=7)
    sent = records()
    from gymnasium.envs import registration

    registration.registry.clear()
    apply_registrations("gymnasium", sent)

    spec = registration.registry["Mine-v0"]
    assert (spec.entry_point(), spec.max_episode_steps) == ("mine", 7)


def test_records_that_cannot_be_sent_or_read_are_left_out(gymnasium):
    lock = threading.Lock()
    gymnasium.register("Locked-v0", entry_point=lambda: lock)
    assert "Locked-v0" not in records()

    apply_registrations("gymnasium", {"Broken-v0": b"no pickle"})
    assert "Broken-v0" not in records()


def test_old_versions_of_gym_keep_their_records_elsewhere(monkeypatch):
    """A stand-in for gym 0.21, which no session has beside the newest gymnasium."""
    registry = SimpleNamespace(env_specs={"Mine-v0": SimpleNamespace(entry_point="mine:Env")})
    monkeypatch.setitem(sys.modules, "gym.envs.registration", SimpleNamespace(registry=registry))

    sent = registrations(cloudpickle.dumps)["gym"]
    registry.env_specs.clear()
    apply_registrations("gym", sent)

    assert registry.env_specs["Mine-v0"] == pickle.loads(sent["Mine-v0"])
