// Kernels whose result tells in which order threads, warps and blocks ran, and clean ones whose result must not.
#include <cuda_runtime.h>
#include <stdint.h>

__device__ unsigned ticket;
__global__ void arrivals(unsigned* out) { out[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(&ticket, 1u); }
__global__ void arrivals_after_barrier(unsigned* out) {
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(&ticket, 1u);
}
extern "C" int order_of(int barrier, int blocks, int threads, unsigned* out) {
  ticket = 0;
  if (barrier) arrivals_after_barrier<<<blocks, threads>>>(out);
  else arrivals<<<blocks, threads>>>(out);
  return cudaGetLastError();
}

// A block sum: with the second barrier it is clean; without it, a thread may overwrite what another has yet to read.
template <bool CLEAN>
__global__ void sums(const float* in, float* out, int rounds) {
  __shared__ float s[128], t[4];
  float total = 0;
  for (int r = 0; r < rounds; ++r) {
    s[threadIdx.x] = in[(blockIdx.x * rounds + r) * 128 + threadIdx.x];
    __syncthreads();
    float v = s[(threadIdx.x + 37) % 128];
    for (int other = 16; other > 0; other /= 2) v = __fadd_rn(v, __shfl_xor_sync(0xFFFFFFFFu, v, other));
    if (threadIdx.x % 32 == 0) t[threadIdx.x / 32] = v;
    if (CLEAN) __syncthreads();
    total = __fadd_rn(total, __fadd_rn(__fadd_rn(t[0], t[2]), __fadd_rn(t[1], t[3])));
    if (CLEAN) __syncthreads();
  }
  out[blockIdx.x * 128 + threadIdx.x] = total;
}
extern "C" int block_sums(int clean, int blocks, int rounds, const float* in, float* out) {
  if (clean) sums<true><<<blocks, 128>>>(in, out, rounds);
  else sums<false><<<blocks, 128>>>(in, out, rounds);
  return cudaGetLastError();
}

// The last block to finish adds up what all have left: counts on atomics and fences alone, not on an order.
__device__ unsigned finished;
__global__ void last_block(const unsigned* in, unsigned* partial, unsigned* out) {
  __shared__ bool last;
  __shared__ unsigned sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
    __threadfence();
    last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    unsigned total = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) total += partial[i];
    *out = total;
  }
}
extern "C" int grid_sum(int blocks, const unsigned* in, unsigned* partial, unsigned* out) {
  last_block<<<blocks, 64>>>(in, partial, out);
  return cudaGetLastError();
}

// A lock that the threads of a block take in turn: whoever polls must let the owner run.
__global__ void locked(int* lock, int* counter) {
  for (bool done = false; !done;) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *counter += 1;
      __threadfence();
      __syncwarp(1u << (threadIdx.x % 32));
      atomicExch(lock, 0);
      done = true;
    }
  }
  if (threadIdx.x == 0) {
    while (atomicAdd(counter, 0) < int(blockDim.x)) {}
    *counter += 1000;
  }
}
extern "C" int spin_lock(int* lock, int* counter) {
  locked<<<1, 100>>>(lock, counter);
  return cudaGetLastError();
}
