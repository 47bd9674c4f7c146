"""Variants that imitate published code, slips included. For reproduction only; each says what it imitates."""
