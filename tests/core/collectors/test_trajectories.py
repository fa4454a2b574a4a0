"""Data cut at the ends of its trajectories."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from steppe import Collector, split_trajectories
from steppe.errors import SpecError
from steppe_testing import CountingEnv, NestedCountingEnv, assert_equal_data
from tests.limits import AT_ONCE


def frames(ids: Any, **entries: torch.Tensor) -> TensorDict:
    number = torch.tensor(ids)
    value = torch.arange(1, number.numel() + 1).reshape(number.shape)
    return TensorDict({"value": value, "collector": {"traj_ids": number}, **entries}, number.shape)


def test_each_run_of_one_id_becomes_a_row_padded_with_zeros() -> None:
    out = split_trajectories(frames([[0, 0, 0, 2], [1, 3, 3, 3]]))
    assert out["value"].tolist() == [[1, 2, 3], [4, 0, 0], [5, 0, 0], [6, 7, 8]]
    mask = out["collector", "mask"]
    assert mask.tolist() == [[True] * 3, [True, False, False], [True, False, False], [True] * 3]
    assert (out.batch_size, out.names) == ((4, 3), [None, "time"])
    assert out["collector", "traj_ids"].tolist() == [[0, 0, 0], [2, 0, 0], [1, 0, 0], [3, 3, 3]]


@pytest.mark.parametrize(
    ("ids", "rows"),
    [
        ([[7, 8, 7], [7, 7, 8]], [[1, 0], [2, 0], [3, 0], [4, 5], [6, 0]]),
        ([0, 0, 1], [[1, 2], [3, 0]]),
        ([[0, 0], [1, 1]], [[1, 2], [3, 4]]),
    ],
    ids=["one id in two places", "a vector of frames", "of one length"],
)
def test_a_new_id_ends_a_trajectory(ids: Any, rows: list[list[int]]) -> None:
    out = split_trajectories(frames(ids))
    assert out["value"].tolist() == rows
    assert out["collector", "mask"].tolist() == [[value > 0 for value in row] for row in rows]


def test_without_ids_done_entries_cut() -> None:
    done = torch.tensor([[False, True, False, True], [False, False, False, True]]).unsqueeze(-1)
    data = TensorDict(
        {"value": torch.arange(8).reshape(2, 4), "next": {"done": done, "stop": done.roll(-1, 1)}}, [2, 4]
    )
    out = split_trajectories(data)
    assert out["value"].tolist() == [[0, 1, 0, 0], [2, 3, 0, 0], [4, 5, 6, 7]]
    assert out["mask"].sum(1).tolist() == [2, 2, 4]
    assert split_trajectories(data, done_key="stop")["value"].tolist() == [
        [0, 0, 0],
        [1, 2, 0],
        [3, 0, 0],
        [4, 5, 6],
        [7, 0, 0],
    ]


def test_keys_name_the_entries_of_ids_and_mask() -> None:
    data = frames([[0, 1, 1]]).rename_key_("collector", "mine")
    out = split_trajectories(data, prefix="mine")
    assert out["mine", "mask"].tolist() == [[True, False], [True, True]]
    out = split_trajectories(data, trajectory_key=("mine", "traj_ids"))
    assert out["mine", "mask"].tolist() == [[True, False], [True, True]]
    out = split_trajectories(frames([[0, 0]], episode=torch.tensor([[3, 4]])), trajectory_key="episode")
    assert out["mask"].tolist() == [[True], [True]]


def test_missing_ids_are_added() -> None:
    done = torch.tensor([[False, True, False], [True, False, False]]).unsqueeze(-1)
    data = TensorDict({"next": {"done": done}}, [2, 3])
    assert split_trajectories(data)["traj_ids"].tolist() == [[0, 0], [1, 0], [2, 0], [3, 3]]
    assert split_trajectories(data, prefix="collector")["collector", "traj_ids"][-1].tolist() == [3, 3]
    assert split_trajectories(data, trajectory_key="episode")["episode"][-1].tolist() == [3, 3]
    assert set(data.keys()) == {"next"}, "what was given is left as it was"


def test_ids_at_the_root_split_beside_other_collector_data() -> None:
    """split_trajectories reads traj_ids of the root if the collector entry has none."""
    ids = torch.tensor([[0, 0, 1]])
    data = TensorDict({"traj_ids": ids, "collector": {"policy_version": torch.zeros(1, 3)}}, [1, 3])
    out = split_trajectories(data)
    assert out["mask"].tolist() == [[True, True], [True, False]]


def test_frames_that_a_mask_leaves_out_belong_to_no_trajectory() -> None:
    data = frames([[0, 0, -1, -1], [1, 2, 2, 2]])
    data["collector", "mask"] = data["collector", "traj_ids"] >= 0
    out = split_trajectories(data)
    assert out["value"].tolist() == [[1, 2, 0], [5, 0, 0], [6, 7, 8]]
    assert out["collector", "mask"].tolist() == [[True, True, False], [True, False, False], [True] * 3]


def test_text_is_padded_with_none() -> None:
    text = NonTensorStack(NonTensorStack("a", "b", "c", "d"))
    out = split_trajectories(frames([[0, 0, 0, 1]], text=text, same=NonTensorData("x", batch_size=[1, 4])))
    assert out.get("text").tolist() == [["a", "b", "c"], ["d", None, None]]
    assert out.get("same").tolist() == [["x"] * 3, ["x", None, None]]


def test_levels_keep_their_batch_dimensions() -> None:
    with Collector(NestedCountingEnv(2, root_done="all", batch_size=(2,)), frames_per_batch=8) as collector:
        batch = next(collector)
    out = split_trajectories(batch)
    assert out.batch_size == (4, 2)
    assert out["agents"].batch_size == (4, 2, *batch["agents"].batch_size[2:])
    assert out["agents", "observation"].shape == (4, 2, 2, 1)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [True, torch.strided, torch.jagged])
def test_nested_trajectories_become_padded_ones_with_a_mask(layout: Any) -> None:
    agents = TensorDict({"x": torch.rand(2, 4, 3, 5)}, [2, 4, 3])
    data = frames([[0, 0, 0, 2], [1, 3, 3, 3]], agents=agents, flag=torch.rand(2, 4, 1) > 0.5)
    nested = split_trajectories(data, as_nested=layout)

    assert nested.batch_size == (4, -1)
    assert nested["agents"].batch_size == (4, -1, 3)
    assert [row.tolist() for row in nested["value"].unbind()] == [[1, 2, 3], [4], [5], [6, 7, 8]]
    padded, expected = nested.to_padded_tensor(mask_key=("collector", "mask")), split_trajectories(data)
    assert padded.batch_size == expected.batch_size
    assert set(padded.keys(True, True)) == set(expected.keys(True, True))
    for key in expected.keys(True, True):
        assert torch.equal(padded[key], expected[key]), key


def test_a_split_collector_has_what_the_frames_have() -> None:
    def batches(**kwargs: bool) -> list[TensorDict]:
        with Collector(CountingEnv(3, batch_size=(2,)), frames_per_batch=16, seed=0, **kwargs) as collector:
            return [next(collector) for _ in range(2)]

    for split, plain in zip(batches(split_trajs=True), batches(), strict=True):
        kept = split[split["collector", "mask"]]
        assert_equal_data(kept.exclude(("collector", "mask")), plain.reshape(-1))


def test_the_work_grows_with_the_frames_alone() -> None:
    def seconds(n: int) -> float:
        data = frames([list(range(n))])
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            split_trajectories(data)
            best = min(best, time.perf_counter() - start)
        return best

    seconds(1000)
    assert seconds(200_000) < AT_ONCE, "a quadratic count of 200,000 ids takes minutes"


@pytest.mark.parametrize(
    ("data", "arguments", "said"),
    [
        (TensorDict({"a": torch.zeros(2)}, [2]), {}, r"trajectory ids at \('traj_ids',\), or \('next', 'done'\)"),
        (TensorDict({"a": torch.zeros(2)}, [2]), {"trajectory_key": "id"}, r"trajectory ids at \('id',\)"),
        (TensorDict({"a": torch.zeros(2)}), {}, "time dimension"),
        (frames([[0, 1]], text=NonTensorData("a", batch_size=[1, 2])), {"as_nested": True}, "'text' holds"),
    ],
)
def test_data_that_cannot_be_cut_is_refused(data: TensorDict, arguments: dict[str, str], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        split_trajectories(data, **arguments)


def test_real_steps_have_log_probabilities_and_padding_has_none() -> None:
    actions = torch.nn.functional.one_hot(torch.tensor([1, 0, 2, 2]), 3)
    padded = split_trajectories(frames([4, 4, 4, 9], action=actions))
    dist = torch.distributions.OneHotCategorical(logits=torch.zeros(3), validate_args=True)
    with pytest.raises(ValueError, match="to be within the support"):
        dist.log_prob(padded["action"])

    real = padded[padded["collector", "mask"]]
    assert torch.allclose(dist.log_prob(real["action"]), torch.tensor(1 / 3).log().expand(4))
