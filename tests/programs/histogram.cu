// Counts of bytes: atomics in dynamic shared memory, then in global memory; constants by symbol.
#include "program.h"

__constant__ int bins_of[2];
__device__ unsigned long long total;

__global__ void histogram(const unsigned char* data, int n, unsigned* counts) {
  extern __shared__ unsigned local[];
  int bins = bins_of[0], shift = bins_of[1];
  for (int i = threadIdx.x; i < bins; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[data[i] >> shift], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < bins; i += blockDim.x) {
    if (local[i] != 0) atomicAdd(&counts[i], local[i]);
    atomicAdd(&total, (unsigned long long)local[i]);
  }
}

int main() {
  int n = 20000, settings[2] = {64, 2};
  std::vector<unsigned char> data(n);
  std::vector<unsigned> want(64);
  unsigned seed = 7;
  for (auto& d : data) want[(d = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24)) >> 2]++;
  CHECK(cudaMemcpyToSymbol(bins_of, settings, sizeof settings));
  unsigned char* d = upload(data);
  unsigned* counts = fresh<unsigned>(64);
  CHECK(cudaMemset(counts, 0, 64 * sizeof(unsigned)));
  histogram<<<dim3(6), 96, 64 * sizeof(unsigned)>>>(d, n, counts);
  unsigned long long all = 0;
  CHECK(cudaMemcpyFromSymbol(&all, total, sizeof all));
  return verdict(all == (unsigned long long)n && close(download(counts, 64), want));
}
