// A pipeline of asynchronous copies, once by __pipeline_*, once by inline PTX: three stages of a sum over tiles.
#include <cuda_pipeline.h>

#include "program.h"

constexpr int kThreads = 64, kStages = 3;

__global__ void by_intrinsics(const float4* x, float4* sums, int tiles) {
  __shared__ float4 s[kStages][kThreads];
  const float4* mine = x + size_t(blockIdx.x) * tiles * kThreads;
  for (int t = 0; t < kStages - 1; ++t) {
    if (t < tiles) __pipeline_memcpy_async(&s[t][threadIdx.x], &mine[t * kThreads + threadIdx.x], sizeof(float4));
    __pipeline_commit();
  }
  float4 sum = make_float4(0, 0, 0, 0);
  for (int t = 0; t < tiles; ++t) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();
    float4 v = s[t % kStages][kThreads - 1 - threadIdx.x];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    int next = t + kStages - 1;
    if (next < tiles) __pipeline_memcpy_async(&s[next % kStages][threadIdx.x], &mine[next * kThreads + threadIdx.x], sizeof(float4));
    __pipeline_commit();
  }
  sums[blockIdx.x * kThreads + threadIdx.x] = sum;
}

__device__ __forceinline__ void copy16(void* shared, const void* global) {
  unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(address), "l"(global));
}
template <int N>
__device__ __forceinline__ void wait_for_all_but() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

__global__ void by_ptx(const float4* x, float4* sums, int tiles) {
  extern __shared__ float4 d[];
  const float4* mine = x + size_t(blockIdx.x) * tiles * kThreads;
  copy16(&d[threadIdx.x], mine + threadIdx.x);
  asm volatile("cp.async.commit_group;\n" ::: "memory");
  float4 sum = make_float4(0, 0, 0, 0);
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) copy16(&d[(t + 1) % 2 * kThreads + threadIdx.x], mine + (t + 1) * kThreads + threadIdx.x);
    asm volatile("cp.async.commit_group;\n" ::: "memory");
    wait_for_all_but<1>();
    __syncthreads();
    float4 v = d[t % 2 * kThreads + kThreads - 1 - threadIdx.x];
    asm volatile("add.f32 %0, %0, %1;" : "+f"(sum.x) : "f"(v.x));
    sum.y += v.y, sum.z += v.z, sum.w += v.w;
    __syncthreads();
  }
  sums[blockIdx.x * kThreads + threadIdx.x] = sum;
}

int main() {
  int blocks = 3, tiles = 7, n = blocks * tiles * kThreads;
  std::vector<float> x = numbers(n * 4), want(blocks * kThreads * 4);
  for (int b = 0; b < blocks; ++b)
    for (int t = 0; t < tiles; ++t)
      for (int i = 0; i < kThreads; ++i)
        for (int e = 0; e < 4; ++e) want[(b * kThreads + i) * 4 + e] += x[((b * tiles + t) * kThreads + kThreads - 1 - i) * 4 + e];
  float *in = upload(x), *a = fresh<float>(want.size()), *b = fresh<float>(want.size());
  by_intrinsics<<<blocks, kThreads>>>((const float4*)in, (float4*)a, tiles);
  by_ptx<<<blocks, kThreads, 2 * kThreads * sizeof(float4)>>>((const float4*)in, (float4*)b, tiles);
  return verdict(close(download(a, want.size()), want) && close(download(b, want.size()), want));
}
