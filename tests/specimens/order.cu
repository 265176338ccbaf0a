// Order between warps and blocks: atomics, fences, masks, asynchronous copies.
#include <cuda_pipeline.h>

#include <cuda/barrier>

#include "specimen.h"

template <bool Bad>
__global__ void plain_increment(Args a) {
  if (Bad) {
    a.i[threadIdx.x % 4] += 1;  // expect: global race
  } else {
    atomicAdd(&a.i[threadIdx.x % 4], 1);
  }
}

template <bool Bad>
__global__ void plain_increment_over_blocks(Args a) {
  if (threadIdx.x != 0) return;
  if (Bad) {
    a.i[0] = a.i[0] + 1;  // expect: global race
  } else {
    atomicAdd(&a.i[0], 1);
  }
}

template <bool Bad>
__global__ void shared_histogram(Args a) {
  __shared__ int bins[4];
  if (threadIdx.x < 4) bins[threadIdx.x] = 0;
  __syncthreads();
  if (Bad) {
    bins[threadIdx.x % 4]++;  // expect: shared race
  } else {
    atomicAdd(&bins[threadIdx.x % 4], 1);
  }
  __syncthreads();
  if (threadIdx.x < 4) atomicAdd(&a.i[threadIdx.x], bins[threadIdx.x]);
}

// The thread that sets the sum is the first to add to it, in forward order.
template <bool Bad>
__global__ void sum_set_by_its_first_adder(Args a) {
  __shared__ int sum;
  if (threadIdx.x == 0) sum = 0;  // expect: shared race
  if (!Bad) __syncthreads();
  atomicAdd(&sum, int(threadIdx.x));
  __syncthreads();
  if (threadIdx.x == 0) a.i[0] = sum;
}

template <bool Bad>
__global__ void one_element_of_two_blocks(Args a) {
  int i = blockIdx.x * (Bad ? 63 : 64) + threadIdx.x;
  a.y[i] = float(blockIdx.x);  // expect: global race
}

template <bool Bad>
__global__ void neighbours_of_other_blocks(Args a) {
  int i = blockIdx.x * 64 + threadIdx.x;
  float left = i > 0 ? a.x[i - 1] : 0;  // expect: global race
  if (Bad) a.x[i] = left + 1; else a.y[i] = left + 1;
}

template <bool Bad>
__global__ void last_block_sums(Args a) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    a.y[blockIdx.x] = a.x[blockIdx.x];  // expect: global race
    if (!Bad) __threadfence();
    last = atomicAdd(&a.i[0], 1) == int(gridDim.x) - 1;
  }
  __syncthreads();
  if (last && threadIdx.x < gridDim.x) a.x[threadIdx.x] = a.y[threadIdx.x] * 2;
}

template <bool Bad>
__global__ void last_block_with_a_narrow_fence(Args a) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    a.y[blockIdx.x] = a.x[blockIdx.x];  // expect: global race
    if (Bad) __threadfence_block(); else __threadfence();
    last = atomicAdd(&a.i[0], 1) == int(gridDim.x) - 1;
  }
  __syncthreads();
  if (last && threadIdx.x < gridDim.x) a.x[threadIdx.x] = a.y[threadIdx.x] * 2;
}

template <bool Bad>
__global__ void lock_without_fences(Args a) {
  if (threadIdx.x == 0) {
    while (atomicCAS(&a.i[0], 0, 1) != 0) {}
    if (!Bad) __threadfence();
    a.x[0] += 1;  // expect: global race
    if (!Bad) __threadfence();
    atomicExch(&a.i[0], 0);
  }
}

template <bool Bad>
__global__ void flag_between_warps(Args a) {
  __shared__ int flag;
  __shared__ float value;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    value = a.x[7];
    if (!Bad) __threadfence_block();
    atomicExch(&flag, 1);
  }
  if (threadIdx.x == 32) {
    while (atomicAdd(&flag, 0) == 0) {}
    __threadfence_block();
    a.y[0] = value;  // expect: shared race
  }
}

template <bool Bad>
__global__ void reading_what_others_count(Args a) {
  atomicAdd(&a.i[0], 1);
  __syncthreads();
  if (threadIdx.x == 0) a.y[blockIdx.x] = Bad ? float(a.i[0]) : float(atomicAdd(&a.i[0], 0));  // expect: global race
}

template <bool Bad>
__global__ void shuffle_from_returned_lanes(Args a) {
  if (Bad && threadIdx.x >= 20) return;
  float v = a.x[threadIdx.x];
  v += __shfl_down_sync(0xFFFFFFFFu, v, 16);  // expect: mask
  a.y[threadIdx.x] = v;
}

template <bool Bad>
__global__ void narrowed_mask(Args a) {
  float v = a.x[threadIdx.x];
  if (threadIdx.x < 16) {
    v += __shfl_xor_sync(0x0000FFFFu, v, Bad ? 16 : 8);  // expect: mask
  }
  a.y[threadIdx.x] = v;
}

template <bool Bad>
__global__ void mask_without_the_caller(Args a) {
  unsigned mask = Bad ? 0x0000FFFFu : 0xFFFFFFFFu;
  a.i[threadIdx.x] = int(__ballot_sync(mask, threadIdx.x & 1));  // expect: mask
}

template <bool Bad>
__global__ void ballot_in_a_branch(Args a) {
  unsigned lanes = 0;
  if (threadIdx.x % 32 < 16) lanes = __ballot_sync(Bad ? 0xFFFFFFFFu : 0x0000FFFFu, 1);  // expect: barrier divergence
  __syncthreads();
  a.i[threadIdx.x] = int(lanes);
}

template <bool Bad>
__global__ void wait_for_too_few(Args a) {
  __shared__ float s[2][64];
  __pipeline_memcpy_async(&s[0][threadIdx.x], a.x + threadIdx.x, 4);
  __pipeline_commit();
  __pipeline_memcpy_async(&s[1][threadIdx.x], a.x + 64 + threadIdx.x, 4);
  __pipeline_commit();
  __pipeline_wait_prior(Bad ? 1 : 0);
  __syncthreads();
  a.y[threadIdx.x] = s[0][threadIdx.x] + s[1][threadIdx.x];  // expect: async copy
}

template <bool Bad>
__global__ void waited_without_a_barrier(Args a) {
  __shared__ float s[64];
  __pipeline_memcpy_async(&s[threadIdx.x], a.x + threadIdx.x, 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  if (!Bad) __syncthreads();
  a.y[threadIdx.x] = s[63 - threadIdx.x];  // expect: async copy or shared race
}

template <bool Bad>
__global__ void copy_into_what_is_read(Args a) {
  __shared__ float s[64];
  s[threadIdx.x] = a.x[threadIdx.x];
  __syncthreads();
  float v = s[63 - threadIdx.x];
  if (!Bad) __syncthreads();
  __pipeline_memcpy_async(&s[threadIdx.x], a.x + 64 + threadIdx.x, 4);  // expect: shared race
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  a.y[threadIdx.x] = v + s[63 - threadIdx.x];
}

template <bool Bad>
__global__ void arrival_without_a_wait(Args a) {
  __shared__ float s[64];
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  if (threadIdx.x == 0) init(&bar, 64);
  __syncthreads();
  s[threadIdx.x] = a.x[threadIdx.x];  // expect: shared race or uninitialised read
  auto token = bar.arrive();
  if (!Bad) bar.wait(static_cast<decltype(token)&&>(token));
  a.y[threadIdx.x] = s[63 - threadIdx.x];
}

int main(int argc, char** argv) {
  const Specimen all[] = {
      SPECIMEN(plain_increment, 1, 64, 0),          SPECIMEN(plain_increment_over_blocks, 8, 32, 0), SPECIMEN(shared_histogram, 2, 64, 0),
      SPECIMEN(sum_set_by_its_first_adder, 1, 64, 0),
      SPECIMEN(one_element_of_two_blocks, 3, 64, 0), SPECIMEN(neighbours_of_other_blocks, 4, 64, 0),  SPECIMEN(last_block_sums, 8, 64, 0),
      SPECIMEN(last_block_with_a_narrow_fence, 8, 64, 0), SPECIMEN(lock_without_fences, 4, 32, 0),    SPECIMEN(flag_between_warps, 1, 64, 0),
      SPECIMEN(reading_what_others_count, 4, 32, 0), SPECIMEN(shuffle_from_returned_lanes, 1, 32, 0), SPECIMEN(narrowed_mask, 1, 32, 0),
      SPECIMEN(mask_without_the_caller, 1, 32, 0),  SPECIMEN(ballot_in_a_branch, 1, 64, 0),          SPECIMEN(wait_for_too_few, 1, 64, 0),
      SPECIMEN(waited_without_a_barrier, 1, 64, 0), SPECIMEN(copy_into_what_is_read, 1, 64, 0),
      SPECIMEN(arrival_without_a_wait, 1, 64, 0),
  };
  return run_specimen(all, argc, argv);
}
