// Inclusive prefix sums: within warps by shuffles, over a block by shared memory, over blocks by a second kernel. Streams and events.
#include "program.h"

constexpr int kBlock = 256;

__device__ __forceinline__ int warp_scan(int v) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    int before = __shfl_up_sync(0xFFFFFFFFu, v, d);
    if (lane >= d) v += before;
  }
  return v;
}

__global__ void scan_blocks(const int* in, int* out, int* sums, int n) {
  __shared__ int warps[kBlock / 32];
  int i = blockIdx.x * kBlock + threadIdx.x;
  int v = warp_scan(i < n ? in[i] : 0);
  if (threadIdx.x % 32 == 31) warps[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x < 32) {
    int w = warp_scan(threadIdx.x < kBlock / 32 ? warps[threadIdx.x] : 0);
    __syncwarp();
    if (threadIdx.x < kBlock / 32) warps[threadIdx.x] = w;
  }
  __syncthreads();
  if (threadIdx.x >= 32) v += warps[threadIdx.x / 32 - 1];
  if (i < n) out[i] = v;
  if (threadIdx.x == kBlock - 1) sums[blockIdx.x] = v;
}

__global__ void add_before(int* out, const int* sums, int n) {
  int i = blockIdx.x * kBlock + threadIdx.x, before = 0;
  for (int b = 0; b < blockIdx.x; ++b) before += sums[b];
  if (i < n) out[i] += before;
}

int main() {
  int n = 5000, blocks = (n + kBlock - 1) / kBlock;
  std::vector<int> x(n), want(n);
  for (int i = 0, t = 0; i < n; ++i) want[i] = t += x[i] = (i * 37) % 101 - 50;
  int *in = upload(x), *out = fresh<int>(n), *sums = fresh<int>(blocks);
  cudaStream_t stream;
  cudaEvent_t begin, end;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaEventRecord(begin, stream));
  scan_blocks<<<blocks, kBlock, 0, stream>>>(in, out, sums, n);
  add_before<<<blocks, kBlock, 0, stream>>>(out, sums, n);
  CHECK(cudaEventRecord(end, stream));
  CHECK(cudaStreamSynchronize(stream));
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, begin, end));
  return verdict(ms >= 0 && close(download(out, n), want));
}
