"""fpsim data: what is there, and downloads that are checked (differential: a server here)."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ipu.experiments.cli import main
from ipu.experiments.commands import data
from ipu.feed.data import SETS


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and says nothing."""

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A folder that is served in place of the publishers', with two small data sets."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "a.gz").write_bytes(b"a")
    with tarfile.open(folder / "c.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo(f"{data.INSIDE}/data_batch_1.bin")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"xyz"))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{running.server_port}/"
        sums = {p.name: "sha256:" + hashlib.sha256(p.read_bytes()).hexdigest()
                for p in folder.iterdir()}
        monkeypatch.setitem(data.SOURCES, "mnist", (url, {"a.gz": sums["a.gz"]}))
        monkeypatch.setitem(data.SOURCES, "cifar10", (url, {"c.tar.gz": sums["c.tar.gz"]}))
        monkeypatch.setitem(data.SOURCES, "fashion-mnist", (url, {"a.gz": "md5:" + "0" * 32}))
        yield folder
        running.shutdown()


def test_downloads_are_checked_and_laid_where_the_loaders_look(server, tmp_path, capsys):
    to = tmp_path / "d"
    assert main(["data", "mnist", "cifar10", "--to", str(to)]) == 0
    assert (to / "mnist" / "a.gz").read_bytes() == b"a"
    assert (to / "cifar10" / "data_batch_1.bin").read_bytes() == b"xyz"
    assert main(["data", "fashion-mnist", "--to", str(to)]) == 2
    assert "was not downloaded" in capsys.readouterr().err
    assert not (to / "fashion-mnist" / "a.gz").exists()


def test_the_listing_says_what_is_there(tmp_path, capsys):
    assert main(["data", "--to", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count("download with: fpsim data") == len(SETS) == len(data.SOURCES)


@pytest.mark.parametrize(
    ("line", "message"),
    {"data mnst --to d": "use mnist", "data mnist": "use --to FOLDER, or set FPSIM_DATA"}.items(),
)
def test_bad_input_is_one_line(line, message, capsys, monkeypatch):
    monkeypatch.delenv("FPSIM_DATA", raising=False)
    assert main(line.split()) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["../outside.bin", "link"])
def test_an_archive_writes_nothing_outside_its_folder(server, tmp_path, monkeypatch, capsys, name):
    with tarfile.open(server / "evil.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "../../outside"
        archive.addfile(member)
    digest = "sha256:" + hashlib.sha256((server / "evil.tar.gz").read_bytes()).hexdigest()
    url = data.SOURCES["cifar10"][0]
    monkeypatch.setitem(data.SOURCES, "cifar10", (url, {"evil.tar.gz": digest}))
    to = tmp_path / "d"
    assert main(["data", "cifar10", "--to", str(to)]) == 2
    assert "evil.tar.gz was not downloaded" in capsys.readouterr().err
    assert not (to / "outside.bin").exists()
    assert [p.name for p in (to / "cifar10").iterdir()] == ["evil.tar.gz"]
