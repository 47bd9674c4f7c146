"""A benchmark folder as one file that anyone can audit: its records, and what every method said of every test node.

    ARCHIVE.zip     plans/NAME.json            which cells stand in which row and column
                    records/KEY.json           what was measured
                    records/KEY.safetensors    log-probabilities and labels of the test nodes

Only finished cells of the plans are packed. The same records give the same bytes: names are sorted, times are not kept.
`graphcal.lab.bench.audit` measures everything again from such a file.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from pathlib import Path

from graphcal.files import atomic_file
from graphcal.lab.bench.records import Store

MEMBER = re.compile(r"plans/[\w.-]+\.json|records/[0-9a-f]{20}\.(json|safetensors)")
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip file can say


def write_archive(folder: Path, file: Path) -> str:
    """Pack the finished cells of every plan of a folder; gives the SHA-256 of the file."""
    plans = sorted((folder / "plans").glob("*.json"))
    if not plans:
        raise ValueError(f"{folder} holds no benchmark: `graphcal bench PRESET --out {folder}` starts one")
    store = Store(folder)
    asked = {key for plan in plans for key in json.loads(plan.read_text(encoding="utf-8"))["cells"]}
    keys = sorted(asked & store.finished())
    paths = [*plans, *(path for key in keys for path in (store.record_path(key), store.nodes_path(key)))]
    with atomic_file(file) as out, zipfile.ZipFile(out, "w") as archive:
        for path in paths:
            member = zipfile.ZipInfo(path.relative_to(folder).as_posix(), EPOCH)
            archive.writestr(member, path.read_bytes(), zipfile.ZIP_LZMA)
    return sha256(file)


def read_archive(file: Path, folder: Path) -> Store:
    """Unpack into an empty folder; a member that does not belong is refused."""
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if not MEMBER.fullmatch(name):
                raise ValueError(f"{file}: {name!r} does not belong in an archive of a benchmark")
        archive.extractall(folder)
    return Store(folder)


def sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
