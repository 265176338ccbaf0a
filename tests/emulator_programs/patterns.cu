// Five accesses of known pattern, a line each.
#include <cuda_runtime.h>

__global__ void patterns(const float* x, float* y) {
  __shared__ float s[32 * 33];
  int i = blockIdx.x * 32 + threadIdx.x;
  float a = x[i];              // line 7: neighbours: 4 sectors
  float b = x[32 * (i % 32)];  // line 8: a column: 32 sectors
  float c = x[7];              // line 9: all the same: 1 sector
  for (int k = 0; k < 33; ++k) s[32 * k + threadIdx.x] = a;  // line 10: a bank a lane
  __syncthreads();
  float d = s[32 * threadIdx.x];  // line 12: one bank: 31 conflicts
  float e = s[33 * threadIdx.x];  // line 13: padded: none
  y[i] = a + b + c + d + e;
}

int main() {
  float *x, *y;
  cudaMalloc(&x, 4096);
  cudaMalloc(&y, 4096);
  cudaMemset(x, 0, 4096);
  patterns<<<2, 32>>>(x, y);
  cudaFree(x);
  cudaFree(y);
  return 0;
}
