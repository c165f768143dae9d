"""Who calls whom, step after step."""
