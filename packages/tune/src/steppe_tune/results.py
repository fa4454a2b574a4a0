"""What a tuning measures: settings, their speed, the cost of one environment, and the best setting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = ["EnvCost", "Kind", "Measured", "Setting", "Tuning"]

Kind: TypeAlias = Literal["one", "serial", "processes", "pool", "collector"]


@dataclass(frozen=True)
class Setting:
    """A way to step environments.

    >>> from steppe_tune import Setting
    >>> setting = Setting("processes", num_envs=8, num_processes=2, caller_share=True)
    >>> setting.code('"gym:CartPole-v1"')
    'env = ParallelEnv(8, "gym:CartPole-v1", num_processes=2, caller_share=True)'

    Attributes:
        kind: ``"one"`` environment, ``"serial"`` (SerialEnv), ``"processes"`` (ParallelEnv), ``"pool"``
            (AsyncEnvPool) or ``"collector"`` (AsyncBatchedCollector, only with a policy).
        num_envs: number of environments.
        num_processes: number of processes that share them, only for ``"processes"``.
        caller_share: whether the caller is one of these processes.
        threads: whether the pool, or the collector, has threads instead of processes.
        served: whether the policy of the collector acts in one place, instead of in each worker.
    """

    kind: Kind
    num_envs: int = 1
    num_processes: int = 1
    caller_share: bool = False
    threads: bool = False
    served: bool = False

    @property
    def label(self) -> str:
        """A short name, for tables."""
        if self.kind == "one":
            return "one environment"
        if self.kind == "serial":
            return f"SerialEnv({self.num_envs})"
        if self.kind == "processes":
            share = ", caller_share" if self.caller_share else ""
            processes = "1 process" if self.num_processes == 1 else f"{self.num_processes} processes"
            return f"ParallelEnv({self.num_envs}), {processes}{share}"
        where = "threads" if self.threads else "processes"
        if self.kind == "collector":
            return f"AsyncBatchedCollector({self.num_envs}), {where}, policy {'served' if self.served else 'in each'}"
        return f"AsyncEnvPool({self.num_envs}), {where}"

    def code(self, maker: str) -> str:
        """Return a line of Python that makes the environments.

        Args:
            maker: the id or the factory, as an expression: ``'"gym:Pendulum-v1"'``.
        """
        if self.kind == "one":
            return f"env = make_env({maker})" if maker.startswith('"') else f"env = {maker}()"
        if self.kind == "serial":
            return f"env = SerialEnv({self.num_envs}, {maker})"
        if self.kind == "processes":
            share = ", caller_share=True" if self.caller_share else ""
            return f"env = ParallelEnv({self.num_envs}, {maker}, num_processes={self.num_processes}{share})"
        backend = "threading" if self.threads else "multiprocessing"
        if self.kind == "collector":
            inference = "server" if self.served else "worker"
            return (
                f"collector = AsyncBatchedCollector([{maker}] * {self.num_envs}, policy, frames_per_batch=..., "
                f'inference="{inference}", backend="{backend}")'
            )
        return f'pool = AsyncEnvPool([{maker}] * {self.num_envs}, backend="{backend}")'

    @property
    def complexity(self) -> tuple[int, int, int]:
        """An order of settings: of two that are equally fast, the smaller one is simpler."""
        rank = {"one": 0, "serial": 1, "processes": 2, "pool": 4, "collector": 6}[self.kind]
        rank += self.caller_share or (self.kind in ("pool", "collector") and not self.threads)
        return (rank, self.num_processes, self.num_envs)


@dataclass(frozen=True)
class Measured:
    """The speed of a setting, in frames per second: the median of slices, which took turns with other settings.

    >>> from steppe_tune import Measured, Setting
    >>> measured = Measured(Setting("serial", num_envs=8), speed=50_000, low=48_000, high=52_000, slices=9)
    >>> measured.noise, measured.setting.label
    (0.04, 'SerialEnv(8)')

    Attributes:
        setting: the setting.
        speed: the median.
        low: the first quartile.
        high: the third quartile.
        slices: number of slices.
        seconds_to_start: seconds until the environments existed and had taken their first steps.
    """

    setting: Setting
    speed: float
    low: float
    high: float
    slices: int
    seconds_to_start: float = 0.0

    @property
    def noise(self) -> float:
        """Half of the distance of the quartiles, relative to the median."""
        return (self.high - self.low) / (2 * self.speed) if self.speed else 0.0


@dataclass(frozen=True)
class EnvCost:
    """What one environment costs in this process, in seconds.

    >>> from steppe_tune import EnvCost
    >>> EnvCost(frame=1e-5, step=1e-5, slow_step=4e-5, reset=1e-4).unevenness
    4.0

    Attributes:
        frame: a step and its share of the resets, in a rollout; for a library that steps several environments at once,
            of one of them.
        step: the median of single steps.
        slow_step: the 95th percentile of single steps.
        reset: the median of resets.
        making: the seconds that making the environment took.
        policy: one call of the policy for all environments of the batch; 0 without a policy.
        rows: how many environments the library steps at once: 1 for most.
        is_batch: whether the environment is a batch itself.
    """

    frame: float
    step: float
    slow_step: float
    reset: float
    making: float = 0.0
    policy: float = 0.0
    rows: int = 1
    is_batch: bool = False

    @property
    def unevenness(self) -> float:
        """How many times longer a slow step takes than a usual one."""
        return self.slow_step / self.step if self.step else 1.0


@dataclass(frozen=True)
class Tuning:
    """The result of :func:`steppe_tune.tune`.

    >>> from steppe_tune import EnvCost, Measured, Setting, Tuning
    >>> best = Measured(Setting("serial", num_envs=8), speed=50_000, low=48_000, high=52_000, slices=9)
    >>> cost = EnvCost(frame=1e-5, step=1e-5, slow_step=2e-5, reset=1e-4)
    >>> tuning = Tuning("gym:CartPole-v1", '"gym:CartPole-v1"', 2, cost, (best,), best)
    >>> round(tuning.limit), tuning.line
    (200000, 'env = SerialEnv(8, "gym:CartPole-v1")')

    Attributes:
        name: the id of the environment, or the name of the factory.
        maker: the expression that makes it, for :attr:`line`.
        cores: number of usable cores.
        cost: what one environment costs.
        measured: all settings that were measured, in the order of the measurement.
        best: the setting to use.
        reasons: sentences that say why.
        warnings: sentences about noise and about settings that were left out.
    """

    name: str
    maker: str
    cores: int
    cost: EnvCost
    measured: tuple[Measured, ...]
    best: Measured
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    @property
    def limit(self) -> float:
        """Frames per second if all cores only stepped environments: cores / cost of a frame."""
        return self.cores / self.cost.frame

    @property
    def line(self) -> str:
        """The line of Python that makes the environments with the best setting."""
        return self.best.setting.code(self.maker)
