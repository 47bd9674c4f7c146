"""Every table and figure of the SCAR paper, and a few of ours, as presets of `graphcal bench`: the TOML files beside this one."""
