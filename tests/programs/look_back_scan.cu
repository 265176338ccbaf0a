// A prefix sum in one pass: every block publishes its sum, then looks back, 32 blocks at a time, until one has published its prefix.
#include <cuda/atomic>

#include "program.h"

constexpr int kThreads = 128, kItems = 4, kTile = kThreads * kItems;
enum State : unsigned long long { kNothing, kSum, kPrefix };
typedef unsigned long long Word;  // a state above a value
__device__ Word word(State state, unsigned value) { return Word(state) << 32 | value; }
__device__ cuda::atomic_ref<Word, cuda::thread_scope_device> shared_by_all(Word& w) {
  return cuda::atomic_ref<Word, cuda::thread_scope_device>(w);
}

// By one warp: the sum of all tiles before this one.
__device__ unsigned look_back(Word* tiles, unsigned tile, unsigned sum) {
  unsigned lane = threadIdx.x % 32, before = 0;
  if (tile != 0 && lane == 0) shared_by_all(tiles[tile]).store(word(kSum, sum), cuda::memory_order_release);
  for (int at = int(tile) - 1 - int(lane);; at -= 32) {
    Word w = word(kPrefix, 0);
    if (at >= 0) {
      do w = shared_by_all(tiles[at]).load(cuda::memory_order_acquire);
      while (w >> 32 == kNothing);
    }
    unsigned complete = __ballot_sync(0xFFFFFFFFu, w >> 32 == kPrefix);
    unsigned last = complete != 0 ? __ffs(complete) - 1 : 31;
    before += __reduce_add_sync(0xFFFFFFFFu, lane <= last ? unsigned(w) : 0u);
    if (complete != 0) break;
  }
  if (lane == 0) shared_by_all(tiles[tile]).store(word(kPrefix, before + sum), cuda::memory_order_release);
  return before;
}

__global__ void scan(const unsigned* x, unsigned* y, Word* tiles, unsigned* next, int n) {
  __shared__ unsigned tile, sums[kThreads / 32], before_tile;
  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) tile = atomicAdd(next, 1u);  // in the order in which blocks start: those before it run or have run
  __syncthreads();
  int first = tile * kTile + threadIdx.x * kItems;
  unsigned v[kItems], sum = 0;
#pragma unroll
  for (int i = 0; i < kItems; ++i) sum += v[i] = first + i < n ? x[first + i] : 0;
  unsigned inclusive = sum;
#pragma unroll
  for (unsigned d = 1; d < 32; d *= 2) {
    unsigned other = __shfl_up_sync(0xFFFFFFFFu, inclusive, d);
    if (lane >= d) inclusive += other;
  }
  if (lane == 31) sums[warp] = inclusive;
  __syncthreads();
  unsigned before = 0, all = 0;
  for (unsigned w = 0; w < kThreads / 32; ++w) {
    if (w < warp) before += sums[w];
    all += sums[w];
  }
  if (warp == 0) {
    unsigned found = look_back(tiles, tile, all);
    if (lane == 0) before_tile = found;
  }
  __syncthreads();
  unsigned running = before_tile + before + inclusive - sum;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    running += v[i];
    if (first + i < n) y[first + i] = running;
  }
}

int main() {
  int n = 40 * kTile - 77, tiles = (n + kTile - 1) / kTile;
  std::vector<unsigned> x(n), want(n);
  for (int i = 0; i < n; ++i) x[i] = i * 7919u % 13, want[i] = x[i] + (i > 0 ? want[i - 1] : 0);
  unsigned *in = upload(x), *out = fresh<unsigned>(n), *next = upload(std::vector<unsigned>{0});
  scan<<<tiles, kThreads>>>(in, out, upload(std::vector<Word>(tiles)), next, n);
  return verdict(download(out, n) == want);
}
