"""A critic without a head, asked in words."""
