"""Numbers and pages about a run."""
