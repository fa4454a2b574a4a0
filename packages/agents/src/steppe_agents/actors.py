"""CategoricalActor and NormalActor: policies with fast sampling.

They draw an action and its log-probability in few operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from tensordict import NestedKey
from tensordict.nn import (
    NormalParamExtractor,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictModuleBase,
)
from torch import distributions

from steppe.collectors import Draw
from steppe.envs import EnvBase, ExplorationType
from steppe.errors import ActionError, PolicyError
from steppe.specs import Spec
from steppe_agents.fused_draws import FusedSampling, categorical, normal, one_hot

__all__ = ["CategoricalActor", "NormalActor"]


_Net = Callable[..., Any]
_Keys = Sequence[NestedKey] | None


class _FusedActor(ProbabilisticTensorDictSequential):
    """A network, followed by a sample from the distribution that it computes."""

    _parameters_of: ClassVar[list[str]]
    _continuous: ClassVar[bool]
    _choice_form: str | None = None
    """The ``Spec.choice_form`` of the actions that the actor writes; None for continuous actions."""

    def __init__(
        self,
        module: _Net,
        in_keys: _Keys,
        out_keys: _Keys,
        draw: Draw,
        distribution_class: type[distributions.Distribution],
        return_log_prob: bool,
        log_prob_key: NestedKey | None,
        default_interaction_type: ExplorationType,
    ) -> None:
        names = list(self._parameters_of)
        keys: list[NestedKey]
        if isinstance(module, TensorDictModuleBase):
            keys = [*names] if in_keys is None else list(in_keys)
        else:
            keys = [*names]
            module = TensorDictModule(self._net(module), ["observation"] if in_keys is None else list(in_keys), keys)
        key = "action" if not out_keys else out_keys[0]
        sampling = FusedSampling(
            dict(zip(names, keys, strict=True)),
            [key],
            draw=draw,
            distribution_class=distribution_class,
            return_log_prob=return_log_prob,
            log_prob_key=log_prob_key,
            default_interaction_type=default_interaction_type,
        )
        super().__init__(module, sampling)
        self.action_key = key

    def _net(self, module: _Net) -> _Net:
        """Return the function that computes the parameters of the distribution."""
        return module

    def log_prob(self, *args: Any, **kwargs: Any) -> Any:
        """Return the log-probability ``[*B]`` of the actions in a TensorDict.

        Raises:
            ValueError: an action is none of the distribution, as in padded steps; leave these out.
        """
        try:
            return super().log_prob(*args, **kwargs)
        except ValueError as error:
            raise ValueError(
                f"{error}\nPadded steps have no action. Leave them out: actor.log_prob(data[mask]), with "
                "mask = trajectories.mask() or data['collector', 'mask']."
            ) from error

    def check_env(self, env: EnvBase) -> None:
        """Raise an error if the environment takes actions of another kind.

        Rollouts and collectors call this first.

        Args:
            env: the environment that will take the actions.

        Raises:
            ActionError: this actor is discrete and the action continuous, or vice versa; or the action has another
                encoding (one-hot or not).
        """
        key = self.action_key
        spec = env.full_action_spec.get(key, None)
        if getattr(spec, "dtype", None) is None:
            return  # the key is not an action of this environment
        form = spec.choice_form
        continuous = spec.dtype.is_floating_point and form is None
        if continuous is not self._continuous:
            kinds = {True: "continuous", False: "discrete"}
            raise ActionError(
                f"{type(self).__name__} draws {kinds[self._continuous]} actions, but the action {key!r} of "
                f"{type(env).__name__} is {kinds[continuous]}: {spec}. {_fitting(spec, continuous)}"
            )
        written = self._choice_form
        if written is not None and form is not None and form != written:
            one_hot = written == "one_hot"
            raise ActionError(
                f"{type(self).__name__} with one_hot={one_hot} writes actions of "
                f"{'OneHot' if one_hot else 'Categorical'}, but the action {key!r} of {type(env).__name__} is {spec}. "
                f"{_fitting(spec, continuous)}"
            )


def _fitting(spec: Spec, continuous: bool) -> str:
    """Return the sentence of the error that names the actor for a spec."""
    if continuous:
        k = spec.shape[-1] if spec.shape else 1
        return f"NormalActor(module) draws such actions; its module returns {2 * k} numbers, means and deviations."
    if spec.choice_form in ("one_hot", "categorical"):
        one_hot = spec.choice_form == "one_hot"
        arguments = "module" if one_hot else "module, one_hot=False"
        where = "" if one_hot or not spec.shape else f" for each of {tuple(spec.shape)}"
        return f"CategoricalActor({arguments}) draws such actions; its module returns {spec.space.n} logits{where}."
    return "No actor of steppe draws such actions: use a ProbabilisticTensorDictSequential."


class CategoricalActor(_FusedActor):
    """A policy for discrete actions with fast sampling.

    It is faster than a policy made of ``torch.distributions``. It is a ``ProbabilisticTensorDictSequential``, so losses
    can call ``get_dist`` and ``log_prob``. Random samples without gradients are from the same distribution as those of
    torch, with other random numbers.

    >>> import torch
    >>> from steppe import CategoricalActor, make_env
    >>> actor = CategoricalActor(torch.nn.Linear(4, 2))
    >>> make_env("gym:CartPole-v1").rollout(3, actor)["action_log_prob"].shape
    torch.Size([3])

    Args:
        module: a TensorDictModule that writes the logits; or a function of observations that returns them ``[*B, n]``.
        in_keys: the key of the logits (default: ``["logits"]``); for a function, the keys of its arguments (default:
            ``["observation"]``).
        out_keys: the key of the action (default: ``["action"]``).
        one_hot: write one-hot actions ``[*B, n]`` int64, for a OneHot spec; False writes categories ``[*B]``, for a
            Categorical spec.
        return_log_prob: write the log-probability ``[*B]`` too.
        log_prob_key: the key of the log-probability (default: ``"action_log_prob"``).
        default_interaction_type: the exploration type outside of ``set_exploration_type``.
    """

    _parameters_of: ClassVar[list[str]] = ["logits"]
    _continuous = False

    def __init__(
        self,
        module: _Net,
        in_keys: _Keys = None,
        out_keys: _Keys = None,
        *,
        one_hot: bool = True,
        return_log_prob: bool = True,
        log_prob_key: NestedKey | None = None,
        default_interaction_type: ExplorationType = ExplorationType.RANDOM,
    ) -> None:
        draw, made = (_one_hot, _OneHot) if one_hot else (categorical, distributions.Categorical)
        super().__init__(module, in_keys, out_keys, draw, made, return_log_prob, log_prob_key, default_interaction_type)
        self._choice_form = "one_hot" if one_hot else "categorical"


class _OneHot(distributions.OneHotCategorical):
    """A one-hot distribution with int64 samples, the dtype of one-hot actions."""

    def sample(self, sample_shape: Sequence[int] = ()) -> torch.Tensor:
        sample: torch.Tensor = super().sample(torch.Size(sample_shape))  # type: ignore[no-untyped-call]
        return sample.long()

    @property
    def mode(self) -> torch.Tensor:
        return super().mode.long()

    @property
    def deterministic_sample(self) -> torch.Tensor:
        """The most likely category."""
        return self.mode


def _one_hot(scored: bool, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None] | None:
    draw = one_hot(scored, logits)
    return draw and (draw[0].long(), draw[1])


class NormalActor(_FusedActor):
    """A policy for continuous actions from independent normal distributions.

    See :class:`CategoricalActor`.

    >>> import torch
    >>> from steppe import NormalActor, make_env
    >>> actor = NormalActor(torch.nn.Linear(3, 2))  # mean and scale of one action
    >>> data = make_env("gym:Pendulum-v1").rollout(5, actor)
    >>> data["action"].shape, data["action_log_prob"].shape
    (torch.Size([5, 1]), torch.Size([5]))

    Args:
        module: a TensorDictModule that writes means and standard deviations; or a function of observations that returns
            a tensor ``[*B, 2 * k]``, which a ``NormalParamExtractor`` splits into both.
        in_keys: the keys of both (default: ``["loc", "scale"]``); for a function, the keys of its arguments (default:
            ``["observation"]``).
        out_keys: the key of the action ``[*B, k]`` (default: ``["action"]``).
        return_log_prob: write the log-probability ``[*B]`` too.
        log_prob_key: the key of the log-probability (default: ``"action_log_prob"``).
        default_interaction_type: the exploration type outside of ``set_exploration_type``.
    """

    _parameters_of: ClassVar[list[str]] = ["loc", "scale"]
    _continuous = True

    def __init__(
        self,
        module: _Net,
        in_keys: _Keys = None,
        out_keys: _Keys = None,
        *,
        return_log_prob: bool = True,
        log_prob_key: NestedKey | None = None,
        default_interaction_type: ExplorationType = ExplorationType.RANDOM,
    ) -> None:
        super().__init__(
            module, in_keys, out_keys, normal, _Normal, return_log_prob, log_prob_key, default_interaction_type
        )

    def _net(self, module: Any) -> _Net:
        net: _Net = torch.nn.Sequential(module, _LocAndScale())
        return net


class _LocAndScale(NormalParamExtractor):
    """Convert ``[*B, 2 * k]`` numbers to means and standard deviations ``[*B, k]``."""

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = tensors[0].shape[-1]
        if n % 2:
            raise PolicyError(
                "A NormalActor takes a mean and a standard deviation for each number of an action from its module, so "
                f"2 * k numbers for actions of k; found {n}. For a linear layer: nn.Linear(..., 2 * "
                "env.action_spec.shape[-1])."
            )
        parameters: tuple[torch.Tensor, ...] = super().forward(*tensors)
        return parameters


class _Normal(distributions.Independent):  # type: ignore[type-arg]
    """Independent normal distributions; the last dimension is one event."""

    def __init__(self, loc: torch.Tensor, scale: torch.Tensor) -> None:
        super().__init__(distributions.Normal(loc, scale), 1)

    @property
    def deterministic_sample(self) -> torch.Tensor:
        """The mean of the distribution."""
        return self.mean
