// Threads, warps and blocks that wait for each other by asking memory again and again.
#include <cuda/atomic>

enum How { kAtomic, kVolatile, kFence, kReference, kVote, kWays };

__device__ int ask(int* at, How how) {
  switch (how) {
    case kAtomic: return atomicAdd(at, 0);
    case kReference: return cuda::atomic_ref<int, cuda::thread_scope_device>(*at).load(cuda::memory_order_acquire);
    default: return *reinterpret_cast<volatile int*>(at);
  }
}

__device__ void wait_for(int* at, int value, How how) {
  switch (how) {
    case kVote:
      while (__any_sync(0xFFFFFFFFu, ask(at, how) != value)) {}
      break;
    case kFence:
      while (ask(at, how) != value) __threadfence();
      break;
    default:
      while (ask(at, how) != value) {}
  }
}

// Blocks one after the other, from the first on or from the last. All threads of a block wait, or its first warp alone.
__global__ void in_turn(int* turn, int* sum, How how, bool from_the_last, bool all) {
  int mine = from_the_last ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  if (all || threadIdx.x < 32) wait_for(turn, mine, how);
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  *sum = *sum * 10 + mine;
  __threadfence();
  atomicExch(turn, mine + 1);
}
extern "C" int blocks_in_turn(int blocks, int how, int from_the_last, int all, int* turn, int* sum) {
  in_turn<<<blocks, 64>>>(turn, sum, How(how), from_the_last != 0, all != 0);
  return cudaDeviceSynchronize();
}

// The first warp waits for the last one, and that one's first lane for its last.
__global__ void within(int* flags, int* out) {
  volatile int* f = flags;
  if (threadIdx.x < 32) {
    while (f[0] == 0) {}
    out[threadIdx.x] = f[2];
  } else if (threadIdx.x == 32) {
    while (f[1] == 0) {}
    f[2] = 7;
    __threadfence();
    f[0] = 1;
  } else if (threadIdx.x == blockDim.x - 1) {
    f[1] = 1;
  }
}
extern "C" int within_a_block(int* flags, int* out) {
  within<<<1, 64>>>(flags, out);
  return cudaDeviceSynchronize();
}

__global__ void last_sets(int* flag) {
  if (blockIdx.x == gridDim.x - 1) atomicExch(flag, 1);
  while (atomicAdd(flag, 0) == 0) {}
}
extern "C" int wait_for_the_last_block(int blocks, int* flag) {
  last_sets<<<blocks, 1, 48 * 1024>>>(flag);
  return cudaDeviceSynchronize();
}

__global__ void never(const int* flag) {
  while (atomicAdd(const_cast<int*>(flag), 0) == 0) {}
}
extern "C" int wait_for_nobody(int* flag) {
  never<<<2, 32>>>(flag);
  return cudaDeviceSynchronize();
}
