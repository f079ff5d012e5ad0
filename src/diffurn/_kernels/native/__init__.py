"""C kernels for CPUs, and the calls of them."""
