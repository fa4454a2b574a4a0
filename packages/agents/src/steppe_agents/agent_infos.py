"""The infos of a request, validated against what the agent and the environment declare."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDict, TensorDictBase

from steppe.collectors import AgentFacts, as_infos
from steppe.errors import InfoError, SpecError
from steppe.specs import Composite

__all__ = ["agent_infos", "check_infos"]


def agent_infos(facts: AgentFacts, given: Any, asker: str) -> TensorDict | None:
    """Return the ``agent_info`` of a request, or the default of the agent; None if it takes none.

    Args:
        facts: what the agent declares.
        given: the argument ``agent_info``.
        asker: the subject of the error, such as ``"The request"``.

    Raises:
        InfoError: an entry is missing or unknown.
        SpecError: an entry has another shape or dtype.
    """
    if given is None:
        return facts.default_of(asker)
    infos = as_infos(given)
    if facts.info_spec is not None:
        check_infos("agent_info", infos, facts.info_spec, f"the agent_info_spec of {type(facts.policy).__name__}")
    return infos


def check_infos(name: str, infos: TensorDictBase, spec: Composite, whose: str) -> None:
    """Validate infos against the spec of one row.

    Raises:
        InfoError: an entry is missing or unknown.
        SpecError: one has another shape or dtype.
    """
    expected = {key if isinstance(key, str) else tuple(key) for key in spec.keys(True, True)}
    found = set(infos.keys(True, True))
    if expected != found:
        raise InfoError(
            f"{name} must have {sorted(map(str, expected))}, as {whose} says, found {sorted(map(str, found))}."
        )
    for key in found:
        leaf, value = spec[key], infos.get(key)
        if value.dtype != leaf.dtype:
            raise SpecError(f"{name}[{key!r}] must have dtype {leaf.dtype}, found {value.dtype}.")
        if tuple(value.shape[infos.batch_dims :]) != tuple(leaf.shape):
            raise SpecError(
                f"{name}[{key!r}] must have shape {tuple(leaf.shape)} in each row, found "
                f"{tuple(value.shape[infos.batch_dims :])}."
            )
