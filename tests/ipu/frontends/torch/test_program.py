"""Unedited programs: arguments, imports, exit status, errors in one sentence (golden)."""

from __future__ import annotations

import sys

import pytest

from tests.ipu.frontends.torch.framework import machine

from ipu.frontends.processes.programs import ProgramError  # isort: skip
from ipu.frontends.processes.vendor_names import vendor_names  # isort: skip
from ipu.frontends.torch.program import join_replicas, run_program, settings_of  # isort: skip


@pytest.fixture
def program(tmp_path):
    """Writes a program and a module beside it; returns the program's path."""

    def write(text, helper=""):
        (tmp_path / "helper_of_program.py").write_text(helper)
        path = tmp_path / "program.py"
        path.write_text(text)
        sys.modules.pop("helper_of_program", None)
        return path

    return write


def test_a_program_is_main_with_its_arguments_and_neighbours(program, capsys):
    path = program(
        "import sys, torch, helper_of_program\n"
        "if __name__ == '__main__':\n"
        "    x = torch.ones(2) * helper_of_program.FACTOR\n"
        "    print(sys.argv[1:], x.tolist(), __file__ == sys.argv[0])\n",
        "FACTOR = 70000.0\n",
    )
    before = list(sys.argv), list(sys.path), list(sys.meta_path)
    session = machine("f16", count=True)
    assert run_program(session, path, ["--a", "b"]) == 0
    assert capsys.readouterr().out == "['--a', 'b'] [65504.0, 65504.0] True\n"
    assert (sys.argv, sys.path, sys.meta_path) == before
    assert session.report()["constants"][0]["value"] == 70000.0


@pytest.mark.parametrize(
    ("text", "status"), [("raise SystemExit(3)", 3), ("exit()", 0), ("import sys; sys.exit(0)", 0)]
)
def test_the_status_is_the_programs(program, text, status):
    assert run_program(machine(), program(text), []) == status


def test_a_message_of_an_exit_is_printed(program, capsys):
    assert run_program(machine(), program("import sys; sys.exit('no data')"), []) == 1
    assert capsys.readouterr().err == "no data\n"


def test_an_error_names_the_users_file_and_line(program):
    path = program(
        "import helper_of_program\n\nhelper_of_program.fails()\n",
        "def fails():\n    import json\n    json.loads('{')\n",
    )
    with pytest.raises(ProgramError) as caught:
        run_program(machine(), path, [])
    folder = path.parent
    assert str(caught.value).startswith(f"{folder / 'helper_of_program.py'}:3: JSONDecodeError: ")
    assert "\n" not in str(caught.value)


def test_a_trap_tells_the_operation_and_the_layer(program):
    path = program("import torch\nx = torch.full((2,), 60000.0)\ny = x * 2\n")
    with pytest.raises(ProgramError, match=r"program.py:3: FloatingPointTrap: .*aten.mul"):
        run_program(machine("f16", traps=True), path, [])


def test_a_syntax_error_has_its_line(program):
    with pytest.raises(ProgramError, match=r"program.py:2: SyntaxError"):
        run_program(machine(), program("x = 1\nx ="), [])


def test_poptorch_is_ours_where_it_is_built_and_no_other_is_installed():
    with vendor_names():
        try:
            import ipu.frontends.poptorch as ours
        except ModuleNotFoundError:
            with pytest.raises(ModuleNotFoundError):
                import poptorch
        else:
            import poptorch

            assert poptorch is ours


def test_an_installed_poptorch_is_the_one(program):
    path = program("import poptorch; print(poptorch.WHOSE)")
    (path.parent / "poptorch.py").write_text("WHOSE = 'theirs'\n")
    sys.path.insert(0, str(path.parent))
    try:
        with vendor_names():
            import poptorch
        assert poptorch.WHOSE == "theirs"
    finally:
        sys.path.remove(str(path.parent))
        sys.modules.pop("poptorch", None)


@pytest.mark.parametrize(
    ("choices", "name"),
    [({"seed": 7}, "random bits"), ({"policy": "fp16"}, "way"), ({"ties": "all"}, "ties"),
     ({"target": "bow"}, "target"), ({"found_inf": "status"}, "found_inf"),
     ({"f32_denormals": "ieee"}, "f32_denormals")],
)
def test_what_reaches_bits_is_compared_between_processes(choices, name):
    one, other = settings_of(machine()), settings_of(machine(**choices))
    assert [a.partition(":")[0] for a, b in zip(one, other, strict=True) if a != b] == [name]
    assert settings_of(machine(count=True)) == one


def test_one_replica_of_poprun_joins_nobody(monkeypatch):
    variables = {
        "POPDIST_NUM_INSTANCES": "1", "POPDIST_INSTANCE_INDEX": "0",
        "POPDIST_NUM_TOTAL_REPLICAS": "1", "FPSIM_TRANSPORT": "local",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    session = machine()
    before = session.replicas
    assert join_replicas(session) == 1
    assert session.replicas is before
