"""Public names of tensordict that not every supported version has in the same place.

No other module of steppe imports these names from tensordict. Each is imported from where all versions of the range in
pyproject.toml have it.
"""

from __future__ import annotations

from tensordict.nn.probabilistic import InteractionType, interaction_type, set_interaction_type

__all__ = ["InteractionType", "interaction_type", "set_interaction_type"]
