"""Who estimates V of a prefix."""
