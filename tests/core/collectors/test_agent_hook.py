"""Policies that declare infos or a state, without and with the package that steps them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from steppe import Collector, Composite, Unbounded
from steppe.collectors import AgentDeclarations, agent_hook
from steppe.errors import ClassNotFound
from steppe_testing import CountingEnv


class Recurrent:
    """Declares a state, and acts at random."""

    agent_state_spec = Composite(steps=Unbounded((), dtype=torch.int64))

    def __call__(self, tensordict: Any) -> Any:
        tensordict.set("action", torch.eye(3, dtype=torch.bool)[torch.randint(3, tensordict.batch_size)])
        return tensordict.set(("next", "agent_state", "steps"), tensordict["agent_state", "steps"] + 1)


def test_declarations_of_a_policy():
    declarations = AgentDeclarations.of(Recurrent())
    assert declarations.names == ["agent_state_spec"]
    assert declarations.policy_name == "Recurrent"
    assert AgentDeclarations.of(None).names == []


def test_error_names_the_missing_package(monkeypatch):
    def missing(kind: str, name: str) -> Any:
        raise ClassNotFound(f"No installed package has the class {name!r}. pip install 'steppe[agents]'.")

    monkeypatch.setattr(agent_hook, "find_class", missing)
    text = r"Collector: the policy Recurrent declares agent_state_spec, .*steppe-agents.*steppe\[agents\]"
    with pytest.raises(ClassNotFound, match=text):
        Collector(CountingEnv(4), Recurrent(), frames_per_batch=4)
    Collector(CountingEnv(4), frames_per_batch=4).shutdown()
