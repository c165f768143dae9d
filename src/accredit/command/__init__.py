"""One module for each command that has grown out of `commands`."""
