// Copies in bulk and the mbarriers that say when they have come; numbered barriers.
#include "bulk.h"

#include "specimen.h"

template <bool Bad>
__global__ void read_before_the_phase_ends(Args a) {
  __shared__ alignas(16) float s[64];
  __shared__ unsigned long long bar;
  if (threadIdx.x == 0) initialise(&bar, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_expecting(&bar, sizeof s);
    load(s, a.x, sizeof s, &bar);
  }
  if (!Bad) wait(&bar, 0);
  a.y[threadIdx.x] = s[63 - threadIdx.x];  // expect: async copy or shared race or uninitialised read
}

template <bool Bad>
__global__ void one_thread_waits_for_all(Args a) {
  __shared__ alignas(16) float s[64];
  __shared__ unsigned long long bar;
  if (threadIdx.x == 0) {
    initialise(&bar, 1);
    arrive_expecting(&bar, sizeof s);
    load(s, a.x, sizeof s, &bar);
    wait(&bar, 0);
  }
  if (!Bad) __syncthreads();
  a.y[threadIdx.x] = s[63 - threadIdx.x];  // expect: async copy or shared race or uninitialised read
}

template <bool Bad>
__global__ void more_bytes_expected_than_come(Args a) {
  __shared__ alignas(16) float s[64];
  __shared__ unsigned long long bar;
  if (threadIdx.x == 0) initialise(&bar, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_expecting(&bar, Bad ? sizeof s + 16 : sizeof s);
    load(s, a.x, sizeof s, &bar);
  }
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra again; }" ::"r"(address_of(&bar)));  // expect: mbarrier
  a.y[threadIdx.x] = s[threadIdx.x];
}

template <bool Bad>
__global__ void arrival_that_expects_nothing(Args a) {
  __shared__ alignas(16) float s[64];
  __shared__ unsigned long long bar;
  if (threadIdx.x == 0) initialise(&bar, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    load(s, a.x, sizeof s, &bar);
    if (Bad) arrive(&bar); else arrive_expecting(&bar, sizeof s);
  }
  wait(&bar, 0);
  a.y[threadIdx.x] = s[threadIdx.x];  // expect: async copy
}

template <bool Bad>
__global__ void parity_of_the_phase_before(Args a) {
  __shared__ alignas(16) float s[2][64];
  __shared__ unsigned long long bar;
  if (threadIdx.x == 0) initialise(&bar, 1);
  __syncthreads();
  float sum = 0;
  for (unsigned t = 0; t < 2; ++t) {
    if (threadIdx.x == 0) {
      arrive_expecting(&bar, sizeof s[t]);
      load(s[t], a.x + 64 * t, sizeof s[t], &bar);
    }
    wait(&bar, Bad ? 0 : t % 2);
    sum += s[t][threadIdx.x];  // expect: async copy or uninitialised read
    __syncthreads();
  }
  a.y[threadIdx.x] = sum;
}

template <bool Bad>
__global__ void buffer_filled_while_others_read(Args a) {
  __shared__ alignas(16) float s[64];
  __shared__ unsigned long long full, empty;
  if (threadIdx.x == 0) {
    initialise(&full, 1);
    initialise(&empty, Bad ? 1 : 64);
  }
  __syncthreads();
  float sum = 0;
  for (unsigned t = 0; t < 3; ++t) {
    if (threadIdx.x == 0) {
      if (t > 0) wait(&empty, (t - 1) % 2);
      arrive_expecting(&full, sizeof s);
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(address_of(s)), "l"(a.x + 64 * t), "r"(address_of(&full)));  // expect: shared race
    }
    wait(&full, t % 2);
    sum += s[63 - threadIdx.x];
    if (!Bad || threadIdx.x == 0) arrive(&empty);
  }
  a.y[threadIdx.x] = sum;
}

template <bool Bad>
__global__ void no_multiple_of_16_bytes(Args a) {
  __shared__ alignas(16) float s[64];
  __shared__ unsigned long long bar;
  unsigned bytes = Bad ? 120 : 128;
  if (threadIdx.x == 0) {
    initialise(&bar, 1);
    arrive_expecting(&bar, bytes);
    asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address_of(s)), "l"(a.x), "r"(bytes), "r"(address_of(&bar)));  // expect: misaligned
  }
  __syncthreads();
  wait(&bar, 0);
  if (threadIdx.x < 30) a.y[threadIdx.x] = s[threadIdx.x];
}

template <bool Bad>
__global__ void bulk_copy_from_an_odd_place(Args a) {
  __shared__ alignas(16) float s[64];
  __shared__ unsigned long long bar;
  if (threadIdx.x == 0) {
    initialise(&bar, 1);
    arrive_expecting(&bar, 128);
    const float* from = a.x + (Bad ? 1 : 4);
    asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(address_of(s)), "l"(from), "r"(address_of(&bar)));  // expect: misaligned
  }
  __syncthreads();
  wait(&bar, 0);
  if (threadIdx.x < 32) a.y[threadIdx.x] = s[threadIdx.x];
}

template <bool Bad>
__global__ void arrival_before_all_know_the_barrier(Args a) {
  __shared__ float s[64];
  __shared__ unsigned long long bar;
  if (threadIdx.x == 0) initialise(&bar, 64);
  if (!Bad) __syncthreads();
  s[threadIdx.x] = a.x[threadIdx.x];
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(address_of(&bar)) : "memory");  // expect: mbarrier or shared race
  wait(&bar, 0);
  a.y[threadIdx.x] = s[63 - threadIdx.x];
}

template <bool Bad>
__global__ void more_arrivals_than_expected(Args a) {
  __shared__ unsigned long long bar;
  if (threadIdx.x == 0) {
    initialise(&bar, 64);
    if (Bad) arrive_expecting(&bar, 16);  // what it expects keeps the phase open
  }
  __syncthreads();
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(address_of(&bar)) : "memory");  // expect: mbarrier
  if (!Bad) wait(&bar, 0);
}

template <bool Bad>
__global__ void source_changed_before_it_is_read(Args a) {
  __shared__ alignas(16) float s[64];
  s[threadIdx.x] = a.x[threadIdx.x];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    store(a.y, s, sizeof s);
    if (!Bad) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
  __syncthreads();
  s[threadIdx.x] = 0;  // expect: async copy
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

template <bool Bad>
__global__ void result_read_before_it_is_there(Args a) {
  __shared__ alignas(16) float s[64];
  s[threadIdx.x] = a.x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x != 0) return;
  store(a.y, s, sizeof s);
  if (Bad) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  else asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  a.y[64] = a.y[0];  // expect: async copy
}

template <bool Bad>
__global__ void fetched_and_left_behind(Args a) {
  __shared__ alignas(16) float s[64];
  __shared__ unsigned long long bar;
  if (threadIdx.x != 0) return;
  initialise(&bar, 1);
  for (unsigned t = 0; t < 2; ++t) {
    arrive_expecting(&bar, sizeof s);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(address_of(s)), "l"(a.x), "r"(address_of(&bar)));  // expect: async copy
    if (!Bad || t == 0) wait(&bar, t);
    a.y[t] = Bad && t == 1 ? 0 : s[0];
  }
}

template <bool Bad>
__global__ void stored_without_a_proxy_fence(Args a) {
  __shared__ alignas(16) float s[64];
  s[threadIdx.x] = a.x[threadIdx.x];
  if (!Bad) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x != 0) return;
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(a.y), "r"(address_of(s)) : "memory");  // expect: async copy
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

template <bool Bad>
__global__ void producers_that_do_not_arrive(Args a) {
  __shared__ float s[64];
  if (threadIdx.x < 64) {
    s[threadIdx.x] = a.x[threadIdx.x];
    if (!Bad) asm volatile("bar.arrive 1, 128;" ::: "memory");
  } else {
    if (!Bad) asm volatile("bar.sync 1, 128;" ::: "memory");
    a.y[threadIdx.x] = s[127 - threadIdx.x];  // expect: shared race or uninitialised read
  }
}

template <bool Bad>
__global__ void buffer_given_back_too_soon(Args a) {
  __shared__ float s[64];
  for (int t = 0; t < 3; ++t) {
    if (threadIdx.x < 64) {
      if (t > 0 && !Bad) asm volatile("bar.sync 2, 128;" ::: "memory");
      s[threadIdx.x] = a.x[64 * t + threadIdx.x];  // expect: shared race
      asm volatile("bar.sync 1, 128;" ::: "memory");
    } else {
      asm volatile("bar.sync 1, 128;" ::: "memory");
      a.y[64 * t + threadIdx.x] = s[127 - threadIdx.x];
      if (t < 2 && !Bad) asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
  }
}

template <bool Bad>
__global__ void barriers_of_two_numbers(Args a) {
  if (threadIdx.x < 32) {
    asm volatile("bar.sync %0, 64;" ::"r"(Bad ? 2 : 1) : "memory");  // expect: barrier divergence
  } else {
    asm volatile("bar.sync 1, 64;" ::: "memory");
  }
}

template <bool Bad>
__global__ void barrier_for_other_counts(Args a) {
  if (threadIdx.x < 32) {
    asm volatile("bar.sync 1, 64;" ::: "memory");
  } else {
    asm volatile("bar.sync 1, %0;" ::"r"(Bad ? 96 : 64) : "memory");  // expect: barrier divergence
  }
}

template <bool Bad>
__global__ void numbered_barrier_in_a_branch(Args a) {
  if (!Bad || threadIdx.x % 32 < 16) {
    asm volatile("bar.sync 1, 32;" ::: "memory");  // expect: barrier divergence
  }
}

int main(int argc, char** argv) {
  const Specimen all[] = {
      SPECIMEN(read_before_the_phase_ends, 1, 64, 0),      SPECIMEN(one_thread_waits_for_all, 1, 64, 0),
      SPECIMEN(more_bytes_expected_than_come, 1, 64, 0),   SPECIMEN(arrival_that_expects_nothing, 1, 64, 0),
      SPECIMEN(parity_of_the_phase_before, 1, 64, 0),      SPECIMEN(buffer_filled_while_others_read, 1, 64, 0),
      SPECIMEN(no_multiple_of_16_bytes, 1, 64, 0),         SPECIMEN(bulk_copy_from_an_odd_place, 1, 64, 0),
      SPECIMEN(arrival_before_all_know_the_barrier, 1, 64, 0), SPECIMEN(more_arrivals_than_expected, 1, 64, 0),
      SPECIMEN(source_changed_before_it_is_read, 1, 64, 0), SPECIMEN(result_read_before_it_is_there, 1, 64, 0),
      SPECIMEN(fetched_and_left_behind, 1, 64, 0),
      SPECIMEN(stored_without_a_proxy_fence, 1, 64, 0),
      SPECIMEN(producers_that_do_not_arrive, 1, 128, 0),   SPECIMEN(buffer_given_back_too_soon, 1, 128, 0),
      SPECIMEN(barriers_of_two_numbers, 1, 64, 0),         SPECIMEN(barrier_for_other_counts, 1, 128, 0),
      SPECIMEN(numbered_barrier_in_a_branch, 1, 32, 0),
  };
  return run_specimen(all, argc, argv);
}
