"""Numerics of training many replicas of a graph neural network at once."""
