// cuda::pipeline of a block (all threads, and producers apart from consumers), cuda::barrier and cuda::atomic_ref.
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/std/limits>

#include "program.h"

namespace cg = cooperative_groups;
constexpr int kThreads = 64, kStages = 3;

__global__ void all_threads(const float* x, float* sums, int tiles) {
  __shared__ alignas(16) float s[kStages][kThreads];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  float sum = 0;
  for (int t = 0, fetch = 0; t < tiles; ++t) {
    for (; fetch < tiles && fetch < t + kStages; ++fetch) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, s[fetch % kStages], x + fetch * kThreads, cuda::aligned_size_t<16>(sizeof s[0]), pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    sum += s[t % kStages][kThreads - 1 - threadIdx.x];
    pipe.consumer_release();
  }
  sums[threadIdx.x] = sum;
}

__global__ void two_roles(const float* x, float* sums, int tiles) {
  __shared__ alignas(16) float s[2][kThreads];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  bool produces = threadIdx.x < 32;
  auto pipe = cuda::make_pipeline(block, &state, produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
  float sum = 0;
  for (int t = 0; t < tiles; ++t) {
    if (produces) {
      pipe.producer_acquire();
      for (int i = threadIdx.x; i < kThreads; i += 32) cuda::memcpy_async(&s[t % 2][i], x + t * kThreads + i, sizeof(float), pipe);
      pipe.producer_commit();
    } else {
      pipe.consumer_wait();
      sum += s[t % 2][threadIdx.x - 32] + s[t % 2][95 - threadIdx.x];
      pipe.consumer_release();
    }
  }
  if (!produces) cuda::atomic_ref<float, cuda::thread_scope_device>(sums[kThreads]).fetch_add(sum, cuda::memory_order_relaxed);
}

__global__ void by_barrier(const float* x, float* sums, int tiles) {
  __shared__ float s[2][kThreads];
  __shared__ cuda::barrier<cuda::thread_scope_block> bar[2];
  if (threadIdx.x == 0) {
    init(&bar[0], kThreads);
    init(&bar[1], kThreads);
  }
  __syncthreads();
  float sum = 0;
  for (int t = 0; t < tiles; ++t) {
    s[t % 2][threadIdx.x] = x[t * kThreads + threadIdx.x];
    auto token = bar[t % 2].arrive();
    bar[t % 2].wait(static_cast<decltype(token)&&>(token));
    sum += s[t % 2][kThreads - 1 - threadIdx.x];
  }
  sums[threadIdx.x] = cuda::std::numeric_limits<float>::max() > sum ? sum : 0;
}

int main() {
  int tiles = 7;
  std::vector<float> x = numbers(tiles * kThreads), want(kThreads), total(1);
  for (int t = 0; t < tiles; ++t)
    for (int i = 0; i < kThreads; ++i) want[i] += x[t * kThreads + kThreads - 1 - i], total[0] += x[t * kThreads + i];
  float *in = upload(x), *sums = upload(std::vector<float>(kThreads + 1)), *others = fresh<float>(kThreads);
  all_threads<<<1, kThreads>>>(in, sums, tiles);
  two_roles<<<1, kThreads>>>(in, sums, tiles);
  by_barrier<<<1, kThreads>>>(in, others, tiles);
  bool good = close(download(sums, kThreads), want) && close(download(others, kThreads), want);
  return verdict(good && close(download(sums + kThreads, 1), total));
}
