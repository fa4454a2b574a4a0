"""Raw environments of each library version, to compare steppe-gym with."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import warnings

import numpy as np
import pytest
from packaging.version import Version

LIBRARIES = [name for name in ("gymnasium", "gym") if importlib.util.find_spec(name)]


class Raw:
    """One library, without steppe."""

    def __init__(self, name):
        self.name = name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.module = importlib.import_module(name)
        self.version = Version(importlib.metadata.version(name))
        self.old = name == "gym" and self.version < Version("0.26")
        self.seeds_by_method = name == "gym" and self.version < Version("0.22")

    def ids(self):
        registry = self.module.envs.registration.registry
        return [str(name) for name in (registry if hasattr(registry, "keys") else registry.env_specs).keys()]

    def newest(self, base):
        """The newest version that the library has of an environment."""
        if self.name == "gym" and base == "Acrobot" and np.lib.NumpyVersion(np.__version__) >= "2.0.0":
            pytest.skip("Acrobot of gym uses np.float_, which numpy 2 removed")
        found = [name for name in self.ids() if re.fullmatch(re.escape(base) + r"-v\d+", name)]
        if not found:
            pytest.skip(f"{self.name} {self.version} has no {base}")
        return max(found, key=lambda name: int(name.rpartition("-v")[2]))

    def make(self, name, **kwargs):
        if self.name == "gymnasium" or self.version >= Version("0.24"):
            kwargs.setdefault("disable_env_checker", True)
        return self.module.make(name, **kwargs)

    def reset(self, env, seed=None):
        if self.seeds_by_method:
            if seed is not None:
                env.seed(seed)
            return env.reset()
        found = env.reset() if seed is None else env.reset(seed=seed)
        return found if self.old else found[0]

    def step(self, env, action):
        if not self.old:
            return env.step(action)[:4]
        observation, reward, done, info = env.step(action)
        truncated = done and info.get("TimeLimit.truncated", False)
        return observation, reward, bool(done) and not truncated, bool(truncated)

    def play(self, env, seed, actions):
        """``(root, following, reward, terminated, truncated)`` of each step, with resets where episodes end."""
        root = self.reset(env, seed)
        for action in actions:
            following, reward, terminated, truncated = self.step(env, action)
            yield root, following, reward, terminated, truncated
            root = self.reset(env) if terminated or truncated else following


@pytest.fixture(params=LIBRARIES)
def raw(request):
    """Each installed library in turn, chosen as the backend too."""
    steppe_gym = pytest.importorskip("steppe_gym")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = Raw(request.param)
        with steppe_gym.set_gym_backend(request.param):
            yield library


@pytest.fixture
def random_actions():
    """``random_actions(space, n)``: actions as the library takes them, the same in every run."""

    def draw(space, n):
        rng = np.random.default_rng(0)
        if hasattr(space, "nvec"):
            return [rng.integers(0, space.nvec).astype(space.dtype) for _ in range(n)]
        if hasattr(space, "n"):
            return [int(rng.integers(space.n)) + int(getattr(space, "start", 0)) for _ in range(n)]
        return [rng.uniform(space.low, space.high).astype(space.dtype) for _ in range(n)]

    return draw
