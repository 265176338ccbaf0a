"""Tests: one ``test_<stem>.py`` a kernel, with its cases, and the tests of everything that kernels stand on."""
