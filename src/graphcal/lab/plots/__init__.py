"""Figures of the laboratory, drawn on a given axis: curves over runs, searches, explanations."""
