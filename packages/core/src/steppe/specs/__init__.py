"""Specs: what data looks like, and which values it may take."""

from __future__ import annotations

from .base import Spec as Spec
from .binary import Binary as Binary
from .boxes import BinaryBox as BinaryBox
from .boxes import BoxList as BoxList
from .boxes import CategoricalBox as CategoricalBox
from .boxes import ContinuousBox as ContinuousBox
from .boxes import DiscreteBox as DiscreteBox
from .composite import Composite as Composite
from .continuous import Bounded as Bounded
from .continuous import Unbounded as Unbounded
from .discrete import Categorical as Categorical
from .discrete import OneHot as OneHot
from .dtypes import numpy_to_torch_dtype_dict as numpy_to_torch_dtype_dict
from .dtypes import torch_to_numpy_dtype_dict as torch_to_numpy_dtype_dict
from .multi import MultiCategorical as MultiCategorical
from .multi import MultiOneHot as MultiOneHot
from .nontensor import NonTensor as NonTensor
from .choice import Choice as Choice
from .stacked import Stacked as Stacked
from .stacked_composite import StackedComposite as StackedComposite
