"""How far a critic can be trusted."""
