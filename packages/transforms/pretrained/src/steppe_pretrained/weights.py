"""Weights of pretrained networks: download with a checksum, and a cache."""

from __future__ import annotations

import hashlib
import http.client
import os
import pickle
import re
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from steppe.errors import SpecError, SteppeError

__all__ = ["R3M", "VIP", "WeightsFile", "WeightsNotFound", "convnet_weights", "fetch", "of_torchvision"]

_BLOCK = 2**20


class WeightsNotFound(SteppeError, FileNotFoundError):
    """A file of weights is neither in the cache nor can it be downloaded, or it is damaged.

    >>> from pathlib import Path
    >>> from steppe_pretrained import R3MTransform
    >>> Path("r3m_18.pt").write_bytes(b"half a download")
    15
    >>> Path("r3m_18.pt.sha256").write_text("0123")  # the checksum of the first download
    4
    >>> R3MTransform("resnet18", download=True, download_path=".")
    Traceback (most recent call last):
        ...
    steppe_pretrained.weights.WeightsNotFound: r3m_18.pt is not the file that was published: its SHA-256 is ...
    """


@dataclass(frozen=True)
class WeightsFile:
    """A file of weights.

    Attributes:
        url: where it is published.
        name: its name in the cache.
        checksum: SHA-256, or its first characters, in hexadecimal. ``None``: its publishers give none. The checksum of
            the first download is then kept beside it, and the file is refused if it changes.
    """

    url: str
    name: str
    checksum: str | None = None


_BASE = "https://pytorch.s3.amazonaws.com/models/rl"

#: The weights of R3M, by the name of their network.
R3M = {f"resnet{size}": WeightsFile(f"{_BASE}/r3m/r3m_{size}.pt", f"r3m_{size}.pt") for size in (18, 34, 50)}
#: The weights of VIP, by the name of their network.
VIP = {"resnet50": WeightsFile(f"{_BASE}/vip/model.pt", "vip_50.pt")}


def of_torchvision(weights: Any, network: str) -> WeightsFile:
    """Return the file of weights of torchvision; its name contains the checksum.

    Args:
        weights: a member of ``torchvision.models.ResNet50_Weights`` and the like, or its name: ``"IMAGENET1K_V1"``.
        network: the name of the network.

    Raises:
        SpecError: the network has no weights of this name.
    """
    from torchvision import models

    if isinstance(weights, str):
        known = models.get_model_weights(network)
        if weights not in known.__members__:
            raise SpecError(
                f"download={weights!r}: torchvision has the weights {list(known.__members__)} for {network!r}."
            )
        weights = known[weights]
    name = str(weights.url).rpartition("/")[2]
    found = re.search(r"-([0-9a-f]{8,})\.", name)
    return WeightsFile(str(weights.url), name, found[1] if found else None)


def fetch(file: WeightsFile, folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of a file of weights, and download it if the cache does not have it.

    A download is complete, or it leaves no file.

    Args:
        file: the file.
        folder: the cache. ``None``: that of ``torch.hub``, ``$TORCH_HOME/hub/checkpoints``.

    Raises:
        WeightsNotFound: there is no network, or the checksum is another one.
    """
    cache = Path(torch.hub.get_dir(), "checkpoints") if folder is None else Path(folder)
    path, noted = cache / file.name, cache / f"{file.name}.sha256"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _download(file, path)
        return path
    expected = file.checksum or (noted.read_text().strip() if noted.exists() else None)
    if expected is not None and not (found := _checksum(path)).startswith(expected):
        raise WeightsNotFound(
            f"{path} is not the file that was published: its SHA-256 is {found}, expected {expected}. Remove it, and "
            "it is downloaded again."
        )
    return path


def _download(file: WeightsFile, path: Path) -> None:
    digest = hashlib.sha256()
    handle, partial = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as target:
            try:
                request = urllib.request.Request(file.url, headers={"User-Agent": "steppe"})
                with urllib.request.urlopen(request, timeout=60) as source:
                    while block := source.read(_BLOCK):
                        digest.update(block)
                        target.write(block)
                    expected = source.headers.get("Content-Length")
            except (OSError, http.client.HTTPException) as error:  # OSError: URLError is one
                reason = str(getattr(error, "reason", error)).strip()
                raise WeightsNotFound(
                    f"The weights {file.name!r} are not in {path.parent}, and {file.url} cannot be read ({reason}). "
                    f"Download this file elsewhere and put it at {path}."
                ) from error
            size = target.tell()
        found = digest.hexdigest()
        if expected is not None and size != int(expected):
            raise WeightsNotFound(f"{file.url} ended after {size} of {expected} bytes. Try again.")
        if file.checksum is not None and not found.startswith(file.checksum):
            raise WeightsNotFound(
                f"What {file.url} returned is not the file that was published: its SHA-256 is {found}, expected "
                f"{file.checksum}."
            )
        path.with_name(f"{path.name}.sha256").write_text(f"{found}\n")
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while block := source.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def convnet_weights(path: Path, entry: str | None = None) -> dict[str, torch.Tensor]:
    """Read the weights of a ResNet from a file; nothing in the file is executed.

    Args:
        path: the file.
        entry: the entry of the file that has the weights of the whole model, whose network is ``module.convnet``.
            ``None``: the file has the weights of the network alone.

    Raises:
        SpecError: the file has no such weights.
        WeightsNotFound: the file is damaged, or it is another file.
    """
    try:
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
        # Without torch's text, which suggests to execute what is in the file.
        raise WeightsNotFound(
            f"{path} cannot be read as weights ({type(error).__name__}), so it is damaged or another file. Remove it, "
            "and it is downloaded again."
        ) from None
    if entry is None:
        return dict(loaded)
    if not isinstance(loaded, Mapping) or entry not in loaded:
        found = list(loaded)[:5] if isinstance(loaded, Mapping) else type(loaded).__name__
        raise SpecError(f"{path} has no entry {entry!r}, found {found}.")
    prefix = "module.convnet."
    weights = {name.removeprefix(prefix): value for name, value in loaded[entry].items() if name.startswith(prefix)}
    if not weights:
        raise SpecError(f"{path} has no weights {prefix}*, found {list(loaded[entry])[:5]}.")
    return weights
