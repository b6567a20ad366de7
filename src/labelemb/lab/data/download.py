"""An HTTP downloader for pooch that resumes."""

import shutil
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

from tqdm import tqdm

CHUNK = 1 << 16
TIMEOUT_SECONDS = 30


class ResumingDownloader:
    """Called by pooch as downloader(url, output_file, pooch).

    What has arrived is kept in `part` until the file is complete, so a later call asks the server for the rest only.
    pooch checks the finished file; if its checksum is wrong nothing is kept, and the next call starts from nothing.
    """

    def __init__(self, part: Path, *, progress: bool = True) -> None:
        self.part = part
        self.progress = progress

    def __call__(self, url: str, output_file: str, _pooch: Any) -> None:
        have = self.part.stat().st_size if self.part.exists() else 0
        try:
            with self._open(url, have) as response:
                self._receive(response, have if response.status == 206 else 0)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 416 or have == 0:
                raise
            # nothing is left to ask for: the part is complete, or of another file, which the checksum will tell
        except HTTPException as error:
            raise OSError(f"the server's answer broke off: {error!r}") from error
        shutil.move(self.part, output_file)

    def _open(self, url: str, have: int) -> HTTPResponse:
        headers = {"User-Agent": "labelemb", "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)

    def _receive(self, response: HTTPResponse, have: int) -> None:
        """Append to the part, or write it anew if the server sends everything in spite of the range."""
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        bar = tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=self.part.stem, disable=not self.progress)
        with bar, self.part.open("ab" if have else "wb") as part:
            while chunk := response.read(CHUNK):
                part.write(chunk)
                bar.update(len(chunk))
        arrived = self.part.stat().st_size
        if total is not None and arrived < total:
            raise OSError(f"the connection broke after {arrived} of {total} bytes")
