"""Unedited programs: status, and errors in a sentence with the user's line (golden)."""

from __future__ import annotations

import sys

import pytest

from ipu.frontends.processes.programs import (
    ProgramError,
    as_main,
    check_module,
    run_file,
    run_module,
)


@pytest.fixture
def program(tmp_path):
    def write(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        return path

    return write


def test_a_program_is_main_with_its_arguments(program, capsys):
    path = program("import sys\nprint(__name__, sys.argv[1:], sys.path[0])\n")
    before = list(sys.argv), list(sys.path)
    assert run_file(path, ["--a"]) == 0
    assert capsys.readouterr().out == f"__main__ ['--a'] {path.parent}\n"
    assert (sys.argv, sys.path) == before


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("exit()", 0),
        ("import sys; sys.exit('x')", 1),
        ("raise SystemExit(['x'])", 1),
        ("raise SystemExit(0.0)", 1),
        ("raise SystemExit(None)", 0),
    ],
)
def test_the_status_is_the_programs(program, text, status):
    assert run_file(program(text), []) == status


def failure(path):
    with pytest.raises(ProgramError) as caught:
        run_file(path, [])
    return str(caught.value)


def test_an_error_is_one_line_with_its_place(program):
    path = program("x = 1\nraise ValueError('first\\nsecond')\n")
    assert failure(path) == f"{path}:2: ValueError: first"


def test_an_error_in_lines_keeps_them(program):
    path = program(
        "class E(Exception):\n    is_in_lines = True\nraise E('what\\nwhere')\n"
    )
    assert failure(path) == f"{path}:3: E: what\nwhere"
    path = program("raise TypeError('in user code:\\n    line 3')\n")
    assert failure(path).endswith("in user code:\n    line 3")


def test_notes_stand_behind_the_sentence(program):
    path = program("e = KeyError('k')\ne.add_note('in node w')\nraise e\n")
    assert failure(path) == f"{path}:3: KeyError: 'k' (in node w)"


def test_paths_are_restored_after_an_error(program):
    before = list(sys.path)
    with pytest.raises(ZeroDivisionError), as_main(program(""), []):
        1 / 0  # noqa: B018
    assert sys.path == before


GRAPH = """Graph execution error:

Detected at node 'Check' defined at (most recent call last):
    File "program.py", line 1, in <module>
Node: 'Check'
ours : Tensor had
NaN values
\t [[{{node Check}}]]

Original stack trace for 'Check':
  File "program.py", line 1, in <module>
"""


def test_a_runtimes_message_is_told_without_its_stacks(program):
    path = program(f"raise ValueError({GRAPH!r})\n")
    told = "ours : Tensor had NaN values [[{{node Check}}]]"
    assert failure(path) == f"{path}:1: ValueError: {told}"
    path = program("raise ValueError('Graph execution error: of another kind\\nmore')\n")
    assert failure(path) == f"{path}:1: ValueError: Graph execution error: of another kind"


def test_a_module_that_names_what_it_has_is_heard(program):
    path = program("from vendor import b\n")
    (path.parent / "vendor.py").write_text(
        "def __getattr__(name):\n    raise AttributeError(f'vendor has no {name}; there is a')\n"
    )
    assert failure(path) == f"{path}:1: ImportError: vendor has no b; there is a"
    (path.parent / "plain.py").write_text("a = 1\n")
    path = program("from plain import b\n")
    assert "cannot import name 'b' from 'plain'" in failure(path)


# Modules and relative names ----------------------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package in the present folder; what it imports is forgotten afterwards."""
    folder = tmp_path / "pkg_of_a_user"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "helper.py").write_text("def fails():\n    return {}['no']\n")
    monkeypatch.chdir(tmp_path)
    yield folder
    for name in [n for n in sys.modules if n.startswith(folder.name)]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["train", "__main__"])
def test_a_module_is_main_with_its_arguments_and_package(package, capsys, name):
    path = package / f"{name}.py"
    path.write_text(
        "import sys\nfrom . import helper\nprint(__name__, __package__, sys.argv)\nsys.exit(3)\n"
    )
    before = list(sys.argv), list(sys.path)
    module = package.name + ("" if name == "__main__" else f".{name}")
    check_module(module)
    assert package.name not in sys.modules
    assert run_module(module, ["--a", "-m"]) == 3
    argv = [str(path), "--a", "-m"]
    assert capsys.readouterr().out == f"__main__ {package.name} {argv}\n"
    assert (sys.argv, sys.path) == before


def test_an_error_of_a_module_names_the_users_line(package):
    (package / "train.py").write_text("from . import helper\n\nhelper.fails()\n")
    with pytest.raises(ProgramError) as caught:
        run_module(f"{package.name}.train", [])
    assert str(caught.value) == f"{package / 'helper.py'}:2: KeyError: 'no'"


def test_a_module_that_is_not_there(package):
    with pytest.raises(
        ValueError, match=r"module='no_such_package\.x' is not there; give a module"
    ):
        check_module("no_such_package.x")
    with pytest.raises(ProgramError, match=rf"^{package.name}.no: ImportError: No module named"):
        run_module(f"{package.name}.no", [])


@pytest.mark.parametrize("moves", [False, True])
def test_a_relative_name_is_told_as_a_whole_path(program, monkeypatch, capsys, moves):
    """Python gives __file__ the whole path too, and sys.argv the name as it was typed."""
    path = program(
        "import os, sys\nprint(__file__, sys.argv[0])\n"
        + ("os.chdir('/')\n" if moves else "")
        + "{}['no']\n"
    )
    monkeypatch.chdir(path.parent)
    relative = path.relative_to(path.parent)
    with pytest.raises(ProgramError) as caught:
        run_file(relative, [])
    assert capsys.readouterr().out == f"{path} {relative}\n"
    assert str(caught.value).startswith(f"{path}:{4 if moves else 3}: KeyError")


def test_a_program_finds_itself_as_main(program, capsys):
    """As pickles, dataclasses and inspect need it; the name is gone afterwards."""
    before = sys.modules["__main__"]
    path = program(
        "import inspect, pickle, sys\nfrom dataclasses import dataclass\n@dataclass\nclass Row:\n"
        "    x: int\nassert pickle.loads(pickle.dumps(Row(1))) == Row(1)\n"
        "def later():\n    return ROWS\nROWS = [1]\nsys.stash = later\n"
        "print(inspect.getsource(Row).splitlines()[-1].strip(), __name__, __spec__)\n"
    )
    try:
        assert run_file(path, []) == 0
        assert sys.stash() == [1]
    finally:
        del sys.stash
    assert capsys.readouterr().out == "x: int __main__ None\n"
    assert sys.modules["__main__"] is before


def test_an_archive_is_a_program(tmp_path, capsys):
    import zipfile

    path = tmp_path / "program.pyz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__main__.py", "print(__name__)")
    assert run_file(path, []) == 0
    assert capsys.readouterr().out == "__main__\n"
