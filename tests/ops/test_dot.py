"""dot beyond the matrix."""
