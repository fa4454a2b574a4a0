"""An environment of gymnasium with any spaces, for tests of how these are converted."""

from __future__ import annotations

import gymnasium


class Echo(gymnasium.Env):
    """An environment that returns samples of its space, and records its actions."""

    def __init__(self, observation, action=None):
        self.observation_space = observation
        self.action_space = action or gymnasium.spaces.Discrete(2)
        self.actions, self.shown = [], []

    def _show(self):
        self.shown.append(self.observation_space.sample())
        return self.shown[-1]

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.observation_space.seed(seed)
        return self._show(), {}

    def step(self, action):
        self.actions.append(action)
        assert self.action_space.contains(action), action
        return self._show(), 1.0, len(self.actions) >= 5, False, {}
