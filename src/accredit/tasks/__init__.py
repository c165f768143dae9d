"""Problems, and how they are asked and checked."""
