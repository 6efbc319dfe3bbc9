"""fpsim data: list the data sets, or download one with its checksums."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import click

from ipu.experiments.commands.options import bad_input, completing

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_CIFAR = "https://www.cs.toronto.edu/~kriz/"

#: Folder -> (where its files lie, {file: checksum as its publishers or torchvision give it}).
SOURCES: dict[str, tuple[str, dict[str, str]]] = {
    "mnist": (_MNIST, {
        "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
    }),
    "fashion-mnist": (_FASHION, {
        "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    }),
    "cifar10": (_CIFAR, {
        "cifar-10-binary.tar.gz":
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    }),
}
#: The folder inside CIFAR-10's archive.
INSIDE = "cifar-10-batches-bin"


@click.command("data")
@click.argument(
    "names", nargs=-1, metavar="[NAME...]", shell_complete=completing(lambda: [*SOURCES, "all"])
)
@click.option("--to", type=click.Path(path_type=Path), default=None,
              help="Folder of the data sets (default: FPSIM_DATA).")
def command(names: tuple[str, ...], to: Path | None) -> int:
    """Say which data sets are there; with names (or all), download those that are not."""
    with bad_input():
        to = _folder(to, bool(names))
        data_sets = _data_sets(names)
    if not names:
        for line in _listing(to):
            print(line)
        return 0
    for name in data_sets:
        _download(name, to / name)
        print(f"{name} is in {to / name}")
    return 0


def _folder(to: Path | None, needed: bool) -> Path:
    folder = to or os.environ.get("FPSIM_DATA")
    if needed and not folder:
        raise ValueError("no folder is named; use --to FOLDER, or set FPSIM_DATA")
    return Path(folder or ".")


def _data_sets(names: tuple[str, ...]) -> list[str]:
    if names == ("all",):
        return list(SOURCES)
    for name in names:
        if name not in SOURCES:
            raise ValueError(f"data={name!r} is not known; use {', '.join(SOURCES)} or all")
    return list(names)


def _listing(to: Path) -> Iterator[str]:
    from ipu.feed.data import SETS

    for name, load in SETS.items():
        try:
            state = load(data_dir=to).source
        except ValueError as error:
            state = str(error)
        yield f"{name:14} {state}"


def _extract(file: str, action: str, _: object) -> None:
    """Extract an archive beside it: no links, no paths or files outside the folder."""
    with tarfile.open(file) as archive:
        archive.extractall(Path(file).parent, filter="data")


def _download(name: str, folder: Path) -> None:
    import pooch

    url, files = SOURCES[name]
    processor = _extract if name == "cifar10" else None
    for file, checksum in files.items():
        try:
            pooch.retrieve(
                url + file, checksum, file, folder, processor=processor, progressbar=True
            )
        except (OSError, ValueError, tarfile.TarError) as error:
            raise click.ClickException(f"{file} was not downloaded: {error}") from None
    for path in (folder / INSIDE).glob("*.bin"):
        os.replace(path, folder / path.name)
