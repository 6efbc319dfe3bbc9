"""Options on a command line (golden); comparisons are run in test_torch and test_tf."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ipu.experiments.commands.programs.comparing import as_options, compare, folder_of, tell_page
from ipu.experiments.commands.programs.pairing import PairOptions
from ipu.experiments.commands.programs.writing import WatchedFolder
from ipu.run.ways import Way


def test_choices_become_options():
    choices = {"found_inf": "values", "traps": True, "nanoo": False, "unit": None}
    assert list(as_options(choices)) == ["--found-inf", "values", "--traps"]


def test_a_way_that_writes_no_report_has_its_status(tmp_path, capfd):
    folders = []

    def line_of(way, options):
        folders.append(options[-1])
        return ["show", "1.0", "nonsense"]

    options = PairOptions(12, "progress", None, 1)
    ways = [Way(), Way.parse("fp16")]
    assert compare(Path("program.py"), ways, tmp_path, options, line_of) == 2
    assert folders == [str(tmp_path / "fp32"), str(tmp_path / "fp16")]
    assert "exit status 2" in (tmp_path / "index.html").read_text(encoding="utf-8")
    printed = capfd.readouterr().err
    assert "program.py in fp32" in printed
    assert "no verdict: the program does not run in fp32: exit status 2" in printed
    assert printed.index("declared before the runs") < printed.index("program.py in fp32")


def test_files_that_a_program_writes_are_noticed(tmp_path):
    """Side by side, a run would read those of another; the report's folder is ours."""
    (tmp_path / "out").mkdir()
    (tmp_path / "data.txt").touch()
    watched = WatchedFolder(tmp_path, tmp_path / "out")
    (tmp_path / "out" / "index.html").write_text("ours")
    assert watched.written() == ""
    assert list(watched.times()) == [str(tmp_path / "data.txt")]
    (tmp_path / "best.pt").write_text("theirs")
    assert watched.written() == str(tmp_path / "best.pt")


def test_files_that_others_write_are_none_of_the_program(tmp_path):
    """What stands behind > and 2> and what tee writes; what another process reads only is one."""
    code = ("from pathlib import Path; "
            "from ipu.experiments.commands.programs.writing import WatchedFolder; "
            "watched = WatchedFolder(Path.cwd(), Path('out').resolve()); "
            "print(list(watched.times()), flush=True)")
    (tmp_path / "data.txt").touch()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with (tmp_path / "log.txt").open("w") as log, (tmp_path / "errors.txt").open("w") as errors:
        subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, stdout=log,
                       stderr=errors, env=environment)
    assert (tmp_path / "log.txt").read_text().strip() == str([str(tmp_path / "data.txt")])
    (tmp_path / "log.txt").unlink()
    (tmp_path / "errors.txt").unlink()
    hold = "import sys; a, b = open('tee.log', 'a'), open('data.txt'); print(); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold], cwd=tmp_path, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as tee:
        tee.stdout.readline()
        watched = WatchedFolder(tmp_path, tmp_path / "out")
        is_told = Path("/proc/self/fdinfo").exists()
        assert [Path(path).name for path in watched.times()] == (
            ["data.txt"] if is_told else ["data.txt", "tee.log"])
        tee.stdin.close()


def test_each_of_several_processes_has_a_folder(tmp_path, monkeypatch):
    assert folder_of(tmp_path, None) == tmp_path
    assert folder_of(tmp_path, "worker-1") == tmp_path / "worker-1"
    monkeypatch.setenv("FPSIM_FOLDER_OF_ONE", "1")
    assert folder_of(tmp_path, "worker-1") == tmp_path, "compare() has made one of it already"


class Told(dict):
    """A report."""

    def __str__(self):
        return "the report as text"


@pytest.mark.parametrize("is_printed", [False, True])
def test_a_report_whose_page_the_disk_does_not_take_is_printed_once(
    tmp_path, monkeypatch, capsys, is_printed
):
    def full(folder, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "index.html"))

    monkeypatch.setattr("ipu.run.pages.page.write_run", full)
    with pytest.raises(click.UsageError, match=r"index\.html: No space left on device; make room"):
        tell_page(tmp_path, Told(), "the advice", "A run", is_printed=is_printed)
    printed = capsys.readouterr().err
    assert printed.count("the report as text") == (not is_printed)
    assert "the advice" in printed
