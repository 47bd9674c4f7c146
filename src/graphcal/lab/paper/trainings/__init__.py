"""Trainings that exist to reproduce the SCAR paper (arXiv:2505.11335), as files for `graphcal.lab.training.published`.

scar-code  what SCAR's official code trains, with the settings of the paper's two tables
"""

from importlib.resources import files

SCAR_CODE = files(__name__) / "scar-code.toml"
