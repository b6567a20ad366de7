"""Downloads published data sets, checks their checksums, and resumes partial downloads.

The checksums are MD5 because that is what the publishers state: Fashion-MNIST's in the table of its README, CIFAR's on
its home page beside the archives, MNIST's as its mirrors list them (and as the files from its home page have them).
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from labelemb.lab.data.files import ENVIRONMENT_VARIABLE, ResumingDownloader, user_cache
from labelemb.lab.data.images.cifar import CIFAR10, CIFAR100
from labelemb.lab.data.images.idx import FILES
from labelemb.support.errors import UserError
from labelemb.support.wording import did_you_mean

# a server to ask in place of the publishers; it has the files of set NAME under NAME/
MIRROR_VARIABLE = "LABELEMB_MIRROR"


@dataclass(frozen=True)
class Source:
    """A data set that can be downloaded: from where, into which folder, and the MD5 sum of each file."""

    addresses: tuple[str, ...]
    folder: str
    files: Mapping[str, str]


def _idx_files(*sums: str) -> dict[str, str]:
    return {f"{name}.gz": checksum for name, checksum in zip(FILES, sums, strict=True)}


SOURCES = {
    "mnist": Source(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        "mnist",
        _idx_files(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    "fashion-mnist": Source(
        (
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        "fashion-mnist",
        _idx_files(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    "cifar10": Source(
        ("https://www.cs.toronto.edu/~kriz/",), "", {CIFAR10.archive: "c32a1d4ab5d03f1284b67883e8d87530"}
    ),
    "cifar100": Source(
        ("https://www.cs.toronto.edu/~kriz/",), "", {CIFAR100.archive: "03b5dce01913d631647c71ecec9e9cb8"}
    ),
}


def fetchable_names() -> list[str]:
    """Names that `fetch` knows."""
    return list(SOURCES)


def fetch_root() -> Path:
    """Where downloads go unless told otherwise: $LABELEMB_DATA, else the user's cache folder."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(named) if named else user_cache()


def fetch(name: str, folder: Path | None = None, *, progress: bool = True) -> Path:
    """Download a data set into `folder` (see `fetch_root`) and give the path to pass as --data.

    Files that are there with the right checksum stay; a download that broke off goes on where it stopped.
    """
    if name not in SOURCES:
        known = fetchable_names()
        raise UserError(f"cannot fetch {name!r}{did_you_mean(name, known)} (there are {', '.join(known)})")
    source = SOURCES[name]
    target = (folder or fetch_root()) / source.folder
    mirror = os.environ.get(MIRROR_VARIABLE)
    if mirror and not mirror.startswith(("http://", "https://")):
        raise UserError(f"{MIRROR_VARIABLE} is {mirror!r}, but must begin with http:// or https://")
    addresses = (f"{mirror.rstrip('/')}/{name}/",) if mirror else source.addresses
    for file, checksum in source.files.items():
        _fetch_file(file, checksum, addresses, target, list(source.files), progress)
    return target if source.folder else target / next(iter(source.files))


def _fetch_file(
    file: str, checksum: str, addresses: tuple[str, ...], target: Path, every_file: list[str], progress: bool
) -> None:
    """One file from the first address that gives it whole."""
    import pooch

    pooch.get_logger().setLevel("WARNING")  # the progress bar says it already
    downloader = ResumingDownloader(target / f"{file}.part", progress=progress)
    reasons = []
    for address in addresses:
        try:
            pooch.retrieve(address + file, f"md5:{checksum}", fname=file, path=target, downloader=downloader)
            return
        except ValueError as error:  # pooch's word for a wrong checksum; the file is gone by now
            found = re.search(r"but got ([0-9a-f]{32})", str(error))
            got = f", got {found[1]}" if found else ""
            reasons.append(f"{address + file}: MD5 mismatch, expected {checksum}{got}")
        except OSError as error:
            reasons.append(f"{address + file}: {getattr(error, 'reason', error)}")
    raise UserError(
        f"cannot download {file} ({'; '.join(reasons)}); run again to resume, or put {', '.join(every_file)} "
        f"into {target} yourself"
    )
