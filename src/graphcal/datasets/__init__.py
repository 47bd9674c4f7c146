"""Named graphs and protocols, synthetic graphs, and your own files, all as a PyG `Data`."""

from graphcal.datasets.blockmodel import synthetic
from graphcal.datasets.catalog import NAMES
from graphcal.datasets.loading import load
from graphcal.datasets.own_files import read
from graphcal.datasets.protocols import PROTOCOLS

__all__ = ["NAMES", "PROTOCOLS", "load", "read", "synthetic"]
