"""A double of TensorFlow, which Melting Pot imports for its bots, and no substrate uses."""

from unittest.mock import MagicMock


def __getattr__(name: str) -> MagicMock:
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock(name=f"tensorflow.{name}")
