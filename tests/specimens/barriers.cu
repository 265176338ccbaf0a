// Shared memory that changes its use without a barrier, and barriers that not everybody reaches.
#include "specimen.h"

template <bool Bad>
__global__ void before_reading(Args a) {
  __shared__ float s[128];
  s[threadIdx.x] = a.x[threadIdx.x];
  if (!Bad) __syncthreads();
  a.y[threadIdx.x] = s[127 - threadIdx.x];  // expect: shared race
}

template <bool Bad>
__global__ void before_the_next_tile(Args a) {
  __shared__ float s[128];
  float sum = 0;
  for (int tile = 0; tile < 2; ++tile) {
    s[threadIdx.x] = a.x[tile * 128 + threadIdx.x];  // expect: shared race
    __syncthreads();
    sum += s[(threadIdx.x + 64) % 128];
    if (!Bad) __syncthreads();
  }
  a.y[threadIdx.x] = sum;
}

template <bool Bad>
__global__ void tree_without_its_barrier(Args a) {
  __shared__ float s[128];
  s[threadIdx.x] = a.x[threadIdx.x];
  __syncthreads();
  for (int d = 64; d > 0; d /= 2) {
    if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];  // expect: shared race
    if (!Bad) __syncthreads();
  }
  if (threadIdx.x == 0) a.y[0] = s[0];
}

template <bool Bad>
__global__ void tree_of_the_last_warp(Args a) {
  __shared__ float s[64];
  s[threadIdx.x] = a.x[threadIdx.x];
  s[threadIdx.x + 32] = 0;
  __syncthreads();
  for (int d = 16; d > 0; d /= 2) {
    float v = s[threadIdx.x + d];
    if (!Bad) __syncwarp();
    s[threadIdx.x] += v;  // expect: shared race
    if (!Bad) __syncwarp();
  }
  if (threadIdx.x == 0) a.y[0] = s[0];
}

template <bool Bad>
__global__ void volatile_for_a_barrier(Args a) {
  __shared__ float s[64];
  volatile float* v = s;
  v[threadIdx.x] = a.x[threadIdx.x];
  if (!Bad) __syncwarp();
  a.y[threadIdx.x] = v[threadIdx.x ^ 1];  // expect: shared race
}

template <bool Bad>
__global__ void maximum_for_all(Args a) {
  __shared__ float m;
  if (threadIdx.x == 40) m = a.x[40];
  if (!Bad) __syncthreads();
  a.y[threadIdx.x] = m;  // expect: shared race
}

template <bool Bad>
__global__ void buffer_reused_for_sums(Args a) {
  extern __shared__ float buffer[];
  buffer[threadIdx.x] = a.x[threadIdx.x];
  __syncthreads();
  float v = buffer[threadIdx.x ^ 64];
  if (!Bad) __syncthreads();
  if (threadIdx.x % 32 == 0) buffer[threadIdx.x / 32] = v;  // expect: shared race
  __syncthreads();
  if (threadIdx.x == 0) a.y[0] = buffer[0] + buffer[1];
}

template <bool Bad>
__global__ void double_buffer(Args a) {
  __shared__ float s[2][64];
  float sum = 0;
  s[0][threadIdx.x] = a.x[threadIdx.x];
  for (int t = 0; t < 4; ++t) {
    __syncthreads();
    int next = Bad ? 0 : (t + 1) % 2;
    sum += s[Bad ? 0 : t % 2][63 - threadIdx.x];
    if (t < 3) s[next][threadIdx.x] = a.x[(t + 1) * 64 + threadIdx.x];  // expect: shared race
  }
  a.y[threadIdx.x] = sum;
}

template <bool Bad>
__global__ void warp_barrier_for_a_block(Args a) {
  __shared__ float s[128];
  s[threadIdx.x] = a.x[threadIdx.x];
  if (Bad) __syncwarp(); else __syncthreads();
  a.y[threadIdx.x] = s[(threadIdx.x + 32) % 128];  // expect: shared race
}

template <bool Bad>
__global__ void half_masks(Args a) {
  __shared__ float s[32];
  s[threadIdx.x] = a.x[threadIdx.x];
  __syncwarp(Bad ? (threadIdx.x < 16 ? 0x0000FFFFu : 0xFFFF0000u) : 0xFFFFFFFFu);
  a.y[threadIdx.x] = s[threadIdx.x ^ 16];  // expect: shared race
}

template <bool Bad>
__global__ void branch_with_a_barrier(Args a) {
  if (Bad) {
    if (threadIdx.x < 32) {
      __syncthreads();  // expect: barrier divergence
    } else {
      __syncthreads();
    }
  } else {
    __syncthreads();
  }
  a.y[threadIdx.x] = 1;
}

template <bool Bad>
__global__ void return_before_the_barrier(Args a) {
  __shared__ float s[128];
  if (Bad && threadIdx.x >= 100) return;
  s[threadIdx.x] = threadIdx.x < 100 ? a.x[threadIdx.x] : 0;
  __syncthreads();  // expect: barrier divergence
  if (threadIdx.x < 100) a.y[threadIdx.x] = s[99 - threadIdx.x];
}

template <bool Bad>
__global__ void barrier_in_a_loop(Args a) {
  int rounds = Bad ? 1 + threadIdx.x / 32 : 2;
  for (int i = 0; i < rounds; ++i) {
    __syncthreads();  // expect: barrier divergence
    a.i[threadIdx.x] += i;
  }
}

template <bool Bad>
__global__ void condition_of_one_lane(Args a) {
  if (!Bad || threadIdx.x != 5) __syncthreads();  // expect: barrier divergence
  a.y[threadIdx.x] = 2;
}

int main(int argc, char** argv) {
  const Specimen all[] = {
      SPECIMEN(before_reading, 1, 128, 0),          SPECIMEN(before_the_next_tile, 1, 128, 0),
      SPECIMEN(tree_without_its_barrier, 1, 128, 0), SPECIMEN(tree_of_the_last_warp, 1, 32, 0),
      SPECIMEN(volatile_for_a_barrier, 1, 32, 0),   SPECIMEN(maximum_for_all, 2, 64, 0),
      SPECIMEN(buffer_reused_for_sums, 1, 128, 512), SPECIMEN(double_buffer, 1, 64, 0),
      SPECIMEN(warp_barrier_for_a_block, 1, 128, 0), SPECIMEN(half_masks, 1, 32, 0),
      SPECIMEN(branch_with_a_barrier, 1, 64, 0),    SPECIMEN(return_before_the_barrier, 1, 128, 0),
      SPECIMEN(barrier_in_a_loop, 1, 64, 0),        SPECIMEN(condition_of_one_lane, 1, 64, 0),
  };
  return run_specimen(all, argc, argv);
}
