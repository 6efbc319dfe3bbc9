"""Compiled loops: numbers in, numbers out, no policy. Importing compiles nothing."""
