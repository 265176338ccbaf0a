// Warps that bring numbers and warps that add them up, in turns, by barriers 0 and 1 of the block at which one side arrives and the other waits.
#include "program.h"

__device__ void wait_at(int barrier) { asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory"); }
__device__ void arrive_at(int barrier) { asm volatile("bar.arrive %0, 128;" ::"r"(barrier) : "memory"); }

__global__ void add_up(const int* x, int* sums, int rounds) {
  __shared__ int values[64];
  int t = threadIdx.x % 64, sum = 0;
  bool produces = threadIdx.x < 64;
  for (int i = 0; i < rounds; ++i) {
    if (produces) {
      if (i > 0) wait_at(1);  // the last ones have been read
      values[t] = x[64 * i + t];
      arrive_at(0);
    } else {
      wait_at(0);
      sum += values[63 - t];
      if (i + 1 < rounds) arrive_at(1);
    }
  }
  if (!produces) sums[t] = sum;
}

int main() {
  const int rounds = 5;
  std::vector<int> x(64 * rounds);
  for (size_t i = 0; i < x.size(); ++i) x[i] = int(i * i % 1009);
  int* sums = fresh<int>(64);
  add_up<<<1, 128>>>(upload(x), sums, rounds);
  std::vector<int> got = download(sums, 64);
  bool good = true;
  for (int t = 0; t < 64; ++t) {
    int sum = 0;
    for (int i = 0; i < rounds; ++i) sum += x[size_t(64 * i + 63 - t)];
    good = good && got[size_t(t)] == sum;
  }
  return verdict(good);
}
