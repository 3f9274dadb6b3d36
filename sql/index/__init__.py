"""The tables of a generation, their partitions, and the search in them."""
