"""Lets Melting Pot be imported where TensorFlow, which its substrates do not use, is not installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("meltingpot") is not None and find_spec("tensorflow") is None:
    # Workers are given this path, too.
    sys.path.append(str(Path(__file__).parent / "without_tensorflow"))
