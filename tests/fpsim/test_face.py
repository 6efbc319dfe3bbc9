"""What `import fpsim` shows, and the modules that users name (law)."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fpsim as fp

MODULES = {"chop", "inspect", "linalg", "testing"}


def test_the_package_shows_what_users_hold():
    shown = {name for name in dir(fp) if not name.startswith("_")}
    assert shown == {*fp.__all__, *MODULES}


def test_modules_of_the_inside_are_importable_all_the_same():
    import fpsim.array
    import fpsim.records.units

    assert fpsim.array.Array is fp.Array
    assert fpsim.records.units.MatrixUnit is fp.MatrixUnit


def test_a_module_of_users_is_imported_when_it_is_asked_for():
    ask = (
        "import sys, fpsim; before = 'fpsim.linalg' in sys.modules; "
        "print(before, fpsim.linalg.matmul.__name__, 'fpsim.linalg' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "matmul", "True"]


@pytest.mark.parametrize("name", ["array", "context"])
def test_calling_a_module_says_what_to_call(name):
    with pytest.raises(TypeError, match=rf"fpsim\.{name} is a module. Values need a format: fp\."):
        getattr(fp, name)([1.0])


def test_an_unknown_name_is_compared_with_what_is_shown():
    with pytest.raises(AttributeError, match="module 'fpsim' has no attribute 'binary16'") as error:
        _ = fp.binary16
    assert (error.value.name, error.value.obj) == ("binary16", fp)
