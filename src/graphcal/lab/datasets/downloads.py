"""One file from the network, whole and of a sensible size, or nothing.

Only https, also after a redirect. A download ends after so many bytes and so many seconds in all, however slowly they come
(`files`). A web page in the place of data (a login, a notice) is refused.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit

from graphcal.files import ANSWER_SECONDS, DOWNLOAD, DOWNLOAD_SECONDS, atomic_file

SCHEMES = ("https",)
CHUNK = 1 << 16


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request: Any, answer: Any, code: int, message: str, headers: Any, address: str) -> Any:
        _check_scheme(address)
        return super().redirect_request(request, answer, code, message, headers, address)


def _check_scheme(url: str) -> None:
    if urlsplit(url).scheme not in SCHEMES:
        raise URLError(f"{url} is not {' or '.join(SCHEMES)}: what comes from there could be changed on the way")


def download(url: str, file: Path) -> None:
    """Fetch one file with progress on stderr; it appears under its name when it is complete."""
    from rich.console import Console
    from rich.progress import Progress

    try:
        _check_scheme(url)
        opener = urllib.request.build_opener(_SafeRedirects)
        with atomic_file(file) as out, opener.open(url, timeout=ANSWER_SECONDS) as answer:
            announced = int(answer.headers.get("Content-Length") or 0)
            with Progress(console=Console(file=sys.stderr), transient=True) as bar:
                task = bar.add_task(f"fetching {file.name}", total=announced or None)
                length = _copy(answer, out, announced, lambda done: bar.update(task, completed=done))
            if not length:
                raise ConnectionError("the answer is empty")
            if announced and length != announced:
                raise ConnectionError(f"{length} of {announced} bytes came")
    except (OSError, ValueError) as fault:
        raise ConnectionError(f"{url}: {fault}") from fault


def _copy(answer: Any, out: Any, announced: int, tell: Any) -> int:
    """The length of what came; refused as soon as it is too long, too slow, or a web page."""
    end, length = time.monotonic() + DOWNLOAD_SECONDS, 0
    if announced > DOWNLOAD:
        raise ConnectionError(f"{announced:,} bytes are announced; at most {DOWNLOAD:,} are fetched")
    while chunk := answer.read1(CHUNK):
        if not length and chunk.lstrip()[:1] == b"<":
            raise ConnectionError("a web page came in the place of the data: a login, perhaps, or a notice")
        out.write(chunk)
        length += len(chunk)
        tell(length)
        if length > DOWNLOAD:
            raise ConnectionError(f"more than {DOWNLOAD:,} bytes came")
        if time.monotonic() > end:
            raise ConnectionError(f"not complete after {DOWNLOAD_SECONDS:.0f} seconds")
    return length
