// A program that ends in the way that its first argument names.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include "whole.h"

__global__ void endless(int* p) {
  volatile int* v = p;
  while (*v == 0) {  // line 10
  }
}
__global__ void wild(int* p) { p[1l << 40] = 1; }  // line 13
__global__ void racing(int* p) {
  p[0] += threadIdx.x;  // line 15
}
__global__ void babbling() {
  for (;;) printf("and so on\n");
}
__global__ void by_order(int* p) {
  if (p[0] < int(threadIdx.x)) atomicExch(p, int(threadIdx.x));
}

int main(int argc, char** argv) {
  int *p, h = 0;
  cudaMalloc(&p, sizeof(int));
  cudaMemset(p, 0, sizeof(int));
  switch (argc > 1 ? argv[1][0] : 0) {
    case 'a': printf("%d %s %s\n", argc, argv[2], argv[3]); break;
    case 'b': babbling<<<1, 1>>>(); break;
    case 'g':
      for (;;) memset(malloc(1 << 24), 1, 1 << 24);
    case 'd': printf("%d %d\n", ANSWER, FROM_HEADER); break;
    case 'e': return 7;
    case 'h': *static_cast<volatile int*>(nullptr) = 3; break;  // line 35
    case 'l': wild<<<1, 2000>>>(p); break;  // line 36
    case 'o': by_order<<<1, 64>>>(p); cudaMemcpy(&h, p, 4, cudaMemcpyDeviceToHost); return h == 63 ? 0 : 3;
    case 'r': racing<<<1, 32>>>(p); break;
    case 's': endless<<<1, 1>>>(p); break;
    case 'w': wild<<<1, 1>>>(p); printf("%d\n", cudaDeviceSynchronize()); break;
    case 'x': cudaMemcpy(&h, p, 8, cudaMemcpyDeviceToHost); cudaFree(p); cudaFree(p); return 0;  // line 41
    case 'y': printf("%d %d\n", cudaMemset(p, 0, 1 << 20), cudaMemcpy(p, argv, 1 << 20, cudaMemcpyDefault)); break;  // line 42
    case 'i': printf("%d\n", int(getpid())); fflush(stdout); endless<<<1, 1>>>(p); break;
    case 'p': {
      cudaDeviceProp properties;
      cudaGetDeviceProperties(&properties, 0);
      printf("%d.%d %d\n", properties.major, properties.minor, int(properties.sharedMemPerBlockOptin));
      break;
    }
  }
  if (argc > 1 && argv[1][0] == 'm') return 0;
  cudaFree(p);
  return 0;
}
