"""What a run can be told. Loads no torch."""
