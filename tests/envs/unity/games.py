"""Games for the tests of steppe-unity.

No Unity game can run without a binary. ``mock_game`` is a UnityEnvironment of ML-Agents whose messages come from
ML-Agents' own MockCommunicator. ``Relay`` is a double of a game, written against ML-Agents' BaseEnv with its own
classes for steps and specs, because the mock never lets an agent be absent, come back or have a mask.
"""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

import numpy as np
from mlagents_envs.base_env import (
    ActionSpec,
    BaseEnv,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    TerminalSteps,
)
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.mock_communicator import MockCommunicator


@contextmanager
def no_binary(*, discrete=False):
    """Let UnityEnvironment start games of three agents, of which the last one ends in each step, without a binary."""
    communicator = MockCommunicator(discrete_action=discrete, visual_inputs=0)
    with (
        mock.patch.object(UnityEnvironment, "_get_communicator", return_value=communicator),
        mock.patch("mlagents_envs.env_utils.launch_executable"),
    ):
        yield


def mock_game(*, discrete=False, seed=0):
    """Return such a game."""
    with no_binary(discrete=discrete):
        return UnityEnvironment(" ", seed=seed)


def sensor(name, shape):
    properties = (DimensionProperty.UNSPECIFIED,) * len(shape)
    return ObservationSpec(tuple(shape), properties, ObservationType.DEFAULT, name)


class Relay(BaseEnv):
    """A double of a game with the behaviors ``runner`` (two sensors, both kinds of actions) and ``guard``.

    Runner i decides in every (i + 1)-th step, may not choose the value ``step % 3`` of its first branch, and ends after
    ``5 + i`` steps; it begins again in the same step, under a new number. The single guard is interrupted after 7
    steps, and comes back in the next step.
    """

    def __init__(self, runners=2, seed=0):
        self.runners, self.seed = runners, seed
        self.specs = {
            "runner": BehaviorSpec([sensor("eyes", (2, 3)), sensor("", (4,))], ActionSpec(2, (3, 2))),
            "guard": BehaviorSpec([sensor("ears", (1,))], ActionSpec(1, ())),
        }
        self.sent, self.closed, self.resets = [], False, 0

    @property
    def behavior_specs(self):
        return self.specs

    def reset(self):
        self.resets += 1
        self.generator = np.random.default_rng(self.seed + self.resets)
        self.t = 0
        self.numbers = list(range(self.runners))
        self.births = [0] * self.runners
        self.guard_away = False
        self._observe(ended=[], guard_ended=False)

    def step(self):
        self.t += 1
        ended = [i for i in range(self.runners) if self.t - self.births[i] >= 5 + i]
        guard_ended = self.t % 8 == 7
        self.guard_away = guard_ended
        self._observe(ended, guard_ended)

    def _observe(self, ended, guard_ended):
        make = lambda *shape: self.generator.normal(size=shape).astype(np.float32)  # noqa: E731
        over = [self.numbers[i] for i in ended]
        for i in ended:
            self.numbers[i] += 100
            self.births[i] = self.t
        deciding = [i for i in range(self.runners) if i in ended or (self.t - self.births[i]) % (i + 1) == 0]
        n, k = len(deciding), len(over)
        first = np.zeros((n, 3), bool)
        first[:, self.t % 3] = True
        self.now = {
            "runner": (
                DecisionSteps(
                    [make(n, 2, 3), make(n, 4)],
                    make(n),
                    np.array([self.numbers[i] for i in deciding], np.int32),
                    [first, np.zeros((n, 2), bool)],
                    np.ones(n, np.int32),
                    make(n),
                ),
                TerminalSteps(
                    [make(k, 2, 3), make(k, 4)],
                    make(k),
                    np.zeros(k, bool),
                    np.array(over, np.int32),
                    np.ones(k, np.int32),
                    make(k),
                ),
            ),
            "guard": (
                DecisionSteps(
                    [make(int(not guard_ended), 1)],
                    make(int(not guard_ended)),
                    np.full(int(not guard_ended), 9, np.int32),
                    None,
                    np.zeros(int(not guard_ended), np.int32),
                    make(int(not guard_ended)),
                ),
                TerminalSteps(
                    [make(int(guard_ended), 1)],
                    make(int(guard_ended)),
                    np.ones(int(guard_ended), bool),
                    np.full(int(guard_ended), 9, np.int32),
                    np.zeros(int(guard_ended), np.int32),
                    make(int(guard_ended)),
                ),
            ),
        }

    def get_steps(self, behavior_name):
        return self.now[behavior_name]

    def set_actions(self, behavior_name, action):
        decisions = self.now[behavior_name][0]
        assert len(action.continuous) == len(action.discrete) == len(decisions.agent_id)
        if decisions.action_mask is not None:
            for branch, mask in enumerate(decisions.action_mask):
                chosen = action.discrete[:, branch]
                assert not mask[np.arange(len(chosen)), chosen].any(), "a masked action was chosen"
        self.sent.append((self.t, behavior_name, action.continuous.copy(), action.discrete.copy()))

    def set_action_for_agent(self, behavior_name, agent_id, action):
        raise NotImplementedError

    def close(self):
        self.closed = True
