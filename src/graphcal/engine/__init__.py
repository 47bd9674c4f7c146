"""Numerics the product stands on. Semi-public: no guarantees."""
