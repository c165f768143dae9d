"""Who takes gradient steps."""
