"""Predictions as tables of files: what other frameworks wrote, read with nothing guessed."""
