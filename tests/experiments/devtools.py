"""Chromium driven through a pipe: pages are opened, keys pressed, scripts run (its DevTools).

Source    Chrome DevTools Protocol 1.3 (Target, Page, Emulation, Input, Runtime); messages are JSON
          between zero bytes where the browser was started with --remote-debugging-pipe.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.browser import NAMES, QUIET

#: Becomes the browser, which reads messages from descriptor 3 and writes them to descriptor 4.
_START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
#: Once it is quiet: fonts are there, two frames are drawn.
_DRAWN = """document.fonts.ready.then(() => new Promise((done) =>
  requestAnimationFrame(() => requestAnimationFrame(() => done(true)))))"""


class Tab:
    """One page of a browser."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)
        self._session = ""
        self._loaded = False
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self._call("Page.enable")

    def open(self, url: str) -> None:
        """Show the page at an address."""
        self._loaded = False
        self._call("Page.navigate", url=url)
        self._wait()

    def follow(self, script: str) -> None:
        """Run a script that leads to another page, and wait until that one is shown.

        Nothing is asked in between: a question to a page that is being left is an error.
        """
        self._loaded = False
        self.evaluate(script)
        self._wait()

    def show(self, width: int = 1000, *, dark: bool = False, height: int = 900) -> None:
        """Give the window a size, and the page one of two schemes of colours."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                   deviceScaleFactor=1, mobile=False)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self._call("Emulation.setEmulatedMedia", features=features)
        self.evaluate(_DRAWN)

    def evaluate(self, script: str) -> Any:
        """The value of an expression of JavaScript; of a promise, what it becomes."""
        told = self._call("Runtime.evaluate", expression=script, awaitPromise=True,
                          returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key, as Tab, 9."""
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self._call("Input.dispatchKeyEvent", **down, **about)
        self._call("Input.dispatchKeyEvent", type="keyUp", **about)

    def _call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        self._writer.flush()
        while (answer := self._message()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _wait(self) -> None:
        while not self._loaded:
            self._note(self._message())
        self.evaluate(_DRAWN)

    def _note(self, message: dict[str, Any]) -> None:
        self._loaded |= message.get("method") == "Page.loadEventFired"

    def _message(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._reader.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            text += byte
        message: dict[str, Any] = json.loads(text)
        return message


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """A page of a new Chromium; skips the test where there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium on the PATH")
    commands, answers = os.pipe(), os.pipe()
    line = [sys.executable, "-c", _START, str(commands[0]), str(answers[1]), program, *QUIET,
            f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe"]
    process = subprocess.Popen(line, pass_fds=(commands[0], answers[1]),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(commands[0])
    os.close(answers[1])
    with os.fdopen(answers[0], "rb") as reader, os.fdopen(commands[1], "wb") as writer:
        try:
            yield Tab(reader, writer)
        finally:
            process.terminate()
            process.wait(timeout=60)
