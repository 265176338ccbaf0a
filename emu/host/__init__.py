"""The host emulator: compiles a .cu file with g++ or clang++ and runs it on the CPU. See README.md beside this file."""
