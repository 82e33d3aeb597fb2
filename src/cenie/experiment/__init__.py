"""The description of a run: a config, its presets, the parts built from it, and the tests of students."""
