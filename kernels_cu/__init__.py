"""The CUDA sources, one a kernel, and the code that builds a specialisation of one."""
