"""Benchmarks: every table and figure of the SCAR paper, and a few of ours, each made by one command."""
