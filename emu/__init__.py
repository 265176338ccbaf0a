"""The emulated legs: numba.cuda ports and their scheduler (`emu.simt`), and the host emulator for CUDA source (`emu.host`)."""
