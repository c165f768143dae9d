"""What a reader of the numbers would call out."""
