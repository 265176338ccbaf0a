// Launches at the limits and one beyond them. Valid CUDA: a GPU must return the same codes.
#include <cuda_runtime.h>

__global__ void fine(int* out) {
  if (threadIdx.x == 0 && blockIdx.x == 0) *out = 1;
}
__global__ void __launch_bounds__(128, 2) bounded(int* out) { out[0] = 1; }
__global__ void dynamic(int* out) {
  extern __shared__ int d[];
  d[threadIdx.x] = 3;
  out[0] = d[threadIdx.x];
}
__global__ void both(int* out) {
  __shared__ int fixed[1024];
  extern __shared__ int d[];
  fixed[threadIdx.x] = d[threadIdx.x] = 3;
  out[0] = fixed[threadIdx.x];
}
extern "C" int limits(int which, long long value, int* out) {
  switch (which) {
    case 0: fine<<<dim3(unsigned(value)), 1>>>(out); break;
    case 1: fine<<<dim3(1, unsigned(value)), 1>>>(out); break;
    case 2: fine<<<dim3(1, 1, unsigned(value)), 1>>>(out); break;
    case 3: fine<<<1, dim3(unsigned(value))>>>(out); break;
    case 4: fine<<<1, dim3(1, 1, unsigned(value))>>>(out); break;
    case 5: bounded<<<1, unsigned(value)>>>(out); break;
    case 6: dynamic<<<1, 1, size_t(value)>>>(out); break;
    case 7: return cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, int(value));
    case 8: both<<<1, 1, size_t(value)>>>(out); break;
    case 9: return cudaFuncSetAttribute((const void*)both, cudaFuncAttributeMaxDynamicSharedMemorySize, int(value));
  }
  return cudaGetLastError();
}
