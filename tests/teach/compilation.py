"""Programs as users have them. With the flags of the tests, a last bit depends on the rest of the program."""

AS_USERS_COMPILE_IT = {"xla_backend_optimization_level": 3}
"""Options of XLA's, for `CompiledCycles`."""
