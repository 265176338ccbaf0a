// Bitonic sort of a block's keys in shared memory, and across blocks in global memory, a launch a step.
#include "program.h"

__device__ inline void order(unsigned& a, unsigned& b, bool up) {
  if ((a > b) == up) {
    unsigned t = a;
    a = b;
    b = t;
  }
}

__global__ void step(unsigned* keys, unsigned j, unsigned k) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ j;
  if (other > i) order(keys[i], keys[other], (i & k) == 0);
}

__global__ void finish(unsigned* keys, unsigned k) {  // all steps whose partners lie in the block
  extern __shared__ unsigned s[];
  unsigned first = blockIdx.x * blockDim.x;
  s[threadIdx.x] = keys[first + threadIdx.x];
  __syncthreads();
  for (unsigned j = blockDim.x / 2 < k / 2 ? blockDim.x / 2 : k / 2; j > 0; j /= 2) {
    unsigned other = threadIdx.x ^ j;
    if (other > threadIdx.x) order(s[threadIdx.x], s[other], ((first + threadIdx.x) & k) == 0);
    __syncthreads();
  }
  keys[first + threadIdx.x] = s[threadIdx.x];
}

int main() {
  const unsigned n = 1024, block = 128;
  std::vector<unsigned> x(n);
  unsigned seed = 3, wrong = 0;
  unsigned long long sum = 0, after = 0;
  for (unsigned& v : x) sum += v = (seed = seed * 1664525u + 1013904223u) >> 4;
  unsigned* d = upload(x);
  for (unsigned k = 2; k <= n; k *= 2) {
    for (unsigned j = k / 2; j >= block; j /= 2) step<<<n / block, block>>>(d, j, k);
    finish<<<n / block, block, block * sizeof(unsigned)>>>(d, k);
  }
  x = download(d, n);
  for (unsigned i = 0; i < n; ++i) {
    after += x[i];
    wrong += i > 0 && x[i - 1] > x[i];
  }
  CHECK(cudaFree(d));
  return verdict(wrong == 0 && sum == after);
}
