"""TerminateTransform: terminate episodes by a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.errors import SpecError
from steppe.specs import union
from steppe.storage import TensorDictBuilder
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform, RowHooks

__all__ = ["TerminateTransform"]


class TerminateTransform(PlannedTransform):
    """Terminate an episode if a condition holds after a step.

    ``terminated`` and ``done`` become True at each level that has them; ``truncated`` and resets stay unchanged.

    >>> from steppe import TerminateTransform, TransformedEnv
    >>> from steppe_testing import CountingEnv
    >>> env = TransformedEnv(CountingEnv(max_steps=100), TerminateTransform(lambda td: td["observation"] >= 4))
    >>> data = env.rollout(50)
    >>> data.shape, data["next", "terminated"][-1]
    (torch.Size([4]), tensor([True]))

    Args:
        stop: function of the data of a step (``next``) that returns which episodes terminate: a bool, or a bool tensor
            whose leading dimensions match those of the done entries, such as ``[*B]`` or ``[*B, 1]``.
        write_done: set ``done`` too. Otherwise the environment is not reset.

    Raises:
        SpecError: ``stop`` is not a function, or returns a tensor of another shape at a step.
    """

    writes_done = True

    def __init__(self, stop: Callable[[TensorDictBase], bool | torch.Tensor], *, write_done: bool = True) -> None:
        if not callable(stop):
            raise SpecError(
                f"TerminateTransform: stop must be a function of a TensorDict, found {type(stop).__name__}."
            )
        super().__init__()
        self.stop = stop
        self.write_done = write_done

    def hooks(self, specs: EnvSpecs) -> Hooks:
        names = ("terminated", "done") if self.write_done else ("terminated",)
        keys = [group.key(name) for group in specs.groups for name in names if name in group.names]

        def step(_: object, following: TensorDictBase) -> TensorDictBase:
            flag = self._ends(following.copy())
            if flag is not None:
                for key in keys:
                    value = following.get(key)
                    following.set(key, value | self._shaped(flag, value))
            return following

        def bind(root: Any, following: Any) -> Any:
            # An environment without a batch size has one row.
            batch = self.container.batch_size
            columns = {key: array if batch else array[0, ...] for key, array in following.before.items()}
            build = TensorDictBuilder(union(specs.observation, specs.reward, specs.done), batch, device=specs.device)
            flags = [torch.from_numpy(columns[key]) for key in keys]

            def step_rows() -> bool:
                flag = self._ends(build({key: torch.from_numpy(array.copy()) for key, array in columns.items()}))
                if flag is None:
                    return False
                for value in flags:
                    value |= self._shaped(flag, value)
                return True

            return step_rows, None

        reads = union(specs.observation, specs.reward, specs.done).keys(include_nested=True, leaves_only=True)
        return Hooks(step=step, reads_root=False, rows=RowHooks(bind, reads=list(reads), writes=keys))

    def _ends(self, following: TensorDictBase) -> torch.Tensor | None:
        """Return which episodes end; None if none does."""
        flag = self.stop(following)
        if not isinstance(flag, torch.Tensor):
            flag = torch.as_tensor(flag, device=following.device)
        if flag.dtype is not torch.bool:
            flag = flag.bool()
        return flag if bool(flag if flag.numel() == 1 else flag.any()) else None

    @staticmethod
    def _shaped(flag: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        try:
            return flag.reshape(*flag.shape, *(1,) * (value.ndim - flag.ndim)).expand(value.shape)
        except RuntimeError:
            raise SpecError(
                f"TerminateTransform: stop must return a bool, or a bool tensor that broadcasts to "
                f"{tuple(value.shape)} from the front; found one of shape {tuple(flag.shape)}."
            ) from None
