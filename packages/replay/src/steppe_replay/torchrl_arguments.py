"""Arguments of TorchRL's replay buffers that choose nothing here, and those of features that do not exist here."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from steppe.arguments import ignored_argument, unknown_argument
from steppe.errors import NotSupported

__all__ = ["check_others"]

#: The values that choose what happens here, which need no word.
_AS_HERE: dict[str, tuple[Any, ...]] = {
    "sync": (True,),
    "service_backend": ("direct",),
    "transport": ("auto", "direct"),
    "cleanup_memmap": (True,),
}
_WITHOUT_EFFECT = {
    "compilable": "nothing here is compiled",
    "compile": "indices are computed with numpy",
    "use_gpu": "indices are computed on the CPU",
    "sampler_device": "priorities are kept on the CPU",
    "device": "priorities are kept on the CPU",
    "delayed_init": "storages allocate their memory when the first data comes",
    "checkpointer": "dumps() and loads() have one format for every storage",
    "sync": "there is no other way",
    "consolidated": "each entry is one array",
    "cleanup_memmap": "there is no temporary file",
    "auto_cleanup": "files in scratch_dir stay, and without scratch_dir the file has no name",
    "init_key": "beginnings are not marked; the data has is_init if its environment has an InitTracker",
    "step_key": "the ends of trajectories tell where they begin",
}
_REFUSED = {
    "sample_unit": "sample slices with SliceSampler(slice_len=...), and returns of several steps with "
    "MultiStepTransform",
    "consume_after_n_samples": "SamplerWithoutReplacement() returns each row once in an epoch, and empty() forgets all",
    "service_backend": "RayReplayBuffer of steppe-ray is a buffer in an actor",
    "service_backend_options": "RayReplayBuffer of steppe-ray is a buffer in an actor",
    "transport": "shared=True lets processes write, and RayReplayBuffer of steppe-ray is a buffer in an actor",
    "transport_options": "RayReplayBuffer of steppe-ray is a buffer in an actor",
    "shared_init": "pass shared=True: processes that share a storage agree on its layout",
    "track_generations": "update a sample before later data is written, or use a larger storage",
    "pad_output": "sample, then steppe.split_trajectories",
    "fragmented": "sample, then steppe.split_trajectories",
}


def check_others(owner: type, others: Mapping[str, Any]) -> None:
    """Warn about arguments of TorchRL that choose nothing here, and refuse the others.

    Args:
        owner: the class that is constructed.
        others: the arguments that it does not have. Values that are None or False are taken.

    Raises:
        NotSupported: the argument is for a feature that does not exist here; the message says what to do instead.
        TypeError: there is no such argument.
    """
    name = owner.__name__
    for label, value in others.items():
        if label not in _WITHOUT_EFFECT and label not in _REFUSED:
            makers = [vars(base)["__init__"] for base in owner.__mro__[:-1] if "__init__" in vars(base)]
            own = dict.fromkeys(each for make in makers for each in signature(make).parameters)
            known = [each for each in own if each not in ("self", "args", "kwargs", "others")]
            raise unknown_argument(name, label, known)
        if value is None or value is False or value in _AS_HERE.get(label, ()):
            continue
        if label in _REFUSED:
            raise NotSupported(f"{name}: {label}={value!r} does not exist here: {_REFUSED[label]}.")
        ignored_argument(name, label, _WITHOUT_EFFECT[label])
