// What g++ and clang++ call under -fsanitize=thread,alignment,signed-integer-overflow,bounds. The program is not linked to their
// libraries: these definitions take their place.
#include <stdlib.h>
#include <string.h>

#include <new>

#include "check.h"

namespace samebits {

namespace {

// Apart, so that the usual way needs no registers saved.
[[gnu::noinline, gnu::cold]] void when_due(Worker* worker, uintptr_t here, uintptr_t address, size_t bytes, unsigned kind, const void* pc) {
  worker->interrupt(thread_of(here));
  Check::on->access(*worker, thread_of(here), address, bytes, kind, pc);
}

inline void hook(const void* p, size_t bytes, unsigned kind, const void* pc) {
  Worker* worker = Check::active;
  if (__builtin_expect(worker == nullptr, 1)) return;
  uintptr_t address = reinterpret_cast<uintptr_t>(p);
  uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if ((address ^ here) < kStackBytes) return;  // a local variable, or what the emulator keeps beside it
  if (__builtin_expect(worker->due(), 0)) return when_due(worker, here, address, bytes, kind, pc);
  Check::on->access(*worker, thread_of(here), address, bytes, kind, pc);
}

inline void hook_atomic(const volatile void* p, size_t bytes, bool reads, bool writes, const void* pc) {
  Worker* worker = Check::active;
  if (__builtin_expect(worker == nullptr, 1)) return;
  uintptr_t address = reinterpret_cast<uintptr_t>(p);
  uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if ((address ^ here) < kStackBytes) return;
  if (worker->own(address)) return;
  Check::on->atomic(*worker, thread_of(here), address, bytes, reads, writes, pc);
}

// A compare-and-swap: what its thread read there before, without an atomic, was a guess that is now checked.
inline void hook_compare(const volatile void* p, size_t bytes, const void* pc) {
  hook_atomic(p, bytes, true, true, pc);
  Worker* worker = Check::active;
  if (worker == nullptr) return;
  Check::on->compared(*worker, thread_of(reinterpret_cast<uintptr_t>(__builtin_frame_address(0))), reinterpret_cast<uintptr_t>(p), bytes);
}

// Old code speaks to other blocks through volatile variables: in global memory they are relaxed atomics, in shared memory plain ones,
// since lanes that count on them for their warp's order are wrong.
inline void hook_volatile(const void* p, size_t bytes, unsigned kind, const void* pc) {
  Worker* worker = Check::active;
  if (worker != nullptr && reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(worker->window()) >= worker->window_bytes()) {
    hook_atomic(p, bytes, kind == kRead, kind == kWrite, pc);
    Thread* thread = thread_of(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
    if (kind == kRead && (++thread->spins & 63) == 63) worker->yield(thread, pc);  // as atomics that change nothing
  } else {
    hook(p, bytes, kind, pc);
  }
}

void arithmetic(const char* what, const void* data, const void* pc) {
  struct Location {
    const char* file;
    uint32_t line, column;
  };
  Worker* worker = Check::active;
  uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (worker == nullptr) return;
  const Location* at = static_cast<const Location*>(data);
  const char* kind = what[0] == 'm' ? "misaligned" : what[0] == 'i' ? "out of bounds" : "signed overflow";
  if (of_the_emulator(at->file)) {  // __ldg() and the like are inlined: the code's address leads to the user's line
    Check::on->report(kind, what, thread_of(here), Check::on->site_of(pc), nullptr);
  } else {
    Check::on->report(kind, what, thread_of(here), 0, nullptr, at->file, int(at->line));
  }
}

}  // namespace

// A fence, an atomic's place in the order.
void note_fence(bool device) {
  Worker* worker = Check::active;
  if (worker != nullptr) Check::on->fence(*worker, self(), device);
}

// Arrivals at a cuda::barrier, ends of its phases, and threads that have waited for one.
void note_arrival(const void* barrier, bool last) {
  Worker* worker = Check::active;
  if (worker == nullptr) return;
  Check::on->gather(*worker, self(), reinterpret_cast<uintptr_t>(barrier));
  if (last) Check::on->end_phase(reinterpret_cast<uintptr_t>(barrier));
}
void note_passed(const void* barrier) {
  Worker* worker = Check::active;
  if (worker != nullptr) Check::on->pass_phase(*worker, self(), reinterpret_cast<uintptr_t>(barrier));
}

}  // namespace samebits

using samebits::hook;
using samebits::hook_atomic;
using samebits::hook_compare;
using samebits::hook_volatile;
#define PC __builtin_return_address(0)

extern "C" {
#define SAMEBITS_HOOKS(N)                                                                          \
  void __tsan_read##N(void* p) { hook(p, N, samebits::kRead, PC); }                                \
  void __tsan_write##N(void* p) { hook(p, N, samebits::kWrite, PC); }                              \
  void __tsan_unaligned_read##N(void* p) { hook(p, N, samebits::kRead, PC); }                      \
  void __tsan_unaligned_write##N(void* p) { hook(p, N, samebits::kWrite, PC); }                    \
  void __tsan_read_write##N(void* p) { hook(p, N, samebits::kRead, PC), hook(p, N, samebits::kWrite, PC); }           \
  void __tsan_unaligned_read_write##N(void* p) { hook(p, N, samebits::kRead, PC), hook(p, N, samebits::kWrite, PC); } \
  void __tsan_volatile_read##N(void* p) { hook_volatile(p, N, samebits::kRead, PC); }              \
  void __tsan_volatile_write##N(void* p) { hook_volatile(p, N, samebits::kWrite, PC); }            \
  void __tsan_unaligned_volatile_read##N(void* p) { hook_volatile(p, N, samebits::kRead, PC); }    \
  void __tsan_unaligned_volatile_write##N(void* p) { hook_volatile(p, N, samebits::kWrite, PC); }
SAMEBITS_HOOKS(1)
SAMEBITS_HOOKS(2)
SAMEBITS_HOOKS(4)
SAMEBITS_HOOKS(8)
SAMEBITS_HOOKS(16)
void __tsan_read_range(void* p, unsigned long n) { hook(p, n, samebits::kRead, PC); }
void __tsan_write_range(void* p, unsigned long n) { hook(p, n, samebits::kWrite, PC); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** p, void*) { hook(p, sizeof *p, samebits::kWrite, PC); }
void __tsan_vptr_read(void** p) { hook(p, sizeof *p, samebits::kRead, PC); }
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

#define SAMEBITS_FETCH_HOOK(BITS, T, NAME)                                             \
  T __tsan_atomic##BITS##_fetch_##NAME(volatile T* p, T v, int) {                      \
    hook_atomic(p, sizeof(T), true, true, PC);                                         \
    return __atomic_fetch_##NAME(p, v, __ATOMIC_SEQ_CST);                              \
  }
#define SAMEBITS_CAS_HOOK(BITS, T, STRENGTH)                                                                         \
  int __tsan_atomic##BITS##_compare_exchange_##STRENGTH(volatile T* p, T* expected, T v, int, int) {                 \
    hook_compare(p, sizeof(T), PC);                                                                                  \
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                   \
  }
#define SAMEBITS_ATOMIC_HOOKS(BITS, T)                                                 \
  T __tsan_atomic##BITS##_load(const volatile T* p, int) {                             \
    hook_atomic(p, sizeof(T), true, false, PC);                                        \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                       \
  }                                                                                    \
  void __tsan_atomic##BITS##_store(volatile T* p, T v, int) {                          \
    hook_atomic(p, sizeof(T), false, true, PC);                                        \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                          \
  }                                                                                    \
  T __tsan_atomic##BITS##_exchange(volatile T* p, T v, int) {                          \
    hook_atomic(p, sizeof(T), true, true, PC);                                         \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                \
  }                                                                                    \
  SAMEBITS_FETCH_HOOK(BITS, T, add)                                                    \
  SAMEBITS_FETCH_HOOK(BITS, T, sub)                                                    \
  SAMEBITS_FETCH_HOOK(BITS, T, and)                                                    \
  SAMEBITS_FETCH_HOOK(BITS, T, or)                                                     \
  SAMEBITS_FETCH_HOOK(BITS, T, xor)                                                    \
  SAMEBITS_CAS_HOOK(BITS, T, strong)                                                   \
  SAMEBITS_CAS_HOOK(BITS, T, weak)                                                     \
  T __tsan_atomic##BITS##_compare_exchange_val(volatile T* p, T expected, T v, int, int) {             \
    hook_compare(p, sizeof(T), PC);                                                                    \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);           \
    return expected;                                                                                   \
  }
SAMEBITS_ATOMIC_HOOKS(8, unsigned char)
SAMEBITS_ATOMIC_HOOKS(16, unsigned short)
SAMEBITS_ATOMIC_HOOKS(32, unsigned)
SAMEBITS_ATOMIC_HOOKS(64, unsigned long)

// Calls that remained calls: the linker (g++) or the compiler (clang++) leads them here.
void* samebits_check_memcpy(void* to, const void* from, size_t n) {
  hook(from, n, samebits::kRead, PC);
  hook(to, n, samebits::kWrite, PC);
  return memcpy(to, from, n);
}
void* samebits_check_memmove(void* to, const void* from, size_t n) {
  hook(from, n, samebits::kRead, PC);
  hook(to, n, samebits::kWrite, PC);
  return memmove(to, from, n);
}
void* samebits_check_memset(void* to, int value, size_t n) {
  hook(to, n, samebits::kWrite, PC);
  return memset(to, value, n);
}
void* __wrap_memcpy(void*, const void*, size_t) __attribute__((alias("samebits_check_memcpy")));
void* __wrap_memmove(void*, const void*, size_t) __attribute__((alias("samebits_check_memmove")));
void* __wrap_memset(void*, int, size_t) __attribute__((alias("samebits_check_memset")));
void* __tsan_memcpy(void*, const void*, size_t) __attribute__((alias("samebits_check_memcpy")));
void* __tsan_memmove(void*, const void*, size_t) __attribute__((alias("samebits_check_memmove")));
void* __tsan_memset(void*, int, size_t) __attribute__((alias("samebits_check_memset")));

// The heap of device code: allocations with an extent of their own. What has been freed stays for a while, so that its use is seen.
void* __wrap_malloc(size_t n) {
  void* p = malloc(n);
  if (p != nullptr && samebits::Check::active != nullptr) samebits::Check::on->add(reinterpret_cast<uintptr_t>(p), n, samebits::kDeviceHeap, false);
  return p;
}
static inline void release(void* p, const void* pc) {
  if (p != nullptr && samebits::Check::on != nullptr) p = samebits::Check::on->retire(p, pc);
  free(p);
}
void __wrap_free(void* p) { release(p, PC); }
void* __wrap__Znwm(size_t n) {
  void* p = __wrap_malloc(n);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* __wrap__Znam(size_t) __attribute__((alias("__wrap__Znwm")));
void __wrap__ZdlPv(void*) __attribute__((alias("__wrap_free")));
void __wrap__ZdaPv(void*) __attribute__((alias("__wrap_free")));
void __wrap__ZdlPvm(void* p, size_t) { release(p, PC); }
void __wrap__ZdaPvm(void* p, size_t) { release(p, PC); }

// Each has its source location first.
void __ubsan_handle_type_mismatch_v1(void* data, unsigned long pointer) {
  struct Mismatch {
    const char* file;
    uint32_t line, column;
    void* type;
    unsigned char log_alignment, kind;
  };
  const Mismatch* m = static_cast<const Mismatch*>(data);
  uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (pointer == 0 || m->log_alignment == 0 || (pointer & ((1ul << m->log_alignment) - 1)) == 0 || (pointer ^ here) < samebits::kStackBytes) return;
  static thread_local char text[96];
  snprintf(text, sizeof text, "misaligned access: address 0x%lx is not a multiple of %lu", pointer, 1ul << m->log_alignment);
  samebits::arithmetic(text, data, PC);
}
void __ubsan_handle_add_overflow(void* data, unsigned long, unsigned long) { samebits::arithmetic("signed overflow in an addition", data, PC); }
void __ubsan_handle_sub_overflow(void* data, unsigned long, unsigned long) { samebits::arithmetic("signed overflow in a subtraction", data, PC); }
void __ubsan_handle_mul_overflow(void* data, unsigned long, unsigned long) { samebits::arithmetic("signed overflow in a product", data, PC); }
void __ubsan_handle_negate_overflow(void* data, unsigned long) { samebits::arithmetic("signed overflow in a negation", data, PC); }
void __ubsan_handle_divrem_overflow(void* data, unsigned long, unsigned long) { samebits::arithmetic("signed overflow in a division", data, PC); }
void __ubsan_handle_out_of_bounds(void* data, unsigned long index) {
  static thread_local char text[96];
  snprintf(text, sizeof text, "index %ld is outside of the array's declared bounds", long(index));
  samebits::arithmetic(text, data, PC);
}
}
#undef PC
