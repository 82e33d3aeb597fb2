"""What is run: a config, its presets, the parts that are built from it, and how students are tested."""
