"""Domains: levels, dynamics, generators, editors and held-out suites. Knows nothing of students."""
