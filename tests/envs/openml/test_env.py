"""OpenMLEnv: encoded data sets, drawn rows and rewards."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.datasets import fetch_openml
from sklearn.preprocessing import StandardScaler

from steppe import ParallelEnv, SerialEnv, SyncDataCollector, check_env_specs, make_env
from steppe.errors import ArgumentError, EnvNotFound, StateError
from steppe.registry import env_factory
from steppe_openml import OpenMLEnv
from tests.envs.openml.conftest import seed_cache

pytestmark = [pytest.mark.library, pytest.mark.matrix]


def test_features_are_standardized_and_labels_ranked():
    env = OpenMLEnv("magic")

    features, labels = fetch_openml("MagicTelescope", version=1, return_X_y=True, as_frame=True, parser="auto")

    np.testing.assert_array_equal(env.features, StandardScaler().fit_transform(features).astype(np.float32))
    assert [["g", "h"][label] for label in env.labels] == labels.tolist()


def test_the_occupation_of_complete_rows_is_the_label(tmp_path):
    lines = [line for line in seed_cache(tmp_path, "adult", 1, 7, rows=20) if "?" not in line]
    env = OpenMLEnv("adult_onehot", data_home=str(tmp_path))

    names = sorted({line[2] for line in lines})
    assert [names[label] for label in env.labels] == [line[2] for line in lines]
    works = sorted({line[1] for line in lines})
    ages = np.array([float(line[0]) for line in lines])
    columns = [(ages - ages.mean()) / ages.std()]
    columns += [[line[1] == work for line in lines] for work in works]
    np.testing.assert_allclose(env.features, np.stack(columns, 1), rtol=1e-6)


@pytest.mark.parametrize(("name", "columns"), [("mushroom_num", 2), ("mushroom_onehot", 7)])
def test_a_missing_value_is_a_separate_category(name, columns):
    env = OpenMLEnv(name)

    assert env.features.shape == (30, columns)
    assert not env.features.isnan().any()


@pytest.mark.parametrize("batch_size", [(), (3,), (2, 2)])
def test_a_right_guess_is_rewarded(batch_size):
    env = OpenMLEnv("magic", batch_size=batch_size)
    env.set_seed(0)
    td = env.reset()

    right = env.step(td.clone().set("action", td["y"]))
    wrong = env.step(td.clone().set("action", 1 - td["y"]))

    assert right["next", "reward"].shape == (*batch_size, 1)
    assert (right["next", "reward"] == 1).all()
    assert (wrong["next", "reward"] == 0).all()
    assert right["next", "terminated"].all()
    assert torch.equal(right["next", "observation"], td["observation"])
    check_env_specs(env)


def test_rows_are_drawn_without_replacement():
    env = OpenMLEnv("magic", batch_size=[10])
    env.set_seed(0)

    drawn = torch.cat([env.reset()["observation"] for _ in range(6)])

    for epoch in drawn.split(30):
        found = sorted(map(tuple, epoch.tolist()))
        assert found == sorted(map(tuple, env.features.tolist()))
    assert not torch.equal(drawn[:30], drawn[30:])


def test_each_observation_has_its_label():
    env = OpenMLEnv("adult_num")
    pairs = {(tuple(row.tolist()), label.item()) for row, label in zip(env.features, env.labels, strict=True)}

    data = env.rollout(60, break_when_any_done=False)

    assert {
        (tuple(row.tolist()), label.item()) for row, label in zip(data["observation"], data["y"], strict=True)
    } <= pairs
    assert torch.equal(data["next", "reward"][:, 0], (data["action"] == data["y"]).float())


def test_a_partial_reset_draws_only_the_chosen_rows():
    env = OpenMLEnv("magic", batch_size=[4])
    td = env.reset()
    mask = torch.tensor([[True], [False], [True], [False]])

    again = env.reset(td.clone().set("_reset", mask))

    same = (again["observation"] == td["observation"]).all(-1)
    assert same.tolist() == [False, True, False, True]
    assert torch.equal(env.step(again.set("action", again["y"]))["next", "reward"], torch.ones(4, 1))


@pytest.mark.parametrize("batch_size", [(), (3,), (2, 2)])
def test_a_step_reads_the_label_of_the_callers_root(batch_size):
    env = OpenMLEnv("magic", batch_size=batch_size)
    for _ in range(2):  # the first step of a batch is compared with the specs, on TensorDicts
        td = env.reset()
        drawn = td["y"].clone()
        td["y"] = 1 - drawn

        edited = env.step(td.clone().set("action", td["y"]))
        without = env.step(td.exclude("y").set("action", drawn))

        assert (edited["next", "reward"] == 1).all()
        assert torch.equal(edited["next", "y"], 1 - drawn)
        assert (without["next", "reward"] == 1).all()
        assert torch.equal(without["next", "y"], drawn)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_single_environments(kind):
    batch = kind(2, "openml:magic")
    seed = 5
    batch.set_seed(seed)
    data = batch.rollout(12, break_when_any_done=False)
    batch.close()

    for row in data:
        env = make_env("openml:magic")
        seed = env.set_seed(seed)
        for t in range(12):
            td = env.reset()
            assert torch.equal(td["observation"], row["observation"][t])
            assert torch.equal(td["y"], row["y"][t])
    assert torch.equal(data["next", "reward"][..., 0], (data["action"] == data["y"]).float())


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_a_collector_rewards_right_guesses(kind):
    collector = SyncDataCollector(kind(2, env_factory("openml:adult_num")), None, frames_per_batch=20, total_frames=40)
    data = torch.cat([batch.clone() for batch in collector], -1)
    collector.shutdown()

    assert data["next", "done"].all()
    assert torch.equal(data["next", "reward"][..., 0], (data["action"] == data["y"]).float())


def test_an_unknown_name_gets_a_close_one():
    with pytest.raises(EnvNotFound, match="Did you mean 'adult_onehot'"):
        make_env("openml:adult_one")


def test_a_batch_larger_than_the_data_set_is_refused():
    with pytest.raises(ArgumentError, match="has 30 rows, fewer than the batch of 31"):
        OpenMLEnv("magic", batch_size=[31])


@pytest.mark.timeout(120)
def test_without_a_network_the_error_says_what_to_copy(tmp_path, monkeypatch):
    import urllib.request

    def refuse(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setattr("sklearn.datasets._openml.urlopen", refuse)

    with pytest.raises(StateError, match=r"'shuttle'.*fetch_openml\('shuttle', version=1\)"):
        OpenMLEnv("shuttle", data_home=str(tmp_path))


def test_the_data_set_moves_with_the_environment():
    env = OpenMLEnv("adult_num", batch_size=[2])
    torch.nn.Module.to(env, "meta")  # as env.to does, which needs a device with values for its specs

    assert env.features.is_meta
    assert env._shown()["y"].is_meta
