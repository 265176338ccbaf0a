// What an mbarrier counts beside whole copies in bulk: arrivals by number, threads that drop out, bytes announced and brought by hand,
// cp.async of many threads, and arrivals and copies that come from another block of the cluster.
#include "program.h"

typedef unsigned long long word;
__device__ unsigned address_of(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }
__device__ unsigned peer_of(const void* p, unsigned rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address_of(p)), "r"(rank));
  return there;
}
__device__ void initialise(word* bar, unsigned count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address_of(bar)), "r"(count) : "memory");
}
__device__ word arrive(word* bar) {
  word state;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(address_of(bar)) : "memory");
  return state;
}
__device__ void wait_for(word* bar, word state) {
  unsigned done = 0;
  while (!done) {
    asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(address_of(bar)), "l"(state) : "memory");
  }
}
__device__ void wait_parity(word* bar, unsigned parity) {
  asm volatile("{\n .reg .pred p;\n W%=: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1, 1000;\n @!p bra W%=;\n}"
               ::"r"(address_of(bar)), "r"(parity) : "memory");
}

__global__ void within_a_block(const int4* x, int* sums, unsigned* counts) {
  __shared__ word tokens, bytes, copies;
  __shared__ int values[32];
  __shared__ int4 tile[2][32];
  unsigned t = threadIdx.x;
  if (t == 0) initialise(&tokens, 32), initialise(&bytes, 3), initialise(&copies, 32);
  __syncthreads();

  values[t] = int(t);  // a phase that everybody ends, then one that the last thread has left for good
  word state = arrive(&tokens);
  wait_for(&tokens, state);
  int sum = values[31 - t];
  if (t == 31) {
    asm volatile("mbarrier.arrive_drop.shared.b64 _, [%0];" ::"r"(address_of(&tokens)) : "memory");
  } else {
    wait_for(&tokens, arrive(&tokens));
    wait_for(&tokens, arrive(&tokens));
  }

  if (t == 0) {  // three arrivals at once; then bytes that nothing but this thread brings
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%1], 2; .reg .b32 n; mbarrier.pending_count.b64 %0, s; }"
                 : "=r"(counts[0]) : "r"(address_of(&bytes)) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 48;" ::"r"(address_of(&bytes)) : "memory");
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(counts[1]) : "r"(address_of(&bytes)) : "memory");
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 48;" ::"r"(address_of(&bytes)) : "memory");
  }
  wait_parity(&bytes, 0);

  for (int i = 0; i < 2; ++i) {  // each thread's copies are one arrival when they have come
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(address_of(&tile[i][t])), "l"(x + 32 * i + t) : "memory");
  }
  if (t % 2 == 0) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address_of(&copies)) : "memory");
  } else {
    asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(address_of(&copies)) : "memory");
    arrive(&copies);
  }
  wait_parity(&copies, 0);
  sums[t] = sum + tile[0][31 - t].x + tile[1][t ^ 1].w;
  __syncthreads();
  if (t == 0) {
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(address_of(&copies)) : "memory");
    initialise(&copies, 1);
    wait_for(&copies, arrive(&copies));
  }
}

// A thread whose arrival the others wait for looks fifty times before it comes: nobody is stuck.
__global__ void one_comes_late(int* times) {
  __shared__ word bar;
  if (threadIdx.x == 0) initialise(&bar, 1);
  __syncthreads();
  int looks = 0;
  for (unsigned done = 0; !done;) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(address_of(&bar)) : "memory");
    if (threadIdx.x == 40 && !done && ++looks == 50) arrive(&bar);
  }
  if (threadIdx.x == 40) *times = looks;
}

// Every block fills the next one's buffer from its own, which that block's mbarrier counts, and tells it so besides.
__global__ void __cluster_dims__(4) around_a_cluster(int* out) {
  __shared__ alignas(16) int mine[64], theirs[64];
  __shared__ word come;
  unsigned rank, next, t = threadIdx.x;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  next = (rank + 1) % 4;
  mine[t] = int(100 * rank + t);
  if (t == 0) initialise(&come, 2);
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t == 0) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(address_of(&come)) : "memory");
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  if (t == 0) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(peer_of(theirs, next)),
                 "r"(address_of(mine)), "r"(peer_of(&come, next)) : "memory");
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer_of(&come, next)) : "memory");
  }
  wait_parity(&come, 0);
  out[64 * blockIdx.x + t] = theirs[63 - t];
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

int main() {
  std::vector<int4> x(64);
  for (int i = 0; i < 64; ++i) x[i] = make_int4(1000 * i, 0, 0, 7 * i);
  int *sums = fresh<int>(32), *out = fresh<int>(512);
  unsigned* counts = fresh<unsigned>(2);
  within_a_block<<<1, 32>>>(upload(x), sums, counts);
  around_a_cluster<<<8, 64>>>(out);
  int* looks = fresh<int>(1);
  one_comes_late<<<1, 64>>>(looks);
  std::vector<int> got = download(sums, 32), moved = download(out, 512);
  std::vector<unsigned> counted = download(counts, 2);
  bool good = counted[0] == 3 && counted[1] == 0 && download(looks, 1)[0] == 50;
  for (int t = 0; t < 32; ++t) good = good && got[t] == (31 - t) + 1000 * (31 - t) + 7 * (32 + (t ^ 1));
  for (int i = 0; i < 512; ++i) good = good && moved[i] == 100 * ((i / 64 + 3) % 4) + 63 - i % 64;
  return verdict(good);
}
