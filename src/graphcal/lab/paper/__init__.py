"""The reproduction of SCAR (arXiv:2505.11335): presets, published numbers, bug-compatible variants, agreement.

Nothing imports this package: its parts register through graphcal's own entry points, as any third party's would.
"""
