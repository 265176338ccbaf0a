// A ring of buffers that one warp fills by bulk copies and three others empty: mbarriers count bytes on the way in and arrivals on the way
// back. What comes out leaves by bulk copies too, from two buffers that take turns.
#include "program.h"

constexpr int kStages = 3, kTile = 96, kConsumers = 96;

__device__ unsigned address_of(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

struct Barrier {
  unsigned long long word;
  __device__ void initialise(unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(&word)), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.release.cta.shared::cta.b64 state, [%0];\n\t}" ::"r"(address_of(&word)) : "memory");
  }
  __device__ void arrive_and_expect(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(&word)), "r"(bytes) : "memory");
  }
  __device__ bool ended(unsigned parity) {
    unsigned done;
    asm volatile(
        "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.b32 %0, 1, 0, p;\n\t}"
        : "=r"(done)
        : "r"(address_of(&word)), "r"(parity)
        : "memory");
    return done != 0;
  }
  __device__ void wait(unsigned parity) {
    while (!ended(parity)) {
    }
  }
};

__global__ void twice(const float* x, float* y, int tiles) {
  __shared__ alignas(128) float in[kStages][kTile];
  __shared__ alignas(128) float out[2][kTile];
  __shared__ Barrier full[kStages], empty[kStages];
  const float* mine = x + size_t(blockIdx.x) * tiles * kTile;
  float* result = y + size_t(blockIdx.x) * tiles * kTile;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) full[s].initialise(1), empty[s].initialise(kConsumers / 32);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();

  if (threadIdx.x >= kConsumers) {
    unsigned leader;
    asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.b32 %0, 1, 0, p;\n\t}" : "=r"(leader));
    for (int t = 0; leader && t < tiles; ++t) {
      int s = t % kStages;
      if (t >= kStages) empty[s].wait((t / kStages - 1) & 1);
      full[s].arrive_and_expect(sizeof in[s]);
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address_of(in[s])),
                   "l"(mine + t * kTile), "r"(unsigned(sizeof in[s])), "r"(address_of(&full[s].word))
                   : "memory");
    }
    return;
  }

  for (int t = 0; t < tiles; ++t) {
    int s = t % kStages;
    full[s].wait(t / kStages & 1);
    float v = 2 * in[s][kTile - 1 - threadIdx.x];
    __syncwarp();
    if (threadIdx.x % 32 == 0) empty[s].arrive();
    if (threadIdx.x == 0 && t >= 2) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
    asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory");
    out[t % 2][threadIdx.x] = v;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory");
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(result + t * kTile), "r"(address_of(out[t % 2])),
                   "r"(unsigned(sizeof out[0]))
                   : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

int main() {
  int blocks = 3, tiles = 8, n = blocks * tiles * kTile;
  std::vector<float> x = numbers(n), want(n);
  for (int i = 0; i < n; ++i) want[i] = 2 * x[i / kTile * kTile + kTile - 1 - i % kTile];
  float *in = upload(x), *out = fresh<float>(n);
  twice<<<blocks, kConsumers + 32>>>(in, out, tiles);
  return verdict(close(download(out, n), want));
}
