"""Learned calibrators from the literature, one file each: baselines that train a network or run the model again.

They join `graphcal.CALIBRATORS` by entry point, as a calibrator of another package does.
"""

from graphcal.lab.baselines.cagcn import DCGNN, CaGCN
from graphcal.lab.baselines.dcgc import DCGC
from graphcal.lab.baselines.gats import GATS
from graphcal.lab.baselines.gets import GETS
from graphcal.lab.baselines.simcalib import SimCalib
from graphcal.lab.baselines.simi_mailbox import SimiMailbox
from graphcal.lab.baselines.wats import WATS

__all__ = ["DCGC", "DCGNN", "GATS", "GETS", "WATS", "CaGCN", "SimCalib", "SimiMailbox"]
