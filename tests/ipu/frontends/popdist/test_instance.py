"""Instances: their numbers, the prefix of their lines, their status (golden)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ipu.frontends.popdist.instance import ONLY_OUTPUT, environment_of

SHARED = {"POPDIST_NUM_LOCAL_REPLICAS": "3"}
PROGRAM = """
import os, sys
print("out", os.environ["POPDIST_REPLICA_INDEX_OFFSET"])
print("no end of line", end="")
print("error", file=sys.stderr)
sys.exit(5)
"""


def run(command, **variables):
    return subprocess.run(
        [sys.executable, "-m", "ipu.frontends.popdist.instance", *command],
        env=os.environ | SHARED | variables, capture_output=True, text=True, timeout=60,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("variables", "index", "local"),
    [({"POPDIST_INSTANCE_INDEX": "2"}, "2", "2"),
     ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, "2", "1"),
     ({"PMIX_RANK": "2"}, "2", "2"),
     ({"PMI_RANK": "2", "MPI_LOCALRANKID": "0"}, "2", "0"),
     ({"POPDIST_INSTANCE_INDEX": "2", "PMI_RANK": "0"}, "2", "2")],
)
def test_the_number_is_the_launchers(variables, index, local):
    environment = environment_of(SHARED | variables)
    assert environment["POPDIST_INSTANCE_INDEX"] == index
    assert environment["POPDIST_LOCAL_INSTANCE_INDEX"] == local
    assert environment["POPDIST_REPLICA_INDEX_OFFSET"] == str(3 * int(index))


def test_without_a_launcher_a_sentence_says_so():
    with pytest.raises(ValueError, match=r"none of .* start instances by fpsim poprun"):
        environment_of(dict(SHARED))


def test_each_line_has_the_number_and_the_status_is_the_programs():
    done = run([sys.executable, "-c", PROGRAM], POPDIST_INSTANCE_INDEX="1")
    assert done.stdout == "[1] out 3\n[1] no end of line\n"
    assert done.stderr == "[1] error\n"
    assert done.returncode == 5


def test_only_one_instance_is_shown():
    shown = [
        run(["echo", "x"], POPDIST_INSTANCE_INDEX=index, **{ONLY_OUTPUT: "1"}).stdout
        for index in "01"
    ]
    assert shown == ["", "[1] x\n"]


def test_a_killed_program_has_the_shells_status():
    assert run(["sh", "-c", "kill -9 $$"], POPDIST_INSTANCE_INDEX="0").returncode == 137


def test_a_program_that_does_not_exist_is_named():
    done = run(["./no-such-program"], POPDIST_INSTANCE_INDEX="0")
    assert done.returncode == 127
    assert done.stderr == "[0] ./no-such-program cannot be started: No such file or directory\n"
