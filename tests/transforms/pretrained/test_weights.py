"""Downloads of weights, from a server of this machine."""

from __future__ import annotations

import functools
import hashlib
import socket
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from tests.limits import CHILD

pytest.importorskip("torchvision")

from steppe.errors import SpecError
from steppe_pretrained import R3MTransform, WeightsNotFound
from steppe_pretrained.weights import R3M, VIP, WeightsFile, convnet_weights, fetch, of_torchvision

pytestmark = [pytest.mark.library, pytest.mark.matrix]


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path):
    """Serve a folder; yields it and its address."""
    (folder := tmp_path / "published").mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(folder))) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()
        thread.join(CHILD)


def sha(content):
    return hashlib.sha256(content).hexdigest()


def test_a_file_is_downloaded_once(server, tmp_path):
    folder, url = server
    (folder / "net.pt").write_bytes(b"weights")
    file = WeightsFile(f"{url}/net.pt", "mine.pt", sha(b"weights")[:12])

    path = fetch(file, tmp_path / "cache")
    (folder / "net.pt").unlink()

    assert path == tmp_path / "cache/mine.pt"
    assert path.read_bytes() == b"weights"
    assert fetch(file, tmp_path / "cache") == path
    assert sorted(each.name for each in path.parent.iterdir()) == ["mine.pt", "mine.pt.sha256"]


def test_another_checksum_leaves_no_file(server, tmp_path):
    folder, url = server
    (folder / "net.pt").write_bytes(b"other weights")

    with pytest.raises(WeightsNotFound, match="is not the file that was published"):
        fetch(WeightsFile(f"{url}/net.pt", "net.pt", sha(b"weights")), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_file_that_changes_in_the_cache_is_refused(server, tmp_path):
    folder, url = server
    (folder / "net.pt").write_bytes(b"weights")
    file = WeightsFile(f"{url}/net.pt", "net.pt")  # without a published checksum
    path = fetch(file, tmp_path)

    path.write_bytes(b"weight")

    with pytest.raises(WeightsNotFound, match="Remove it"):
        fetch(file, tmp_path)


def test_no_network_names_the_file_and_its_place(tmp_path):
    file = WeightsFile("http://127.0.0.1:9/r3m_18.pt", "r3m_18.pt")

    with pytest.raises(WeightsNotFound, match="put it at") as raised:
        fetch(file, tmp_path)

    assert str(tmp_path / "r3m_18.pt") in str(raised.value)
    assert isinstance(raised.value, FileNotFoundError)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_put_there_is_taken(tmp_path):
    (tmp_path / "r3m_18.pt").write_bytes(b"by hand")
    assert fetch(R3M["resnet18"], tmp_path).read_bytes() == b"by hand"


def test_weights_are_cached_where_torch_hub_caches(server, tmp_path, monkeypatch):
    folder, url = server
    (folder / "net.pt").write_bytes(b"weights")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))

    assert fetch(WeightsFile(f"{url}/net.pt", "net.pt")) == tmp_path / "hub/checkpoints/net.pt"


def test_weights_of_torchvision_have_a_checksum(server, tmp_path, monkeypatch):
    from torchvision import models

    file = of_torchvision("IMAGENET1K_V1", "resnet18")
    assert file == of_torchvision(models.ResNet18_Weights.IMAGENET1K_V1, "resnet18")
    assert file.checksum is not None
    assert file.checksum in file.name
    folder, url = server
    torch.manual_seed(0)
    network = models.resnet18(weights=None)
    torch.save(network.state_dict(), folder / "net.pth")
    content = (folder / "net.pth").read_bytes()
    own = WeightsFile(f"{url}/net.pth", "net.pth", sha(content)[:8])
    monkeypatch.setattr("steppe_pretrained.transforms.of_torchvision", lambda weights, name: own)

    transform = R3MTransform("resnet18", size=16, download="IMAGENET1K_V1", download_path=str(tmp_path))

    assert torch.equal(transform.network.convnet.conv1.weight, network.conv1.weight)


def test_a_file_without_such_weights_is_named(tmp_path):
    torch.save({"r3m": {"module.lang_rew.weight": torch.zeros(1)}}, tmp_path / "a.pt")
    torch.save([1], tmp_path / "b.pt")
    with pytest.raises(SpecError, match=r"module\.convnet"):
        convnet_weights(tmp_path / "a.pt", "r3m")
    with pytest.raises(SpecError, match="no entry 'vip'"):
        convnet_weights(tmp_path / "b.pt", "vip")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nabc", b"no HTTP\r\n"])
def test_a_broken_answer_names_the_file_and_its_place(answer, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def serve():
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(WeightsNotFound, match=rf":{port}/net.pt cannot be read .* put it at .*mine.pt"):
            fetch(WeightsFile(f"http://127.0.0.1:{port}/net.pt", "mine.pt"), tmp_path / "cache")
        thread.join(CHILD)

    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"<html>Not found</html>", b"PK\x03\x04 half an archive"])
def test_a_damaged_file_is_named_and_is_not_executed(content, tmp_path):
    (tmp_path / "r3m_18.pt").write_bytes(content)

    with pytest.raises(WeightsNotFound, match=r"r3m_18\.pt cannot be read as weights .* Remove it") as caught:
        R3MTransform("resnet18", size=16, download=True, download_path=str(tmp_path))

    assert "weights_only" not in str(caught.value)


def test_weights_of_another_network_are_refused(tmp_path):
    network = R3MTransform("resnet18", size=16).network.convnet
    weights = {f"module.convnet.{name}": value for name, value in network.state_dict().items()}
    torch.save({"r3m": weights}, tmp_path / "r3m_34.pt")

    with pytest.raises(SpecError, match=r"r3m_34\.pt has the weights of another network than 'resnet34'"):
        R3MTransform("resnet34", size=16, download=True, download_path=str(tmp_path))


def test_all_published_names_are_known():
    assert sorted(R3M) == ["resnet18", "resnet34", "resnet50"]
    assert VIP["resnet50"].url.endswith("/vip/model.pt")
