"""elementwise beyond the matrix."""
