"""The operating system: files that survive a crash, streams that may break, signals."""
