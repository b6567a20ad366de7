"""Downloads: checked, resumed, and with a way out when offline. The server is on loopback and knows ranges."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from labelemb.lab.data import describe_data, fetch, fetchable_names, load_data
from labelemb.lab.data.describe import FOLDERS, find_published
from labelemb.lab.data.fetch import SOURCES, Source
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.support.errors import UserError
from tests.helpers.tiny_data import IDX_FILES, pack_folder, write_cifar10, write_mnist

CONTENT = bytes(range(256)) * 1000


class Server(ThreadingHTTPServer):
    """Serves `files` by path, and notes the requests it got."""

    files: dict[str, bytes]
    requests: list[tuple[str, str | None]]
    knows_ranges = True
    break_after: int | None = None  # bytes after which the connection is closed, once


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append((self.path, wanted))
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.knows_ranges else 0
        if start >= len(content) and start:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        stop, self.server.break_after = self.server.break_after, None
        self.wfile.write(content[start:stop])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.files, server.requests = {"/tiny/tiny.bin": CONTENT}, []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("LABELEMB_MIRROR", f"http://127.0.0.1:{server.server_port}")
        checksum = hashlib.md5(CONTENT).hexdigest()
        monkeypatch.setitem(SOURCES, "tiny", Source(("http://127.0.0.1:1/",), "tiny", {"tiny.bin": checksum}))
        yield server
        server.shutdown()
        thread.join()


def fetch_tiny(folder: Path) -> Path:
    return fetch("tiny", folder, progress=False)


def test_a_mirror_that_is_no_address_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELEMB_MIRROR", "my-server")
    with pytest.raises(UserError, match="LABELEMB_MIRROR is 'my-server', but must begin with http:// or https://"):
        fetch("mnist", tmp_path, progress=False)


def test_a_file_arrives_whole_and_is_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    assert fetch_tiny(tmp_path) == tmp_path / "tiny"
    assert (tmp_path / "tiny" / "tiny.bin").read_bytes() == CONTENT
    fetch_tiny(tmp_path)
    assert server.requests == [("/tiny/tiny.bin", None)]
    assert [file.name for file in (tmp_path / "tiny").iterdir()] == ["tiny.bin"]


def test_a_broken_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.break_after = 100_000
    with pytest.raises(UserError, match=r"broke after 100000 of 256000 bytes.*run again to resume"):
        fetch_tiny(tmp_path)
    assert (tmp_path / "tiny" / "tiny.bin.part").stat().st_size == 100_000
    fetch_tiny(tmp_path)
    assert (tmp_path / "tiny" / "tiny.bin").read_bytes() == CONTENT
    assert server.requests == [("/tiny/tiny.bin", None), ("/tiny/tiny.bin", "bytes=100000-")]


def test_a_server_without_ranges_sends_everything_again(server: Server, tmp_path: Path) -> None:
    server.break_after = 100_000
    with pytest.raises(UserError):
        fetch_tiny(tmp_path)
    server.knows_ranges = False
    fetch_tiny(tmp_path)
    assert (tmp_path / "tiny" / "tiny.bin").read_bytes() == CONTENT


def test_a_part_that_is_already_whole_is_taken(server: Server, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny.bin.part").write_bytes(CONTENT)
    fetch_tiny(tmp_path)
    assert (tmp_path / "tiny" / "tiny.bin").read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_nothing_of_it_kept(server: Server, tmp_path: Path) -> None:
    server.files["/tiny/tiny.bin"] = b"something else"
    with pytest.raises(UserError, match=r"MD5 mismatch, expected [0-9a-f]{32}, got [0-9a-f]{32}"):
        fetch_tiny(tmp_path)
    assert list((tmp_path / "tiny").iterdir()) == []
    server.files["/tiny/tiny.bin"] = CONTENT
    fetch_tiny(tmp_path)
    assert (tmp_path / "tiny" / "tiny.bin").read_bytes() == CONTENT


def test_a_part_of_another_file_is_found_out_by_the_checksum(server: Server, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "tiny.bin.part").write_bytes(b"x" * 1000)
    with pytest.raises(UserError, match="MD5"):
        fetch_tiny(tmp_path)
    fetch_tiny(tmp_path)
    assert (tmp_path / "tiny" / "tiny.bin").read_bytes() == CONTENT


def test_a_damaged_file_is_replaced(server: Server, tmp_path: Path) -> None:
    fetch_tiny(tmp_path)
    (tmp_path / "tiny" / "tiny.bin").write_bytes(CONTENT[:-1])
    fetch_tiny(tmp_path)
    assert (tmp_path / "tiny" / "tiny.bin").read_bytes() == CONTENT


def test_offline_it_says_which_files_to_put_where(tmp_path: Path) -> None:
    for name in fetchable_names():
        with pytest.raises(UserError) as caught:
            fetch(name, tmp_path, progress=False)
        text = str(caught.value)
        assert "\n" not in text
        assert f"into {tmp_path / SOURCES[name].folder} yourself" in text
        assert all(file in text for file in SOURCES[name].files)


def test_an_address_that_is_gone_is_followed_by_the_next(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.delenv("LABELEMB_MIRROR")
    source = Source((f"{base}/gone/", f"{base}/tiny/"), "tiny", SOURCES["tiny"].files)
    monkeypatch.setitem(SOURCES, "tiny", source)
    fetch_tiny(tmp_path)
    assert [path for path, _ in server.requests] == ["/gone/tiny.bin", "/tiny/tiny.bin"]


def test_what_was_fetched_is_found_without_a_path(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write_mnist(tmp_path / "made")
    files = {f"{name}.gz": (made / f"{name}.gz").read_bytes() for name in IDX_FILES}
    server.files = {f"/mnist/{name}": content for name, content in files.items()}
    sums = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    monkeypatch.setitem(SOURCES, "mnist", Source((), "mnist", sums))
    folder = fetch("mnist", progress=False)
    assert folder == tmp_path / "nowhere" / "mnist"  # $LABELEMB_DATA
    dataset = load_data(load_recipe("mnist-mlp", ["data.dev_size=10"]), None, seed=1)
    assert len(dataset.train) == 50


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"cannot fetch 'cifar1'; did you mean 'cifar1"):
        fetch("cifar1")
    assert fetchable_names() == ["mnist", "fashion-mnist", "cifar10", "cifar100"]


def test_the_description_tells_what_is_there_and_where_it_is_looked_for(tmp_path: Path) -> None:
    place = write_mnist(tmp_path / "fashion-mnist")
    pairs = tmp_path / "en-vi"
    pairs.mkdir()
    (pairs / "news.train.en").write_text("one\n")
    text = describe_data(tmp_path)
    lines = dict(line.split(maxsplit=1) for line in text.splitlines() if line)
    assert lines["fashion-mnist"] == str(place)
    assert lines["mnist"] == "not found; `labelemb data fetch mnist` downloads it"
    assert lines["en-vi-news-small"] == str(pairs)
    assert lines["zh-titles-small"] == "not found; put its files (train.src.zh, ...) in a folder zh-news-titles"
    assert lines["numbers-en-vi"].startswith("always there")
    assert f"looked for in: {tmp_path}" in text
    assert f"looked for in: {tmp_path / 'nowhere'}, data, {tmp_path / 'cache'}" in describe_data()


@pytest.mark.parametrize(
    ("recipe", "name"), [("mnist-mlp", "mnist"), ("cifar10-small", "cifar10"), ("cifar100-resnet18", "cifar100")]
)
def test_the_description_looks_where_the_recipes_look(recipe: str, name: str) -> None:
    assert load_recipe(recipe).data.folders == FOLDERS[name]


def test_a_place_is_named_only_for_the_set_that_it_holds(tmp_path: Path) -> None:
    archive = pack_folder(write_cifar10(tmp_path / "files"), tmp_path / "cifar-10-binary.tar.gz")
    assert find_published("cifar10", archive) == archive
    assert find_published("cifar100", archive) is None
    folder = write_mnist(tmp_path / "mnist")
    assert find_published("mnist", tmp_path) == folder
    next(folder.glob("t10k-images*")).unlink()
    assert find_published("mnist", tmp_path) is None
