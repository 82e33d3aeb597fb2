"""The student's networks: a file each, with its settings, and the table of them."""
