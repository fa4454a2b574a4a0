"""Actors that draw an action and its log-probability in few operations."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from tensordict.nn import (
    NormalParamExtractor,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictModuleBase,
)
from torch import distributions

from steppe.collectors import Draw, Drawing
from steppe.envs import EnvBase, ExplorationType
from steppe.errors import ActionError, PolicyError
from steppe.specs import Spec
from steppe_agents.fused_draws import categorical, normal, one_hot

__all__ = ["CategoricalActor", "NormalActor"]


class _FusedActor(ProbabilisticTensorDictSequential):
    """A net, and a draw from the distribution that it describes."""

    _parameters_of: ClassVar[list[str]]
    _continuous: ClassVar[bool]
    _choice_form: str | None = None
    """The ``Spec.choice_form`` of the actions that the actor writes; None for continuous ones."""

    def __init__(
        self,
        module: Any,
        in_keys: Any,
        out_keys: Any,
        draw: Draw,
        distribution_class: Any,
        return_log_prob: bool,
        log_prob_key: Any,
        default_interaction_type: ExplorationType,
    ) -> None:
        names: list[Any] = list(self._parameters_of)
        if isinstance(module, TensorDictModuleBase):
            keys = names if in_keys is None else list(in_keys)
        else:
            keys = names
            module = TensorDictModule(self._net(module), ["observation"] if in_keys is None else list(in_keys), keys)
        key = "action" if not out_keys else out_keys[0]
        drawing = Drawing(
            dict(zip(names, keys, strict=True)),
            [key],
            draw=draw,
            distribution_class=distribution_class,
            return_log_prob=return_log_prob,
            log_prob_key=log_prob_key,
            default_interaction_type=default_interaction_type,
        )
        super().__init__(module, drawing)
        self.action_key = key

    def _net(self, module: Any) -> Any:
        return module

    def check_env(self, env: EnvBase) -> None:
        """Refuse an environment with other actions; rollouts and collectors ask before they begin.

        Raises:
            ActionError: its actions are of the kind that another actor is for.
        """
        key = self.action_key
        spec = env.full_action_spec.get(key, None)
        if getattr(spec, "dtype", None) is None:
            return  # it writes no action of this environment
        form = spec.choice_form
        continuous = spec.dtype.is_floating_point and form is None
        if continuous is not self._continuous:
            kinds = {True: "continuous", False: "discrete"}
            raise ActionError(
                f"{type(self).__name__} draws {kinds[self._continuous]} actions, and the action {key!r} of "
                f"{type(env).__name__} is {kinds[continuous]}: {spec}. {_fitting(spec, continuous)}"
            )
        written = self._choice_form
        if written is not None and form is not None and form != written:
            one_hot = written == "one_hot"
            raise ActionError(
                f"{type(self).__name__} with one_hot={one_hot} writes actions of "
                f"{'OneHot' if one_hot else 'Categorical'}, and the action {key!r} of {type(env).__name__} is {spec}. "
                f"{_fitting(spec, continuous)}"
            )


def _fitting(spec: Spec, continuous: bool) -> str:
    """Which actor draws such actions."""
    if continuous:
        k = spec.shape[-1] if spec.shape else 1
        return f"NormalActor(module) draws such actions; its module returns {2 * k} numbers, means and deviations."
    if spec.choice_form in ("one_hot", "categorical"):
        one_hot = spec.choice_form == "one_hot"
        arguments = "module" if one_hot else "module, one_hot=False"
        where = "" if one_hot or not spec.shape else f" for each of {tuple(spec.shape)}"
        return f"CategoricalActor({arguments}) draws such actions; its module returns {spec.space.n} logits{where}."
    return "No actor of steppe draws such actions: make one of a ProbabilisticTensorDictSequential."


class CategoricalActor(_FusedActor):
    """A policy of discrete actions, which draws sooner than one made of ``torch.distributions``.

    It is a ``ProbabilisticTensorDictSequential`` (``get_dist``, ``log_prob``, ...), as losses expect one; only random
    samples without gradients are drawn another way: from the same distribution, with other random numbers.

    Args:
        module: a TensorDictModule that writes the logits; or a function of observations that returns them ``[*B, n]``.
        in_keys: where the logits are, ``["logits"]``; for a function, what it reads, ``["observation"]``.
        out_keys: where the action goes, ``["action"]``.
        one_hot: write one-hot actions ``[*B, n]``, int64, which a OneHot describes; otherwise categories ``[*B]``, for
            a Categorical.
        return_log_prob: write the log-probability too, ``[*B]``.
        log_prob_key: where it goes; ``"action_log_prob"`` by default.
        default_interaction_type: what to do where nobody says, ``set_exploration_type``.
    """

    _parameters_of: ClassVar[list[str]] = ["logits"]
    _continuous = False

    def __init__(
        self,
        module: Any,
        in_keys: Any = None,
        out_keys: Any = None,
        *,
        one_hot: bool = True,
        return_log_prob: bool = True,
        log_prob_key: Any = None,
        default_interaction_type: ExplorationType = ExplorationType.RANDOM,
    ) -> None:
        draw, made = (_one_hot, _OneHot) if one_hot else (categorical, distributions.Categorical)
        super().__init__(module, in_keys, out_keys, draw, made, return_log_prob, log_prob_key, default_interaction_type)
        self._choice_form = "one_hot" if one_hot else "categorical"


class _OneHot(distributions.OneHotCategorical):
    """Samples of the dtype that actions have."""

    def sample(self, sample_shape: Any = ()) -> torch.Tensor:
        drawn: torch.Tensor = super().sample(torch.Size(sample_shape))  # type: ignore[no-untyped-call]
        return drawn.long()

    @property
    def mode(self) -> torch.Tensor:
        return super().mode.long()

    @property
    def deterministic_sample(self) -> torch.Tensor:
        """The likeliest category."""
        return self.mode


def _one_hot(scored: bool, logits: torch.Tensor) -> Any:
    found = one_hot(scored, logits)
    return found and (found[0].long(), found[1])


class NormalActor(_FusedActor):
    """A policy of continuous actions from independent normal distributions; see :class:`CategoricalActor`.

    Args:
        module: a TensorDictModule that writes means and standard deviations; or a function of observations that returns
            a tensor ``[*B, 2 * k]``, of which a ``NormalParamExtractor`` makes both.
        in_keys: where they are, ``["loc", "scale"]``; for a function, what it reads, ``["observation"]``.
        out_keys: where the action goes ``[*B, k]``, ``["action"]``.
        return_log_prob: write the log-probability too, ``[*B]``.
        log_prob_key: where it goes; ``"action_log_prob"`` by default.
        default_interaction_type: what to do where nobody says, ``set_exploration_type``.
    """

    _parameters_of: ClassVar[list[str]] = ["loc", "scale"]
    _continuous = True

    def __init__(
        self,
        module: Any,
        in_keys: Any = None,
        out_keys: Any = None,
        *,
        return_log_prob: bool = True,
        log_prob_key: Any = None,
        default_interaction_type: ExplorationType = ExplorationType.RANDOM,
    ) -> None:
        super().__init__(
            module, in_keys, out_keys, normal, _Normal, return_log_prob, log_prob_key, default_interaction_type
        )

    def _net(self, module: Any) -> Any:
        return torch.nn.Sequential(module, _LocAndScale())


class _LocAndScale(NormalParamExtractor):
    """Makes means and standard deviations of ``[*B, 2 * k]`` numbers."""

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = tensors[0].shape[-1]
        if n % 2:
            raise PolicyError(
                "A NormalActor takes a mean and a standard deviation for each number of an action from its module, so "
                f"2 * k numbers for actions of k; found {n}. For a linear layer: nn.Linear(..., 2 * "
                "env.action_spec.shape[-1])."
            )
        found: tuple[torch.Tensor, ...] = super().forward(*tensors)
        return found


class _Normal(distributions.Independent):  # type: ignore[type-arg]
    """Independent normal numbers; the last dimension is one event."""

    def __init__(self, loc: torch.Tensor, scale: torch.Tensor) -> None:
        super().__init__(distributions.Normal(loc, scale), 1)

    @property
    def deterministic_sample(self) -> torch.Tensor:
        """The mean."""
        return self.mean
