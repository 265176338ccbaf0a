// Sum of n numbers: grid-stride loop, shared tree, shuffles in the last warp, and the last block adds the partial sums.
#include "program.h"

__device__ unsigned arrived = 0;

template <unsigned Threads>
__global__ void __launch_bounds__(Threads) sum(const float* x, float* partial, float* total, int n) {
  __shared__ float s[Threads];
  __shared__ bool last;
  float v = 0;
  for (int i = blockIdx.x * Threads + threadIdx.x; i < n; i += gridDim.x * Threads) v += x[i];
  s[threadIdx.x] = v;
  __syncthreads();
#pragma unroll
  for (unsigned d = Threads / 2; d >= 32; d /= 2) {
    if (threadIdx.x < d) s[threadIdx.x] = v = v + s[threadIdx.x + d];
    __syncthreads();
  }
  if (threadIdx.x < 32) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xFFFFFFFFu, v, d);
    if (threadIdx.x == 0) {
      partial[blockIdx.x] = v;
      __threadfence();
      last = atomicInc(&arrived, gridDim.x) == gridDim.x - 1;
    }
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float t = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) t += partial[b];
    *total = t;
    arrived = 0;
  }
}

int main(int argc, char** argv) {
  int n = argc > 1 ? atoi(argv[1]) : 10007;
  std::vector<float> x = numbers(n);
  float *d = upload(x), *partial = fresh<float>(16), *total = fresh<float>(1);
  float want = 0;
  for (float v : x) want += v;
  bool good = true;
  for (int round = 0; round < 2; ++round) {
    sum<128><<<16, 128>>>(d, partial, total, n);
    CHECK(cudaGetLastError());
    good = good && close(download(total, 1), {want});
  }
  return verdict(good);
}
