// The whole runtime as one translation unit: built once into a shared library that all programs of a process use together.
#include "fiber.cpp"
#include "worker.cpp"
#include "scheduler.cpp"
#include "collective.cpp"
#include "fault.cpp"
#include "launch.cpp"
#include "device.cpp"
#include "memory.cpp"
