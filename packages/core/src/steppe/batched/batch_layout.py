"""Reports of environments to their batch, and the layout of the batch that follows from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import NestedKey

from steppe.envs import ROOT_METHODS, EnvBase, writer_of_one
from steppe.errors import ArgumentError, NotSupported
from steppe.specs import OUTPUT_KINDS, SPEC_KINDS, Binary, Composite, Spec, union
from steppe.storage import no_storage_reason, split_loose
from steppe.workers import ItemError

__all__ = ["BatchLayout", "EnvReport", "make_envs", "report"]


@dataclass(frozen=True)
class EnvReport:
    """Specs, batch size, device and abilities of one environment, for its batch.

    Attributes:
        root_inputs: keys of the root that a step reads beside the action; None if the environment steps on TensorDicts
            and may read all of it.
        keys_read: see :attr:`EnvBase.keys_read`; without those that it only may read.
        passed_through: keys of states that it passes through, see :attr:`EnvBase.passed_through_keys`.
        copied_to_next: the keys in ``root_inputs`` that a step copies to ``next`` unchanged.
        reads_root: whether a step may read any entry of the root, the action included.
        flags_every_step: whether done entries may change in a step that ends no row.
        chooses_random_actions: whether it overrides ``rand_action``.
        overridden: see :attr:`EnvBase.overridden_methods`.
        action_masks: see :attr:`EnvBase.action_masks`.
    """

    specs: dict[str, Composite]
    env_info: Composite
    batch_size: tuple[int, ...]
    device: torch.device | None
    root_inputs: tuple[Any, ...] | None
    keys_read: tuple[Any, ...]
    passed_through: tuple[Any, ...]
    supports_set_state: bool
    chooses_random_actions: bool
    overridden: frozenset[str]
    action_masks: dict[NestedKey, NestedKey]
    copied_to_next: tuple[Any, ...] = ()
    reads_root: bool = False
    flags_every_step: bool = False

    def has_mask(self, key: NestedKey, mask_key: NestedKey) -> bool:
        """Return whether the specs have an action and an observation or state of these keys."""
        roots = [self.specs[kind].get(mask_key, None) for kind in ("observation", "state")]
        return self.specs["action"].get(key, None) is not None and any(leaf is not None for leaf in roots)


def report(env: EnvBase) -> EnvReport:
    """Return the report of an environment, with copies of its specs."""
    env.settle_reward_spec()
    writer = writer_of_one(env)
    layout = None if writer is None else writer.layout
    return EnvReport(
        specs={kind: env._full_spec(kind).clone() for kind in SPEC_KINDS},
        env_info=env.env_info_spec.clone(),
        batch_size=tuple(env.batch_size),
        device=env.device,
        root_inputs=None if layout is None else (*layout.root_inputs,),
        keys_read=(*env.state_keys, *(() if layout is None else layout.read_by_all)),
        passed_through=env.passed_through_keys,
        copied_to_next=() if layout is None else (*layout.copied_to_next,),
        reads_root=layout is not None and layout.reads_root,
        flags_every_step=layout is None or layout.flags_every_step,
        supports_set_state=env.supports_set_state,
        chooses_random_actions=env.chooses_random_actions,
        overridden=env.overridden_methods,
        action_masks=dict(env.action_masks),
    )


def make_envs(factories: list[Callable[[], Any]], first_row: int) -> list[EnvBase]:
    """Call each factory; if one raises, close the environments that were made.

    Args:
        factories: a factory for each row.
        first_row: the row of the first factory.

    Raises:
        ItemError: a factory raised, or returned something else than an environment.
    """
    envs: list[EnvBase] = []
    for row, make in enumerate(factories, first_row):
        try:
            env = make()
            if not isinstance(env, EnvBase):
                raise ArgumentError(
                    f"The factory of environment {row} returned {type(env).__name__}, not a steppe environment. "
                    "Wrap it first: for gymnasium GymWrapper(env), for other libraries see `steppe plugins`."
                )
            env.check_in_batch()
        except Exception as error:
            for made in envs:
                made.close(raise_if_closed=False)
            raise ItemError(row, "__init__") from error
        envs.append(env)
    return envs


class BatchLayout:
    """The layout of a batch: its specs, and the spec of one row of its storage.

    Args:
        reports: the report of each row.

    Attributes:
        alike: whether the specs of all environments are equal. Unequal specs are stacked.
        on_arrays: whether all environments write rows of arrays, so that none reads data at a reset.
        size: the batch size of each environment.
        specs: the batch's specs by kind, ``[n, *size]``.
        env_info: the batch's ``env_info_spec``.
        device: the device of all environments; None if they differ.
        row: the spec of one row of storage; None if specs differ from row to row, or stack unequal ones.
        loose: the specs of the entries that have no place in storage, such as text, by kind and key.
        masked: whether parts of a row can be reset, so that storage has masks too.
        keys_read: keys of the root that some environments read, see :attr:`EnvBase.keys_read`.
        passed_through: keys of states that some environments pass through, see :attr:`EnvBase.passed_through_keys`.
        action_masks: the masks of the actions of all environments.
        overridden: the methods that some environment overrides, see :attr:`EnvBase.overridden_methods`.
        makes_roots: those of them with which an environment decides what the root of its next step is.

    Raises:
        NotSupported: the environments have different batch sizes, different ``env_info_spec``, or different masks for
            the same entries.
    """

    def __init__(self, reports: list[EnvReport]) -> None:
        first = reports[0]
        for i, other in enumerate(reports):
            if other.batch_size != first.batch_size:
                raise NotSupported(
                    f"Environments 0 and {i} have batch sizes {first.batch_size} and {other.batch_size}: a batch "
                    "needs equal ones. Make a separate batch for each batch size."
                )
            if other.env_info != first.env_info:
                raise NotSupported(f"Environments 0 and {i} differ in env_info_spec, and a batch has one for all.")
        self.action_masks = {key: mask for report in reports for key, mask in report.action_masks.items()}
        for i, other in enumerate(reports):
            masks = other.action_masks
            if any(masks.get(key) != mask and other.has_mask(key, mask) for key, mask in self.action_masks.items()):
                raise NotSupported(
                    f"Environment {i} declares action_masks={masks}, and the batch has {self.action_masks}. A batch "
                    "has one mapping: declare the same masks, or name the entries differently."
                )
        n = len(reports)
        self.keys_read = tuple(dict.fromkeys(key for report in reports for key in report.keys_read))
        self.overridden = frozenset[str]().union(*(report.overridden for report in reports))
        self.makes_roots = self.overridden & ROOT_METHODS
        self.passed_through = tuple(dict.fromkeys(key for report in reports for key in report.passed_through))
        self.size = first.batch_size
        self.alike = all(other.specs == first.specs for other in reports[1:])
        self.on_arrays = all(report.root_inputs is not None for report in reports)
        if self.alike:
            self.specs = {kind: spec.expand(torch.Size((n, *spec.shape))) for kind, spec in first.specs.items()}
        else:
            stack: Any = torch.stack  # torch.stack accepts specs, but its stubs do not say so
            self.specs = {kind: stack([report.specs[kind] for report in reports], 0) for kind in SPEC_KINDS}
        self.env_info = first.env_info.expand(torch.Size((n, *first.env_info.shape)))
        devices = {report.device for report in reports}
        self.device = first.device if len(devices) == 1 else None
        done_keys = list(first.specs["done"].keys(include_nested=True, leaves_only=True))
        self.masked = bool(self.size) or not all(isinstance(key, str) for key in done_keys)
        fixed = self.alike or all(_shapes(report) == _shapes(first) for report in reports[1:])
        split = {kind: split_loose(spec) for kind, spec in first.specs.items()}
        row = self._row(first, {kind: kept.to("cpu") for kind, (kept, _) in split.items()}) if fixed else None
        self.row = row if row is not None and no_storage_reason(row) is None else None
        self.loose: dict[str, dict[Any, Spec]] = {kind: loose for kind, (_, loose) in split.items()}

    def _row(self, report: EnvReport, specs: dict[str, Composite]) -> Composite:
        size = torch.Size(self.size)
        root = union(*(specs[kind] for kind in ("observation", "state", "done", "action")))
        if self.masked:
            root = union(root, _masks(specs["done"]))
            root["_step"] = Binary(shape=size, dtype=torch.bool)
        if not report.env_info.is_empty():
            root["env_info"] = report.env_info.to("cpu")
        root["next"] = union(*(specs[kind] for kind in OUTPUT_KINDS))
        return root.to("cpu")


def _masks(spec: Composite) -> Composite:
    """A mask ``"_reset"`` beside each ``"done"``."""
    masks: dict[str, Any] = {}
    for name, child in spec.items():
        if isinstance(child, Composite):
            masks[name] = _masks(child)
        elif name == "done":
            masks["_reset"] = Binary(shape=child.shape, dtype=torch.bool)
    return Composite(masks, shape=spec.shape)


def _shapes(report: EnvReport) -> dict[str, Any]:
    """Return keys, types, shapes and dtypes of the specs. Rows share a storage if these are equal."""
    return {
        kind: {
            key: None if leaf is None else (type(leaf), leaf.shape, leaf.dtype)
            for key, leaf in spec.items(include_nested=True, leaves_only=True)
        }
        for kind, spec in report.specs.items()
    }
