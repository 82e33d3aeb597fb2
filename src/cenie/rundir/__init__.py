"""The run directory: the writer and the reader of every file, side by side."""
