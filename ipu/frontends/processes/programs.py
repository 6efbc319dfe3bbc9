"""An unedited program: as `python PROGRAM.py ARGS` runs it, with its errors in one sentence."""

from __future__ import annotations

import builtins
import importlib.util
import io
import re
import runpy
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from ipu.frontends.processes.vendor_names import vendor_names

__all__ = ["ProgramError", "as_main", "check_module", "run_file", "run_module"]

#: How TensorFlow's autograph begins a message that has the user's lines in it.
_IN_USER_CODE = "in user code:"
#: How TensorFlow's runtime begins a message whose stacks are longer than what it says.
_IN_GRAPH = "Graph execution error:"


class ProgramError(Exception):
    """A user's program stopped: its file and line, and what happened, in one sentence."""


def run_file(program: Path, arguments: Sequence[str]) -> int:
    """Run a program; the status that it exits with.

    Raises    ProgramError where the program raises; KeyboardInterrupt as it is.
    """
    with as_main(program, arguments):
        return _status(lambda: _execute(program.absolute()), program)


def run_module(module: str, arguments: Sequence[str]) -> int:
    """Run a module as `python -m MODULE ARGS` does; the status that it exits with.

    Raises    ProgramError where it raises; KeyboardInterrupt as it is.
    """
    with as_main(Path.cwd() / module, arguments):
        return _status(
            lambda: runpy.run_module(module, run_name="__main__", alter_sys=True),
            Path.cwd() / module, module,
        )


def _execute(program: Path) -> None:
    """Execute a file as __main__.

    Its name is the whole path, as Python has it: a program may change its folder, and its errors
    name the file. sys.argv has the name as it was typed, which runpy would replace.
    """
    file = str(program)
    if program.suffix == ".pyc" or zipfile.is_zipfile(program):
        runpy.run_path(file, run_name="__main__")
        return
    with io.open_code(file) as source:
        code = compile(source.read(), file, "exec")
    main, before = ModuleType("__main__"), sys.modules["__main__"]
    loader = SourceFileLoader("__main__", file)
    vars(main).update(__file__=file, __builtins__=builtins, __loader__=loader)
    sys.modules["__main__"] = main
    try:
        exec(code, vars(main))
    finally:
        sys.modules["__main__"] = before


def check_module(module: str) -> None:
    """Refuse a module whose package is neither in this folder nor installed; nothing is imported.

    Raises    ValueError for a module that is not there.
    """
    package = module.partition(".")[0]
    with as_main(Path.cwd() / module, ()):
        is_there = bool(package) and importlib.util.find_spec(package) is not None
    if not is_there:
        raise ValueError(
            f"module={module!r} is not there; give a module as python -m takes it, or the path of "
            "a .py file without -m"
        )


def _status(run: Callable[[], object], program: Path, name: str = "") -> int:
    """The status that a program exits with; its name stands for it where no line does."""
    try:
        run()
    except SystemExit as left:
        if not isinstance(left.code, int | None):
            print(left.code, file=sys.stderr)
            return 1
        return left.code or 0
    except Exception as error:
        raise ProgramError(_sentence(error, program, name)) from error
    return 0


@contextmanager
def as_main(program: Path, arguments: Sequence[str]) -> Iterator[None]:
    """sys.argv and sys.path as Python sets them for a program; vendors' names can be imported."""
    before = sys.argv, list(sys.path)
    sys.argv = [str(program), *arguments]
    sys.path.insert(0, str(program.resolve().parent))
    try:
        with vendor_names():
            yield
    finally:
        sys.argv, sys.path[:] = before


def _sentence(error: BaseException, program: Path, name: str = "") -> str:
    """FILE:LINE: what happened, with the last line of the user's own files.

    An error whose `is_in_lines` is true keeps all of its lines.
    """
    folder = program.resolve().parent
    frames = traceback.extract_tb(error.__traceback__)
    users = [f for f in frames if _is_below(Path(f.filename), folder)]
    where = f"{users[-1].filename}:{users[-1].lineno}" if users else name or str(program)
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    text = _names_there(error) or str(error)
    if text.startswith(_IN_GRAPH):
        text = _of_node(text)
    elif not (getattr(error, "is_in_lines", False) or text.startswith(_IN_USER_CODE)):
        text = text.partition("\n")[0]
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"{where}: {type(error).__name__}: {text}" + (f" ({notes})" if notes else "")


def _of_node(text: str) -> str:
    """What a node of TensorFlow's runtime said, out of the stacks around it."""
    lines = text.splitlines()
    end = next((i for i, line in enumerate(lines) if "[[{{node" in line), 0)
    stack = [i for i in range(end) if lines[i].lstrip().startswith(("File ", "Node: "))]
    start = stack[-1] + 1 if stack else 0
    return " ".join(line.strip() for line in lines[start : end + 1] if line.strip())


def _names_there(error: BaseException) -> str:
    """The sentence of a vendor's module that lacks a name which a program imports from it."""
    missing = re.match(r"cannot import name '(\w+)'", str(error))
    if not isinstance(error, ImportError) or missing is None:
        return ""
    module = sys.modules.get(error.name or "")
    if module is None or not hasattr(module, "__getattr__"):
        return ""
    try:
        getattr(module, missing[1])
    except AttributeError as refusal:
        return str(refusal)
    return ""


def _is_below(file: Path, folder: Path) -> bool:
    """Whether a file is the user's own: below the program's folder, and no installed package."""
    if str(file).startswith("<"):  # code that lies in no file
        return False
    return folder in file.resolve().parents and "site-packages" not in file.parts
