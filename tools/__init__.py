"""The command line ``samebits`` and what it calls."""
