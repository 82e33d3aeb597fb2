"""Everything that exists because of a compiler: devices, kept programs, flags, tricks."""
