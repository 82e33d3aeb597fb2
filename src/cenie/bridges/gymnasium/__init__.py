"""The library's environments as environments of gymnasium."""
