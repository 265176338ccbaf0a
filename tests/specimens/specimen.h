// Pairs of a faulty kernel and its clean twin: one text, `Bad` is the difference. A comment "expect: KIND" stands at the line that a
// report of the faulty one has to name. The program runs the kernel that its arguments name: NAME bad|good.
#pragma once
#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

struct Args {
  float* x;  // [n] initialised
  float* y;  // [n] not initialised
  int* i;    // [n] zero
  int n;     // 256
};
struct Specimen {
  const char* name;
  void (*bad)(Args);
  void (*good)(Args);
  unsigned grid, block;
  size_t dynamic_bytes;
};
#define SPECIMEN(NAME, GRID, BLOCK, BYTES) {#NAME, NAME<true>, NAME<false>, GRID, BLOCK, BYTES}

template <size_t N>
int run_specimen(const Specimen (&all)[N], int argc, char** argv) {
  for (const Specimen& s : all) {
    if (argc < 3 || strcmp(s.name, argv[1]) != 0) continue;
    Args a;
    a.n = 256;
    cudaMalloc(&a.x, a.n * sizeof(float));
    cudaMalloc(&a.y, a.n * sizeof(float));
    cudaMalloc(&a.i, a.n * sizeof(int));
    float h[256];
    for (int i = 0; i < a.n; ++i) h[i] = float(i);
    cudaMemcpy(a.x, h, sizeof h, cudaMemcpyHostToDevice);
    cudaMemset(a.i, 0, a.n * sizeof(int));
    (strcmp(argv[2], "bad") == 0 ? s.bad : s.good)<<<s.grid, s.block, s.dynamic_bytes>>>(a);
    cudaDeviceSynchronize();
    cudaFree(a.x);
    cudaFree(a.y);
    cudaFree(a.i);
    return 0;
  }
  for (const Specimen& s : all) printf("%s\n", s.name);
  return 0;
}
