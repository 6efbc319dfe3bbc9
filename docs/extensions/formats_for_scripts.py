"""The catalogue of formats as a script, for pages that compute in the browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fpsim.context import Context
from fpsim.records.formats import CATALOGUE, Format

if TYPE_CHECKING:
    from sphinx.application import Sphinx

#: Its name among the static files.
NAME = "formats.js"


def formats() -> list[dict[str, Any]]:
    """What a script needs of each format, in the order of the catalogue."""
    return [
        {
            "name": fmt.name, "exponentBits": fmt.exponent_bits, "precision": fmt.precision,
            "bias": fmt.bias, "specials": fmt.specials,
            "overflow": Context(fmt).settings.overflow,
            "infinite": "infinity" if fmt.has_infinity else Context(fmt).settings.overflow,
            "randomBits": max(fmt.sr_bits_max, 0),
        }
        for fmt in CATALOGUE.values()
        if isinstance(fmt, Format)
    ]


def script() -> str:
    return f"const FORMATS = {json.dumps(formats())};\n"


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        Path(app.outdir, "_static", NAME).write_text(script(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}
