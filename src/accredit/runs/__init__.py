"""A recipe as a run: wiring, sessions, going on."""
