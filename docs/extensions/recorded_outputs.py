"""What code on the site prints is compared with a record, byte for byte.

Results of fpsim do not depend on the machine, so a page whose output changes is an error of the
build, with the difference. `FPSIM_RECORD=1 make site` writes the records anew, for a commit that
means the change. A cell whose output may differ (times, processors) has the tag `varies`.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

RECORDS = Path(__file__).parents[1] / "outputs"
logger = logging.getLogger(__name__)


def _cells(document: nodes.document) -> list[str]:
    """The text that each executed cell of a page shows; those that vary are left out."""
    texts = []
    for cell in document.findall(nodes.container):
        if cell.get("nb_element") != "cell_code" or "tag_varies" in cell["classes"]:
            continue
        texts += [
            block.astext()
            for output in cell.children
            if isinstance(output, nodes.container)
            and output.get("nb_element") == "cell_code_output"
            for block in output.findall(nodes.literal_block)
        ]
    return texts


def _compare(app: Sphinx, document: nodes.document) -> None:
    page = app.env.current_document.docname
    text = "\n---\n".join(_cells(document))
    if not text:
        return
    record = RECORDS / f"{page}.txt"
    if os.environ.get("FPSIM_RECORD"):
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(text + "\n", encoding="utf-8")
        return
    expected = record.read_text(encoding="utf-8") if record.exists() else ""
    if expected != text + "\n":
        difference = difflib.unified_diff(
            expected.splitlines(), text.splitlines(), str(record), "this build", lineterm=""
        )
        logger.warning(
            "outputs of %s changed:\n%s", page, "\n".join(difference), type="fpsim", subtype="bits"
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", _compare)
    return {"parallel_read_safe": True}
