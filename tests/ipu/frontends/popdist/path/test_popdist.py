"""`import popdist` in any Python that poprun starts (golden)."""

from __future__ import annotations

import os
import subprocess
import sys

from ipu.frontends.popdist.launch import PoprunOptions

PROGRAM = """
import popdist, popdist.environment
print(popdist.__name__, popdist.getNumLocalReplicas(), popdist.environment.getNumInstances())
"""


def test_it_is_ours():
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=60,
        env=os.environ | PoprunOptions(2, 6, transport="grpc").environment,
    )
    assert done.stdout == "popdist 3 2\n", done.stderr


def test_modules_below_it_are_found():
    from ipu.frontends.popdist.path import popdist as shown

    assert shown.__path__ == list(__import__("ipu.frontends.popdist").frontends.popdist.__path__)
