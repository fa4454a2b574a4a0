"""Double of SMACv2: battles of StarCraft II for several agents.

It is built from the published sources of SMACv2 (``env/starcraft2/starcraft2.py``, ``env/starcraft2/wrapper.py``,
``env/starcraft2/distributions.py``, ``env/starcraft2/maps/smac_maps.py``). The battle is one of a few rules in numpy:
units walk on a plane and shoot in range.

Kept from the library: every ``reset`` launches another StarCraft until an episode has ended, and does not close the one
before; the seed is the one of the constructor, and ``seed()`` returns it; ``step`` asserts that actions are available,
and returns one flag, whether the battle or the time ended the episode; ``info["episode_limit"]`` exists only with
``continuing_episode``; dead agents observe zeros and can do nothing but action 0; a lost connection ends the episode
with an empty info; the wrapper for teams is no ``StarCraft2Env`` and draws teams from generators without a seed.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import Double

__all__ = ["DOUBLE", "StarCraft2Env", "StarCraftCapabilityEnvWrapper", "get_smac_map_registry"]

_MAPS: dict[str, dict[str, Any]] = {
    "10gen_terran": {"n_agents": 10, "n_enemies": 10, "limit": 200, "map_type": "terran_gen"},
    "3m": {"n_agents": 3, "n_enemies": 3, "limit": 60, "map_type": "marines"},
    "2m_vs_1z": {"n_agents": 2, "n_enemies": 1, "limit": 150, "map_type": "marines"},
    "8m": {"n_agents": 8, "n_enemies": 8, "limit": 120, "map_type": "marines"},
}
_MOVES = {2: (0.0, 2.0), 3: (0.0, -2.0), 4: (2.0, 0.0), 5: (-2.0, 0.0)}
_TYPES = {"marine": 4, "marauder": 3, "medivac": 5}
_SIDE = 32.0


def get_smac_map_registry() -> dict[str, dict[str, Any]]:
    """Return the parameters of all maps, by name."""
    return _MAPS


class Game:
    """A process of StarCraft II."""

    running = 0

    def __init__(self, seed: int | None) -> None:
        type(self).running += 1
        self.rng = np.random.default_rng(seed)
        self.open = True

    def close(self) -> None:
        """End the process."""
        if self.open:
            type(self).running -= 1
        self.open = False


#: Settings of the library that the double takes and ignores.
_SETTINGS = frozenset(
    [
        "step_mul",
        "move_amount",
        "difficulty",
        "game_version",
        "obs_all_health",
        "obs_own_health",
        "obs_last_action",
        "obs_pathing_grid",
        "obs_terrain_height",
        "obs_instead_of_state",
        "obs_timestep_number",
        "obs_own_pos",
        "obs_starcraft",
        "conic_fov",
        "num_fov_actions",
        "state_last_action",
        "state_timestep_number",
        "reward_only_positive",
        "reward_death_value",
        "reward_win",
        "reward_defeat",
        "reward_negative_scale",
        "reward_scale",
        "reward_scale_rate",
        "use_unit_ranges",
        "min_attack_range",
        "kill_unit_step_mul",
        "fully_observable",
        "replay_dir",
        "replay_prefix",
        "window_size_x",
        "window_size_y",
        "heuristic_ai",
        "heuristic_rest",
        "debug",
        "prob_obs_enemy",
        "cheap_talk",
    ]
)


class StarCraft2Env:
    """A battle on one map.

    Args:
        map_name: name of the map.
        seed: seed of the game, used when StarCraft is launched.
        continuing_episode: say in the info that the time has ended.
        reward_sparse: 1 for a victory, -1 for a defeat, otherwise 0.
        capability_config: settings of the teams.
        **kwargs: settings of the library that this double ignores; others are errors, as in the library.
    """

    def __init__(
        self,
        map_name: str = "8m",
        seed: int | None = None,
        continuing_episode: bool = False,
        reward_sparse: bool = False,
        capability_config: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if unknown := sorted(kwargs.keys() - _SETTINGS):
            raise TypeError(f"StarCraft2Env.__init__() got an unexpected keyword argument {unknown[0]!r}")
        params = get_smac_map_registry()[map_name]
        config = capability_config or {}
        teams = config.get("team_gen")
        self.map_name, self.map_type = map_name, params["map_type"]
        self.n_agents = int(teams["n_units"] if teams else params["n_agents"])
        self.n_enemies = int(teams["n_enemies"] if teams else params["n_enemies"])
        self.episode_limit = params["limit"]
        self.continuing_episode, self.reward_sparse = continuing_episode, reward_sparse
        self._seed = seed
        self.n_actions: int = 6 + self.n_enemies
        self.max_reward = self.n_enemies * 10 + 200
        self._episode_count = self._episode_steps = 0
        self.battles_won = self.battles_game = self.timeouts = self.force_restarts = 0
        self.marauder_id, self.marine_id, self.medivac_id = _TYPES["marauder"], _TYPES["marine"], _TYPES["medivac"]
        self.hydralisk_id = self.zergling_id = self.baneling_id = 0
        self.stalker_id = self.colossus_id = self.zealot_id = 0
        self.agents: dict[int, Any] = {}
        self.enemies: dict[int, Any] = {}
        self._sc2_proc: Game | None = None
        self.lose_connection = False
        self.death_tracker_ally = np.zeros(self.n_agents)
        self.death_tracker_enemy = np.zeros(self.n_enemies)

    def _launch(self) -> None:
        self._sc2_proc = Game(self._seed)

    def full_restart(self) -> None:
        """Launch StarCraft again."""
        assert self._sc2_proc is not None
        self._sc2_proc.close()
        self._launch()
        self.force_restarts += 1

    def reset(self, episode_config: dict[str, Any] | None = None) -> tuple[list[np.ndarray], np.ndarray]:
        """Begin an episode; the library launches StarCraft until one has ended."""
        self._episode_steps = 0
        if self._episode_count == 0:
            self._launch()
        rng = self._rng
        team = (episode_config or {}).get("team_gen", {}).get("ally_team", ["marine"] * self.n_agents)
        places = (episode_config or {}).get("ally_start_positions", {}).get("item")
        self.agents = {
            i: self._unit(_TYPES[name], 8.0 if places is None else places[i][0], rng) for i, name in enumerate(team)
        }
        self.enemies = {i: self._unit(_TYPES["marine"], 24.0, rng) for i in range(self.n_enemies)}
        self.death_tracker_ally = np.zeros(self.n_agents)
        self.death_tracker_enemy = np.zeros(self.n_enemies)
        return self.get_obs(), self.get_state()

    @property
    def _rng(self) -> np.random.Generator:
        assert self._sc2_proc is not None
        assert self._sc2_proc.open, "StarCraft II does not run"
        return self._sc2_proc.rng

    @staticmethod
    def _unit(kind: int, x: float, rng: np.random.Generator) -> Any:
        y = float(rng.uniform(8, 24))
        return SimpleNamespace(unit_type=kind, pos=SimpleNamespace(x=float(x), y=y), health=45.0, health_max=45.0)

    def get_env_info(self) -> dict[str, int]:
        """Return sizes, without a game."""
        return {
            "state_shape": self.get_state_size(),
            "obs_shape": self.get_obs_size(),
            "cap_shape": 0,
            "n_actions": self.get_total_actions(),
            "n_agents": self.n_agents,
            "episode_limit": self.episode_limit,
        }

    def get_obs_size(self) -> int:
        return 4 + 3 * self.n_enemies

    def get_state_size(self) -> int:
        return 4 * (self.n_agents + self.n_enemies)

    def get_total_actions(self) -> int:
        return self.n_actions

    def get_obs(self) -> list[np.ndarray]:
        """Return the observation of each agent; zeros of dead ones."""
        return [self.get_obs_agent(agent) for agent in range(self.n_agents)]

    def get_obs_agent(self, agent_id: int) -> np.ndarray:
        unit = self.agents[agent_id]
        values = np.zeros(self.get_obs_size(), np.float32)
        if unit.health > 0:
            values[:4] = unit.pos.x / _SIDE, unit.pos.y / _SIDE, unit.health / unit.health_max, unit.unit_type / 10
            for i, enemy in self.enemies.items():
                if enemy.health > 0 and self._distance(unit, enemy) <= 9:
                    away = (enemy.pos.x - unit.pos.x, enemy.pos.y - unit.pos.y)
                    values[4 + 3 * i : 7 + 3 * i] = away[0] / 9, away[1] / 9, enemy.health / enemy.health_max
        return values

    def get_state(self) -> np.ndarray:
        """Return the global state, float32."""
        units = [*self.agents.values(), *self.enemies.values()]
        rows = [
            (unit.pos.x / _SIDE, unit.pos.y / _SIDE, unit.health / unit.health_max, unit.unit_type / 10)
            if unit.health > 0
            else (0.0, 0.0, 0.0, 0.0)
            for unit in units
        ]
        return np.array(rows, np.float32).reshape(-1)

    @staticmethod
    def _distance(unit: Any, other: Any) -> float:
        return float(np.hypot(unit.pos.x - other.pos.x, unit.pos.y - other.pos.y))

    def get_avail_actions(self) -> list[list[int]]:
        return [self.get_avail_agent_actions(agent) for agent in range(self.n_agents)]

    def get_avail_agent_actions(self, agent_id: int) -> list[int]:
        """Return a 1 for each action that an agent may take."""
        unit = self.agents[agent_id]
        if unit.health <= 0:
            return [1] + [0] * (self.n_actions - 1)
        moves = [int(self._inside(unit, step)) for step in _MOVES.values()]
        shots = [int(enemy.health > 0 and self._distance(unit, enemy) <= 6) for enemy in self.enemies.values()]
        return [0, 1, *moves, *shots]

    @staticmethod
    def _inside(unit: Any, step: tuple[float, float]) -> bool:
        return bool(0 <= unit.pos.x + step[0] <= _SIDE and 0 <= unit.pos.y + step[1] <= _SIDE)

    def step(self, actions: Any) -> tuple[float, bool, dict[str, Any]]:
        """Step the battle; return reward, whether the episode has ended, and an info."""
        chosen = [int(action) for action in actions]
        for agent, action in enumerate(chosen):
            assert self.get_avail_agent_actions(agent)[action] == 1, f"Agent {agent} cannot perform action {action}"
        if self.lose_connection:
            self.lose_connection = False
            self.full_restart()
            return 0, True, {}
        self._episode_steps += 1
        before = sum(enemy.health for enemy in self.enemies.values())
        self._fight(chosen)
        damage = before - sum(enemy.health for enemy in self.enemies.values())
        reward: float = 0.0 if self.reward_sparse else damage
        dead = [sum(unit.health <= 0 for unit in team.values()) for team in (self.agents, self.enemies)]
        self.death_tracker_ally[:] = [unit.health <= 0 for unit in self.agents.values()]
        info: dict[str, Any] = {"battle_won": False, "dead_allies": dead[0], "dead_enemies": dead[1]}
        terminated = False
        if dead[0] == self.n_agents or dead[1] == self.n_enemies:
            terminated = True
            self.battles_game += 1
            if dead[0] < self.n_agents:
                self.battles_won += 1
                info["battle_won"] = True
                reward = 1 if self.reward_sparse else reward + 200
            elif dead[1] < self.n_enemies and self.reward_sparse:
                reward = -1
        elif self._episode_steps >= self.episode_limit:
            terminated = True
            if self.continuing_episode:
                info["episode_limit"] = True
            self.battles_game += 1
            self.timeouts += 1
        if terminated:
            self._episode_count += 1
        return reward / (self.max_reward / 20), terminated, info

    def _fight(self, chosen: list[int]) -> None:
        for agent, action in enumerate(chosen):
            unit = self.agents[agent]
            if action in _MOVES:
                unit.pos.x += _MOVES[action][0]
                unit.pos.y += _MOVES[action][1]
            elif action >= 6:
                target = self.enemies[action - 6]
                target.health = max(0.0, target.health - 9.0)
        for enemy in self.enemies.values():
            living = [unit for unit in self.agents.values() if unit.health > 0]
            if enemy.health <= 0 or not living:
                continue
            near = min(living, key=lambda unit: self._distance(unit, enemy))
            if self._distance(near, enemy) <= 6:
                near.health = max(0.0, near.health - float(self._rng.integers(3, 8)))
            else:
                enemy.pos.x += 1.5 * float(np.sign(near.pos.x - enemy.pos.x))
                enemy.pos.y += 1.5 * float(np.sign(near.pos.y - enemy.pos.y))

    def seed(self) -> int | None:
        """Return the seed; it cannot be changed."""
        return self._seed

    def get_stats(self) -> dict[str, Any]:
        return {"battles_won": self.battles_won, "battles_game": self.battles_game, "timeouts": self.timeouts}

    def render(self, mode: str = "human") -> Any:
        """Return an image, with mode ``"rgb_array"``."""
        return np.full((64, 64, 3), self._episode_steps % 256, np.uint8) if mode == "rgb_array" else None

    def close(self) -> None:
        """Close StarCraft II."""
        if self._sc2_proc:
            self._sc2_proc.close()


class StarCraftCapabilityEnvWrapper:
    """Draw teams and positions for each episode.

    Args:
        **kwargs: of :class:`StarCraft2Env`, with ``capability_config``, which is changed.
    """

    def __init__(self, **kwargs: Any) -> None:
        self.distribution_config = kwargs["capability_config"]
        self.env_key_to_distribution_map: dict[str, Any] = {}
        for key, config in self.distribution_config.items():
            if key not in ("n_units", "n_enemies"):
                config["env_key"] = key
                config["n_units"] = self.distribution_config["n_units"]
                config["n_enemies"] = self.distribution_config["n_enemies"]
                kind = _Teams if key == "team_gen" else _Places
                self.env_key_to_distribution_map[key] = kind(config)
        self.env = StarCraft2Env(**kwargs)

    def reset(self) -> tuple[list[np.ndarray], np.ndarray]:
        drawn: dict[str, Any] = {}
        for distribution in self.env_key_to_distribution_map.values():
            drawn.update(distribution.generate())
        return self.env.reset(drawn)

    def __getattr__(self, name: str) -> Any:
        if hasattr(self.env, name):
            return getattr(self.env, name)
        raise AttributeError

    def step(self, actions: Any) -> tuple[float, bool, dict[str, Any]]:
        return self.env.step(actions)

    def get_env_info(self) -> dict[str, int]:
        return self.env.get_env_info()

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


class _Teams:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config, self.rng = config, np.random.default_rng()

    def generate(self) -> dict[str, Any]:
        config = self.config
        team = list(self.rng.choice(np.array(config["unit_types"]), size=config["n_units"], p=config["weights"]))
        random.shuffle(team)
        return {"team_gen": {"ally_team": team, "enemy_team": team, "id": 0}}


class _Places:
    """Draw positions; the draws are those of an object inside, as in the library."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.pos_generator = SimpleNamespace(config=config, rng=np.random.default_rng())

    def generate(self) -> dict[str, Any]:
        n = self.pos_generator.config["n_units"]
        return {"ally_start_positions": {"item": self.pos_generator.rng.uniform(4, 15, size=(n, 2)), "id": 0}}


DOUBLE = Double(
    dists={"SMACv2": "1.0.0"},
    files={
        "smacv2/__init__.py": "",
        "smacv2/env/__init__.py": f"from {__name__} import StarCraft2Env, StarCraftCapabilityEnvWrapper\n",
        "smacv2/env/starcraft2/maps/smac_maps.py": f"from {__name__} import get_smac_map_registry\n",
    },
)
