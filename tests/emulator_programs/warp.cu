// Warp operations: one value a lane in, one out, for every operation, width and mask that the test asks for.
#include <cuda_runtime.h>
#include <stdint.h>

template <class T>
__device__ T shuffle(int op, unsigned mask, T v, int arg, int width) {
  switch (op) {
    case 0: return __shfl_sync(mask, v, arg, width);
    case 1: return __shfl_up_sync(mask, v, unsigned(arg), width);
    case 2: return __shfl_down_sync(mask, v, unsigned(arg), width);
    default: return __shfl_xor_sync(mask, v, arg, width);
  }
}
template <class T>
__global__ void shuffles(int op, unsigned mask, int arg, int width, const T* in, T* out) {
  int lane = threadIdx.x % 32;
  if (!(mask >> lane & 1)) return;
  out[threadIdx.x] = shuffle(op, mask, in[threadIdx.x], arg, width);
}
extern "C" int shuffle4(int op, unsigned mask, int arg, int width, const float* in, float* out) {
  shuffles<<<1, 64>>>(op, mask, arg, width, in, out);
  return cudaGetLastError();
}
extern "C" int shuffle8(int op, unsigned mask, int arg, int width, const long long* in, long long* out) {
  shuffles<<<1, 64>>>(op, mask, arg, width, in, out);
  return cudaGetLastError();
}

// Two halves of a warp with masks of their own, many times, one half far ahead of the other.
__global__ void halves(unsigned* out) {
  unsigned lane = threadIdx.x, v = lane;
  if (lane < 16) {
    for (int i = 0; i < 100; ++i) v = v + __shfl_xor_sync(0x0000FFFFu, v, 1 << (i % 4));
  } else {
    for (int i = 0; i < 7; ++i) v = v + __shfl_xor_sync(0xFFFF0000u, v, 1 << (i % 4));
  }
  __syncwarp();
  out[lane] = v + __shfl_sync(0xFFFFFFFFu, v, 31 - lane);
}
extern "C" int half_warps(unsigned* out) {
  halves<<<1, 32>>>(out);
  return cudaGetLastError();
}

__global__ void votes(unsigned mask, const int* in, unsigned* out) {
  unsigned lane = threadIdx.x;
  if (!(mask >> lane & 1)) return;
  unsigned* o = out + lane * 14;
  int v = in[lane], same = -1;
  o[0] = __ballot_sync(mask, v > 0);
  o[1] = __all_sync(mask, v > -100);
  o[2] = __all_sync(mask, v > 0);
  o[3] = __any_sync(mask, v > 0);
  o[4] = __any_sync(mask, v > 100);
  o[5] = __match_any_sync(mask, v);
  o[6] = __match_all_sync(mask, v, &same);
  o[7] = same;
  o[8] = __reduce_add_sync(mask, v);
  o[9] = __reduce_min_sync(mask, v);
  o[10] = __reduce_max_sync(mask, unsigned(v));
  o[11] = __reduce_xor_sync(mask, unsigned(v));
  o[12] = lane % 2 ? __activemask() : 0;
  __syncwarp(mask);
  o[13] = __popc(mask) + __clz(int(lane)) + __ffs(int(lane)) + int(__brev(lane) >> 27);
}
extern "C" int all_votes(unsigned mask, const int* in, unsigned* out) {
  votes<<<1, 32>>>(mask, in, out);
  return cudaGetLastError();
}

__global__ void counted(int* out) {
  int n = __syncthreads_count(threadIdx.x % 3 == 0);
  int all = __syncthreads_and(threadIdx.x < 1000), none = __syncthreads_and(threadIdx.x != 17);
  int any = __syncthreads_or(threadIdx.x == 17), no = __syncthreads_or(0);
  out[threadIdx.x] = n * 16 + (all != 0) * 8 + (none != 0) * 4 + (any != 0) * 2 + (no != 0);
}
extern "C" int barriers_with_votes(int* out) {
  counted<<<1, 100>>>(out);
  return cudaGetLastError();
}

// Lanes that have returned are missed by nobody; their values are poison.
__global__ void after_exit(int leave, unsigned* out) {
  if (int(threadIdx.x % 32) >= leave) return;
  out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, threadIdx.x, 16);
  __syncthreads();
  out[threadIdx.x] += 1000;
}
extern "C" int exited_lanes(int leave, unsigned* out) {
  after_exit<<<1, 80>>>(leave, out);  // the last warp has 16 lanes
  return cudaGetLastError();
}
