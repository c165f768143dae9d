"""What lies on disk: files, run directories, checkpoints."""
