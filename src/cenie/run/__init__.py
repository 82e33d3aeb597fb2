"""All input and output: configs, training loop, checkpoints, metrics, evaluation, command line."""
