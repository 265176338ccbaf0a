// Atomic operations on global and shared memory. Blocks run on several cores, so they are atomic on the CPU too.
#pragma once

#include "thread.h"

namespace samebits {

// A thread whose atomics change nothing polls: it must let the others run, or what it waits for never comes.
inline void polled(bool unchanged) {
  Thread* t = self();
  t->spins = unchanged ? t->spins + 1 : 0;
  if (__builtin_expect((t->spins & 63u) == 63u, 0)) yield(t);
}

template <class T, class F>
inline T atomic_update(T* p, F f) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, f(old), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
  polled(f(old) == old);
  return old;
}
template <class T>
inline T atomic_cas(T* p, T expected, T v) {
  polled(!__atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return expected;
}
template <class T, class U>
inline T atomic_float_add(T* p, T v) {  // U: the unsigned type of T's size
  U* bits = reinterpret_cast<U*>(p);
  U old = __atomic_load_n(bits, __ATOMIC_RELAXED);
  for (;;) {
    T value, sum;
    U next;
    __builtin_memcpy(&value, &old, sizeof value);
    sum = value + v;
    __builtin_memcpy(&next, &sum, sizeof next);
    if (__atomic_compare_exchange_n(bits, &old, next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
      polled(next == old);
      return value;
    }
  }
}

}  // namespace samebits

#define SAMEBITS_ATOMICS(SCOPE)                                                                                                          \
  SAMEBITS_ATOMIC_INT(int, SCOPE)                                                                                                        \
  SAMEBITS_ATOMIC_INT(unsigned, SCOPE)                                                                                                   \
  SAMEBITS_ATOMIC_INT(long long, SCOPE)                                                                                                  \
  SAMEBITS_ATOMIC_INT(unsigned long long, SCOPE)                                                                                         \
  SAMEBITS_ATOMIC_INT(unsigned long, SCOPE)                                                                                              \
  static inline unsigned short atomicCAS##SCOPE(unsigned short* p, unsigned short expected, unsigned short v) {                          \
    return ::samebits::atomic_cas(p, expected, v);                                                                                       \
  }                                                                                                                                      \
  static inline float atomicAdd##SCOPE(float* p, float v) { return ::samebits::atomic_float_add<float, unsigned>(p, v); }                \
  static inline double atomicAdd##SCOPE(double* p, double v) { return ::samebits::atomic_float_add<double, unsigned long long>(p, v); }  \
  static inline float atomicExch##SCOPE(float* p, float v) {                                                                             \
    unsigned bits, old;                                                                                                                  \
    __builtin_memcpy(&bits, &v, sizeof bits);                                                                                            \
    old = __atomic_exchange_n(reinterpret_cast<unsigned*>(p), bits, __ATOMIC_SEQ_CST);                                                   \
    ::samebits::polled(old == bits);                                                                                                     \
    __builtin_memcpy(&v, &old, sizeof v);                                                                                                \
    return v;                                                                                                                            \
  }                                                                                                                                      \
  static inline unsigned atomicInc##SCOPE(unsigned* p, unsigned limit) {                                                                 \
    return ::samebits::atomic_update(p, [limit](unsigned old) { return old >= limit ? 0u : old + 1u; });                                 \
  }                                                                                                                                      \
  static inline unsigned atomicDec##SCOPE(unsigned* p, unsigned limit) {                                                                 \
    return ::samebits::atomic_update(p, [limit](unsigned old) { return old == 0u || old > limit ? limit : old - 1u; });                  \
  }

#define SAMEBITS_FETCH(T, NAME, BUILTIN, UNCHANGED)   \
  static inline T NAME(T* p, T v) {                   \
    T old = BUILTIN(p, v, __ATOMIC_SEQ_CST);          \
    ::samebits::polled(UNCHANGED);                    \
    return old;                                       \
  }
#define SAMEBITS_ATOMIC_INT(T, SCOPE)                                                                                            \
  SAMEBITS_FETCH(T, atomicAdd##SCOPE, __atomic_fetch_add, v == 0)                                                                \
  SAMEBITS_FETCH(T, atomicSub##SCOPE, __atomic_fetch_sub, v == 0)                                                                \
  SAMEBITS_FETCH(T, atomicAnd##SCOPE, __atomic_fetch_and, (old & v) == old)                                                      \
  SAMEBITS_FETCH(T, atomicOr##SCOPE, __atomic_fetch_or, (old | v) == old)                                                        \
  SAMEBITS_FETCH(T, atomicXor##SCOPE, __atomic_fetch_xor, v == 0)                                                                \
  SAMEBITS_FETCH(T, atomicExch##SCOPE, __atomic_exchange_n, old == v)                                                            \
  static inline T atomicMin##SCOPE(T* p, T v) { return ::samebits::atomic_update(p, [v](T old) { return v < old ? v : old; }); } \
  static inline T atomicMax##SCOPE(T* p, T v) { return ::samebits::atomic_update(p, [v](T old) { return old < v ? v : old; }); } \
  static inline T atomicCAS##SCOPE(T* p, T expected, T v) { return ::samebits::atomic_cas(p, expected, v); }
SAMEBITS_ATOMICS()
SAMEBITS_ATOMICS(_block)
SAMEBITS_ATOMICS(_system)
#undef SAMEBITS_ATOMICS
#undef SAMEBITS_ATOMIC_INT
#undef SAMEBITS_FETCH
