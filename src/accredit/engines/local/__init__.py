"""Sampling from a module in this process."""
