"""A value head on a backbone."""
