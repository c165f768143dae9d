"""A step's record as numbers."""
