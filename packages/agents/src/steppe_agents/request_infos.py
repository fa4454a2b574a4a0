"""RequestInfos: the infos of requests, validated, with a row for each episode or lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict

from steppe.collectors import AgentDeclarations
from steppe.errors import InfoError, SpecError
from steppe.specs import Composite, make_composite_from_td
from steppe_agents.agent_infos import Infos, agent_infos, as_infos, check_infos
from steppe_agents.runners import Runner

__all__ = ["RequestInfos"]


class RequestInfos:
    """Validate the infos of requests, and return them with a row for each episode or lane.

    What neither the agent nor the environment declares, the first request decides for later ones.

    Args:
        declarations: the declarations of the agent.
        env_info_spec: the spec of the environment, or of its batch.
        runner: has the lanes, and infers the infos of environments that declare none.

    Attributes:
        env_info_spec: the info of one environment.
    """

    def __init__(self, declarations: AgentDeclarations, env_info_spec: Composite, runner: Runner) -> None:
        self._declarations, self._runner = declarations, runner
        #: The spec of the infos in the first request, which later ones must have if the agent declares none.
        self._first_infos: Composite | None = None
        self.env_info_spec = _spec_of_row(env_info_spec)

    def of_request(
        self, n_episodes: int | None, agent_info: Infos | None, env_info: Infos | None
    ) -> tuple[TensorDict | None, TensorDict | None, torch.Size]:
        """Return the infos of agents and environments with a row for each episode, and the shape of the request.

        Raises:
            InfoError: an info lacks an entry, or has an unknown one.
            SpecError: numbers of rows, shapes or dtypes do not fit.
        """
        agents = self._agent_infos(agent_info, "The request")
        given = agents if agent_info is not None else None
        envs = self._env_infos(env_info)
        shape = _shape(n_episodes, given, envs)
        if self._infer_specs(given, envs):
            envs = self._env_infos(env_info)
            shape = _shape(n_episodes, given, envs)
        return _rows_of(agents, shape), _rows_of(envs, shape), shape

    def of_slice(self, agent_info: Infos) -> TensorDict | None:
        """Return the ``agent_info`` of a slice with a row for each lane."""
        infos = self._of_lanes(self._agent_infos(agent_info, "The slice"), "agent_info")
        self._infer_specs(infos, None)
        return infos

    def of_reset(self, kwargs: Mapping[str, Any]) -> tuple[TensorDict | None, TensorDict | None]:
        """Return the infos of agents and environments with a row for each lane.

        Args:
            kwargs: the arguments of a reset, of which this takes ``agent_info`` and ``env_info``.
        """
        agents = self._of_lanes(self._agent_infos(kwargs.get("agent_info"), "The reset"), "agent_info")
        envs = self._of_lanes(self._env_infos(kwargs.get("env_info")), "env_info")
        if self._infer_specs(agents if kwargs.get("agent_info") is not None else None, envs):
            envs = self._of_lanes(self._env_infos(kwargs["env_info"]), "env_info")
        return agents, envs

    def _agent_infos(self, infos: Infos | None, label: str) -> TensorDict | None:
        """Return the ``agent_info`` of a request, validated; see :func:`~steppe_agents.agent_infos.agent_infos`."""
        return agent_infos(self._declarations, infos, label, self._first_infos)

    def _env_infos(self, env_info: Infos | None) -> TensorDict | None:
        """Return the ``env_info`` of a request, validated with the spec of the environment or of the first request.

        See :meth:`_infer_specs` for the first request.
        """
        if env_info is None:
            return None
        infos = as_infos(env_info, self.env_info_spec)
        if not self.env_info_spec.is_empty():
            nested = sorted(str(name) for name, child in self.env_info_spec.items() if isinstance(child, Composite))
            if nested:
                raise SpecError(f"env_info is flat, one value for each name, but the env_info_spec nests {nested}.")
            check_infos("env_info", infos, self.env_info_spec, "the env_info_spec of the environment")
        return infos

    def _infer_specs(self, agents: TensorDict | None, envs: TensorDict | None) -> bool:
        """Let the infos of the first request decide about those of later ones, if nothing declares them.

        This is called after the numbers of rows were checked, because a request that is refused decides nothing.

        Returns:
            Whether the ``env_info_spec`` was inferred. The shape of a value is known then, so a dict may hold a table,
            and the infos must be read again.

        Raises:
            InfoError: the environment takes no ``env_info``.
            SpecError: the values do not suit the environment.
        """
        if agents is not None and self._first_infos is None:
            self._first_infos = make_composite_from_td(agents.reshape(-1)[0], unsqueeze_null_shapes=False)
        if envs is None or not self.env_info_spec.is_empty():
            return False
        row: dict[str, Any] = dict(envs.reshape(-1)[0].clone().items())
        nested = sorted(name for name, value in row.items() if not isinstance(value, torch.Tensor))
        if nested:
            raise SpecError(f"env_info is flat, one value for each name, but the request nests {nested}.")
        spec = _spec_of_row(self._runner.infer_env_info(row))
        if spec.is_empty():
            raise InfoError(
                f"The environment takes no env_info, found {sorted(row)}. In an environment of your "
                "own write self.env_info_spec = Composite(name=Unbounded(shape, dtype=...)). GymEnv takes options of "
                "reset, or attributes with env_info_to='attributes'."
            )
        self.env_info_spec = spec
        return True

    def _of_lanes(self, infos: TensorDict | None, name: str) -> TensorDict | None:
        """Return infos with a row for each lane. A single row is expanded to all lanes."""
        if infos is None:
            return None
        n = self._runner.n_lanes
        if infos.batch_size.numel() not in (1, n):
            raise SpecError(f"{name} has {infos.batch_size.numel()} rows, but there are {n} lanes.")
        return infos.reshape(-1).expand(n).clone()


def _spec_of_row(spec: Composite) -> Composite:
    """Return the spec of one row of a batch.

    The spec of a single environment is returned unchanged.
    """
    return spec[0] if len(spec.shape) else spec


def _shape(n_episodes: int | None, agents: TensorDict | None, envs: TensorDict | None) -> torch.Size:
    """Return the batch size of a request.

    The shapes of both infos are broadcast. Without infos it is ``[n_episodes]``.
    """
    infos = {"agent_info": agents, "env_info": envs}
    shapes = {name: rows.batch_size for name, rows in infos.items() if rows is not None}
    if n_episodes is not None and (isinstance(n_episodes, bool) or not isinstance(n_episodes, int)):
        raise SpecError(f"n_episodes must be a whole number >= 1, found {n_episodes!r}.")
    if n_episodes is not None and n_episodes < 1:
        raise SpecError(f"A request needs at least one row, found n_episodes={n_episodes}.")
    if not shapes:
        if n_episodes is None:
            raise SpecError(
                "The number of episodes is unknown: pass n_episodes=, or agent_info= or env_info= with a row for each "
                "episode."
            )
        return torch.Size([n_episodes])
    try:
        shape = torch.broadcast_shapes(*shapes.values())  # type: ignore[no-untyped-call]
    except RuntimeError:
        raise SpecError(
            f"agent_info and env_info do not broadcast: agent_info has {_counted(shapes['agent_info'])}, env_info has "
            f"{_counted(shapes['env_info'])}."
        ) from None
    if n_episodes is not None and shape.numel() != n_episodes:
        if shape.numel() == 1:
            return torch.Size([n_episodes])
        name = max(shapes, key=lambda each: shapes[each].numel())
        raise SpecError(f"{name} has {shapes[name].numel()} rows, but n_episodes is {n_episodes}.")
    if not shape.numel():
        raise SpecError(f"A request needs at least one row, found infos of shape {tuple(shape)}.")
    return torch.Size(shape) if shape else torch.Size([1])


def _counted(shape: torch.Size) -> str:
    return f"{shape[0]} rows" if len(shape) == 1 else f"shape {tuple(shape)}"


def _rows_of(infos: TensorDict | None, shape: torch.Size) -> TensorDict | None:
    return None if infos is None else infos.expand(shape).clone().reshape(-1)
