"""Who produces tokens."""
