"""Exact solvers of convex fits: Newton with leave-one-out, softmax regression, scales, Adam for the few that are not convex."""
