"""Sites of several versions in one folder, each with a list that leads to the others.

    python docs/extensions/versions.py SITE FOLDER

copies a built site to FOLDER/VERSION and writes FOLDER/versions.js, which tells the script of every
page which versions there are and which pages each has. Sites that lie there already stay.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

__all__ = ["add", "version_of"]


def version_of(site: Path) -> str:
    """The version that a built site is of, by its inventory."""
    with (site / "objects.inv").open("rb") as file:
        head = [file.readline().decode() for _ in range(3)]
    return head[2].removeprefix("# Version:").strip()


def _order(name: str) -> list[tuple[bool, int, str]]:
    """Numbers of a version in their order, those without an addition after those with one.

    >>> sorted(["1.10.0", "1.2.0", "1.2.0rc1"], key=_order)
    ['1.2.0rc1', '1.2.0', '1.10.0']
    """
    parts = [*re.findall(r"\d+|[a-z]+", name), "~"]
    return [(part == "~" or part.isdigit(), int(part) if part.isdigit() else 0, part)
            for part in parts]


def add(site: Path, folder: Path) -> Path:
    """Copy a site into the folder of versions and tell all of them of it; where it lies now."""
    target = folder / version_of(site)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(site, target)
    sites = [path for path in folder.iterdir() if (path / "objects.inv").is_file()]
    names = sorted((path.name for path in sites), key=_order, reverse=True)
    pages = {
        name: sorted(page.relative_to(folder / name).as_posix()
                     for page in (folder / name).rglob("*.html"))
        for name in names
    }
    told = json.dumps({"names": names, "pages": pages}, indent=0)
    (folder / "versions.js").write_text(f"window.FPSIM_VERSIONS = {told};\n", encoding="utf-8")
    return target


if __name__ == "__main__":
    print(add(Path(sys.argv[1]), Path(sys.argv[2])) / "index.html")
