"""One small file an algorithm, and the names they go by."""
