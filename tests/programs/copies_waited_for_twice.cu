// cp.async of which an mbarrier is told and for which their thread waits too, by groups: either wait is enough for the one who waits.
#include "program.h"

__device__ unsigned address_of(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }
__device__ void copy(int* to, const int* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address_of(to)), "l"(from) : "memory");
}
__device__ void wait_parity(unsigned long long* bar, unsigned parity) {
  for (unsigned done = 0; !done;) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(address_of(bar)), "r"(parity) : "memory");
  }
}

// The first warp brings where a row lies beside the row before it, and reads that by itself; the second reads the rows.
__global__ void rows(const int* where, const int* x, int* out) {
  __shared__ int place[3][32], row[2][32];
  __shared__ unsigned long long full[2];
  unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x < 2) {
    asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(address_of(&full[threadIdx.x])) : "memory");
  }
  __syncthreads();
  if (warp == 0) {
    copy(&place[0][lane], where + lane);
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
    for (int i = 0; i < 2; ++i) {
      if (i > 0) asm volatile("cp.async.wait_group 0;" ::: "memory");
      __syncwarp();
      copy(&row[i][lane], x + 32 * i + place[i][lane ^ 1]);
      copy(&place[i + 1][lane], where + 32 * (i + 1) + lane);
      asm volatile("cp.async.commit_group;" ::: "memory");
      asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address_of(&full[i])) : "memory");
    }
  } else {
    for (int i = 1; i >= 0; --i) {  // the last first: the second copies' mbarrier knows of the first ones too
      wait_parity(&full[i], 0);
      out[32 * i + lane] = row[i][31 - lane];
      if (i == 1) out[64 + lane] = row[0][lane ^ 3];
    }
  }
}

// Here the mbarrier's wait is over before the group's begins: that one still tells its thread of the copies.
__global__ void late(const int* x, int* out) {
  __shared__ int row[32];
  __shared__ unsigned long long full;
  unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(address_of(&full)) : "memory");
  __syncthreads();
  if (warp == 0) {
    copy(&row[lane], x + lane);
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address_of(&full)) : "memory");
    asm volatile("bar.sync 1, 64;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncwarp();
    out[lane] = row[lane ^ 1];
  } else if (warp == 1) {
    wait_parity(&full, 0);
  } else {
    asm volatile("bar.sync 1, 64;" ::: "memory");  // so that the second warp comes before the first goes on
  }
}

int main() {
  std::vector<int> where(96), x(64);
  for (int i = 0; i < 96; ++i) where[i] = (i * 7 + 3) % 32;
  for (int i = 0; i < 64; ++i) x[i] = 1000 + i;
  int* out = fresh<int>(96);
  rows<<<1, 64>>>(upload(where), upload(x), out);
  std::vector<int> got = download(out, 96);
  auto row = [&](int i, int lane) { return x[32 * i + where[32 * i + (lane ^ 1)]]; };
  bool good = true;
  for (int i = 0; i < 32; ++i) good = good && got[i] == row(0, 31 - i) && got[32 + i] == row(1, 31 - i) && got[64 + i] == row(0, i ^ 3);
  late<<<1, 96>>>(upload(x), out);
  got = download(out, 32);
  for (int i = 0; i < 32; ++i) good = good && got[i] == x[i ^ 1];
  return verdict(good);
}
