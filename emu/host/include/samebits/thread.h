// The CUDA thread that is running, what it sees of its block, shared memory and barriers.
#pragma once

#include "types.h"

namespace samebits {

// One stack per CUDA thread, aligned to its size, so that the stack pointer alone names the thread: no thread-local variable, no argument.
constexpr uintptr_t kStackBytes = uintptr_t(1) << 18;
constexpr uintptr_t kStackGuard = uintptr_t(1) << 16;  // unmapped at its low end

// A `__shared__` variable: one static object for each declaration and each instantiation of its function.
struct Slot {
  size_t bytes;
  size_t align;
  const char* name;
  const char* file;
  int line;
  unsigned id = 0;  // 0 until its first use in the process
};

struct SharedEntry {
  unsigned long generation;  // block in which `pointer` is valid
  void* pointer;
};

// What all threads of the running block share.
struct BlockView {
  uint3 block_idx;
  dim3 block_dim;
  dim3 grid_dim;
  unsigned long generation;
  unsigned shared_entries;
  SharedEntry* shared;
  void* dynamic_shared;
  unsigned dynamic_bytes;
  unsigned static_bytes;
  int barrier_result;
  dim3 cluster_dim;   // in blocks
  uint3 cluster_idx;  // of the block in its cluster
  unsigned cluster_rank;
};

enum class Op : unsigned char {
  none, syncthreads, syncthreads_count, syncthreads_and, syncthreads_or,
  syncwarp, shuffle, ballot, all, any, match_any, match_all, activemask,
  cluster_barrier, grid_barrier, mbarrier, named_barrier,
  reduce_add, reduce_min_s, reduce_min_u, reduce_max_s, reduce_max_u, reduce_and, reduce_or, reduce_xor,
};

struct alignas(64) Thread {
  uint3 index;
  unsigned linear;  // threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)
  BlockView* block;
  uint64_t* result;  // of its last warp operation
  const char* file;  // where it waits
  int line;
  unsigned mask;
  Op op;
  bool carry;  // PTX's CC.CF
  unsigned spins;
};
static_assert(sizeof(Thread) == 64, "thread_of() counts on one cache line");

// The Thread lies at the top of its stack, moved by a different number of cache lines for each stack: with all of them at the same
// offset they would share a few sets of the first-level cache.
inline Thread* thread_of(uintptr_t sp) {
  uintptr_t base = sp & ~(kStackBytes - 1);
  return reinterpret_cast<Thread*>(base + (kStackBytes - 4096) + ((base >> 12) & 0xFC0));
}

#if defined(__x86_64__)
inline Thread* self() {
  uintptr_t sp;
  asm("movq %%rsp, %0" : "=r"(sp));
  return thread_of(sp);
}
#elif defined(__aarch64__)
inline Thread* self() {
  uintptr_t sp;
  asm("mov %0, sp" : "=r"(sp));
  return thread_of(sp);
}
#else
inline Thread* self() { return thread_of(reinterpret_cast<uintptr_t>(__builtin_frame_address(0))); }
#endif

inline const uint3& thread_index() { return self()->index; }
inline const uint3& block_index() { return self()->block->block_idx; }
inline const dim3& block_dim() { return self()->block->block_dim; }
inline const dim3& grid_dim() { return self()->block->grid_dim; }
inline unsigned lane() { return self()->linear & 31u; }

void* shared_first(Thread*, Slot*);  // first use of a variable in a block: place it, poison it (C15)
inline void* shared(Slot* slot) {
  Thread* t = self();
  BlockView* b = t->block;
  unsigned id = __atomic_load_n(&slot->id, __ATOMIC_RELAXED);
  if (id < b->shared_entries && b->shared[id].generation == b->generation) return b->shared[id].pointer;
  return shared_first(t, slot);
}
inline void* dynamic_shared() { return self()->block->dynamic_shared; }

void barrier(Thread*, Op, int predicate, const char* file, int line);
void note_fence(bool device);           // tells the checks of a fence,
void note_arrival(const void* barrier, bool last);  // of an arrival at a barrier that is a variable,
void note_passed(const void* barrier);              // and of a thread that has waited for it
bool cooperative();                     // whether the launch is
void not_bit_accurate(const char* what);  // noted once for the run's output; a text that stays
bool on_device();                       // whether device code runs
constexpr bool device_pass() { return __builtin_is_constant_evaluated() ? false : on_device(); }  // a function that has two bodies asks
enum Scope : unsigned { kCluster, kGrid };
void arrive(Scope, bool aligned, const char* file, int line);  // at a barrier of several blocks; aligned: lanes of a warp together
void wait(Scope, const char* file, int line);                  // for the barrier that the thread arrived at
void yield(Thread*);                    // let the other threads of the block run
[[noreturn]] void trap(const char* what);  // ends the launch with cudaErrorLaunchFailure
[[noreturn]] void assert_failed(const char* expression, const char* file, int line, const char* function);

}  // namespace samebits

#define SAMEBITS_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

#define SAMEBITS_BARRIER(NAME)                                                              \
  static inline int __##NAME(int predicate, SAMEBITS_SITE) {                                \
    ::samebits::Thread* t = ::samebits::self();                                             \
    ::samebits::barrier(t, ::samebits::Op::NAME, predicate, file, line);                    \
    return t->block->barrier_result;                                                        \
  }
SAMEBITS_BARRIER(syncthreads_count)
SAMEBITS_BARRIER(syncthreads_and)
SAMEBITS_BARRIER(syncthreads_or)
#undef SAMEBITS_BARRIER
static inline void __syncthreads(SAMEBITS_SITE) {
  ::samebits::barrier(::samebits::self(), ::samebits::Op::syncthreads, 0, file, line);
}

#ifdef SAMEBITS_CHECK
static inline void __threadfence() { ::samebits::note_fence(true); }
static inline void __threadfence_block() { ::samebits::note_fence(false); }
static inline void __threadfence_system() { ::samebits::note_fence(true); }
#else
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#endif
static inline void __nanosleep(unsigned) { ::samebits::yield(::samebits::self()); }
[[noreturn]] static inline void __trap() { ::samebits::trap("__trap()"); }
