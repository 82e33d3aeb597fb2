"""The command line: one module for each command, which refuses what is wrong before a backend is started."""
