"""Presets of this library's own: the TOML files beside this one."""
