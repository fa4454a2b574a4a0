"""R3MTransform and VIPTransform: images as vectors of pretrained networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tensordict import NestedKey
from torch import nn

from steppe.errors import SpecError
from steppe.transforms import Compose
from steppe_tensor import CatTensors, ExcludeTransform, RenameTransform

from .embed_images import EmbedImages, make_resnet
from .weights import R3M, VIP, WeightsFile, convnet_weights, fetch, of_torchvision

__all__ = ["PretrainedTransform", "R3MTransform", "VIPTransform"]


class PretrainedTransform(Compose):
    """Base class of transforms that replace images by vectors of a pretrained network.

    Args:
        model_name: name of the network.
        in_keys: images, ``[*, H, W, 3]`` uint8. ``None``: ``["pixels"]``.
        out_keys: the vectors. ``None``: the default of the class, with numbers behind it if there are several.
        size: side of the images that the network sees.
        stack_images: write the vectors of all images as one entry, one after another.
        download: load weights: True for those of the model, or weights of torchvision, or their name, such as
            ``"IMAGENET1K_V1"``. Otherwise, weights are random; call :meth:`load_weights`, or ``load_state_dict``.
        download_path: folder of the files. ``None``: the cache of ``torch.hub``.
        tensor_pixels_keys: keep the images under these keys, as many as ``in_keys``.
        requires_grad: gradients flow through the network, which takes part in training.

    Attributes:
        network: the :class:`EmbedImages` among its transforms, which has the ``convnet``.

    Raises:
        SpecError: there is no such network, or the number of keys does not fit.
        WeightsNotFound: weights are neither in the cache nor can they be downloaded.
        LibraryMissing: torchvision is not installed.
    """

    #: The files of weights by the name of the network.
    files: ClassVar[Mapping[str, WeightsFile]] = {}
    #: The entry of such a file.
    entry: ClassVar[str] = ""
    default_key: ClassVar[str] = ""

    def __init__(
        self,
        model_name: str,
        in_keys: Sequence[NestedKey] | None = None,
        out_keys: Sequence[NestedKey] | None = None,
        size: int = 244,
        stack_images: bool = True,
        download: Any = False,
        download_path: str | None = None,
        tensor_pixels_keys: Sequence[NestedKey] | None = None,
        requires_grad: bool = False,
    ) -> None:
        name = type(self).__name__
        if model_name not in self.files:
            raise SpecError(f"{name}: model_name must be one of {list(self.files)}, found {model_name!r}.")
        images = ["pixels"] if in_keys is None else list(in_keys)
        joined = stack_images and len(images) > 1
        if not out_keys:
            single = stack_images or len(images) == 1
            out_keys = [self.default_key] if single else [f"{self.default_key}_{i}" for i in range(len(images))]
        if len(out_keys) != (1 if joined else len(images)):
            raise SpecError(
                f"{name}: {len(images)} images with stack_images={stack_images} are {1 if joined else len(images)} "
                f"entries, found out_keys={list(out_keys)}."
            )
        if tensor_pixels_keys and len(tensor_pixels_keys) != len(images):
            raise SpecError(f"{name}: tensor_pixels_keys={list(tensor_pixels_keys)} must be as many as {images}.")
        net, vector_size = self._network(model_name)
        vectors = [(f"{self.default_key}_{i}",) for i in range(len(images))] if joined else list(out_keys)
        network = EmbedImages(net, vector_size, size, images, vectors, requires_grad=requires_grad)
        parts: list[Any] = [network]
        if joined:
            parts.append(CatTensors(vectors, out_keys[0], dim=-1))
        if tensor_pixels_keys:
            parts.append(RenameTransform(images, list(tensor_pixels_keys)))
        else:
            parts.append(ExcludeTransform(*images))
        super().__init__(*parts, *self._further(network, list(out_keys)))
        self.model_name, self.size, self.stack_images = model_name, size, stack_images
        self.download, self.download_path = download, download_path
        self.tensor_pixels_keys = tensor_pixels_keys
        if download is True:
            self.load_weights(download_path)
        elif download:
            self.load_weights(download_path, download)

    def _network(self, model_name: str) -> tuple[nn.Module, int]:
        return make_resnet(model_name)

    def _further(self, network: EmbedImages, out_keys: list[NestedKey]) -> list[Any]:
        """Return transforms behind the vectors."""
        return []

    @property
    def network(self) -> EmbedImages:
        """The transform that has the network."""
        found = self[0]
        assert isinstance(found, EmbedImages)
        return found

    def load_weights(self, dir_prefix: str | None = None, tv_weights: Any = None) -> None:
        """Load weights into the network, and download them if the cache does not have them.

        Args:
            dir_prefix: folder of the files. ``None``: the cache of ``torch.hub``.
            tv_weights: weights of torchvision, or their name. ``None``: those of the model.

        Raises:
            WeightsNotFound: the file is neither in the cache nor can it be downloaded, or it is damaged.
            SpecError: the file has the weights of another network.
        """
        convnet = self.network.convnet
        if tv_weights is None:
            path = fetch(self.files[self.model_name], dir_prefix)
            try:
                convnet.load_state_dict(convnet_weights(path, self.entry))
            except RuntimeError as error:
                raise SpecError(f"{path} has the weights of another network than {self.model_name!r}.") from error
            return
        weights = convnet_weights(fetch(of_torchvision(tv_weights, self.model_name), dir_prefix))
        # The last layer is another one, or none.
        missing, _ = convnet.load_state_dict(
            {name: value for name, value in weights.items() if not name.startswith("fc.")}, strict=False
        )
        others = [name for name in missing if not name.startswith("fc.")]
        if others:
            raise SpecError(f"The weights of torchvision lack {others}.")


class R3MTransform(PretrainedTransform):
    """Replace images by their representation in R3M, vectors of 512 (ResNet-18 and -34) or 2,048 numbers.

    R3M was trained on videos of people for robotic manipulation (Nair et al., https://arxiv.org/abs/2203.12601).

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from steppe_pretrained import R3MTransform
    >>> transform = R3MTransform("resnet18", in_keys=["pixels"])  # download=True loads the weights of R3M
    >>> images = torch.randint(256, (2, 64, 64, 3), dtype=torch.uint8)
    >>> transform(TensorDict(pixels=images, batch_size=[2]))["r3m_vec"].shape
    torch.Size([2, 512])

    Args:
        model_name: ``"resnet18"``, ``"resnet34"`` or ``"resnet50"``.
        in_keys: images, ``[*, H, W, 3]`` uint8. ``None``: ``["pixels"]``.
        out_keys: the vectors. ``None``: ``"r3m_vec"``, or ``"r3m_vec_0"``, ... without ``stack_images``.
        size, stack_images, download, download_path, tensor_pixels_keys, requires_grad: see
            :class:`PretrainedTransform`.
    """

    files = R3M
    entry = "r3m"
    default_key = "r3m_vec"


class VIPTransform(PretrainedTransform):
    """Replace images by their representation in VIP, vectors of 1,024 numbers.

    VIP was trained on videos of people, so that distances of vectors are distances to a goal (Ma et al.,
    https://arxiv.org/abs/2210.00030).

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from steppe_pretrained import VIPTransform
    >>> transform = VIPTransform("resnet50", out_keys=["image_vec"])  # download=True loads the weights of VIP
    >>> images = torch.randint(256, (2, 64, 64, 3), dtype=torch.uint8)
    >>> transform(TensorDict(pixels=images, batch_size=[2]))["image_vec"].shape
    torch.Size([2, 1024])

    Args:
        model_name: ``"resnet50"``.
        in_keys: images, ``[*, H, W, 3]`` uint8. ``None``: ``["pixels"]``.
        out_keys: the vectors. ``None``: ``"vip_vec"``, or ``"vip_vec_0"``, ... without ``stack_images``.
        size, stack_images, download, download_path, tensor_pixels_keys, requires_grad: see
            :class:`PretrainedTransform`.
    """

    files = VIP
    entry = "vip"
    default_key = "vip_vec"

    def _network(self, model_name: str) -> tuple[nn.Module, int]:
        net, size = make_resnet(model_name)
        net.fc = nn.Linear(size, 1024)
        return net, 1024
