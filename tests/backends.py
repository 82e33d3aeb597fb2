"""Whether a process has started a backend of JAX, asked in a line of code that another process runs."""

STARTED = "bool((bridge := sys.modules.get('jax._src.xla_bridge')) and bridge._backends)"
"""True once a backend was started; the module `sys` must be there."""
