"""Causal language models: reading, checking, running and stepping them."""
