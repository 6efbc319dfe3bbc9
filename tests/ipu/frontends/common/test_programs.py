"""Unedited programs: status, and errors in a sentence with the user's line (golden)."""

from __future__ import annotations

import sys

import pytest

from ipu.frontends.common.programs import ProgramError, as_main, run_file


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
    )  # fmt: skip
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
