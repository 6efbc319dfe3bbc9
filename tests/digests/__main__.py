"""The program: python -m tests.digests [--write] [NAME ...]."""

from __future__ import annotations

import argparse
import json
import sys

from tests import digests
from tests.digests import CASES, GOLDEN, golden, run


def main(arguments: list[str] | None = None) -> int:
    """Compare with the recorded digests; 1 if any differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.digests", description=digests.__doc__)
    parser.add_argument("names", nargs="*", help="cases, or how their names begin")
    parser.add_argument("--write", action="store_true", help="record the new digests")
    options = parser.parse_args(arguments)
    before = golden() if GOLDEN.exists() else {}
    begins = tuple(options.names) or ("",)
    after = {name: run(name) for name in CASES if name.startswith(begins)}
    differing = sorted(name for name in after if before.get(name) != after[name])
    gone = sorted(before.keys() - CASES.keys())
    for name in differing:
        print("new " if name not in before else "differs ", name, *sorted(CASES[name].tags))
    for name in gone:
        print("gone ", name)
    print(f"{len(after)} cases, {len(differing)} differ or are new, {len(gone)} are gone")
    if options.write:
        by_case = {name: value for name, value in (before | after).items() if name in CASES}
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(by_case, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return int(bool(differing or gone))


if __name__ == "__main__":
    sys.exit(main())
