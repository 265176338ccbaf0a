// Warp operations. Every lane leaves its value and waits; the last lane of the mask computes all results, so that a lane running ahead
// into the next operation cannot overwrite a value that another has yet to read.
#pragma once

#include "thread.h"

namespace samebits {

void collective_wait(Thread*, unsigned op_and_source, unsigned mask, uint64_t value, const char* file, int line);
inline uint64_t collective(Op op, unsigned mask, uint64_t value, unsigned source, const char* file, int line) {
  Thread* t = self();
  collective_wait(t, unsigned(op) | source << 8, mask, value, file, line);
  return *t->result;
}

template <class T>
inline uint64_t to_bits(T v) {
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &v, sizeof(T));
  return bits;
}
template <class T>
inline T from_bits(uint64_t bits) {
  T v;
  __builtin_memcpy(&v, &bits, sizeof(T));
  return v;
}

// Source lanes as PTX shfl.sync computes them: segments of `width` lanes, five bits of distance; a source outside the segment is the
// lane itself.
inline unsigned source_idx(unsigned lane, int src, int width) {
  return (lane & ~unsigned(width - 1)) | (unsigned(src) & unsigned(width - 1));
}
inline unsigned source_up(unsigned lane, unsigned delta, int width) {
  delta &= 31u;
  return (lane & unsigned(width - 1)) >= delta ? lane - delta : lane;
}
inline unsigned source_down(unsigned lane, unsigned delta, int width) {
  unsigned in = lane & unsigned(width - 1);
  delta &= 31u;
  return delta < unsigned(width) - in ? lane + delta : lane;
}
inline unsigned source_xor(unsigned lane, int mask, int width) {
  unsigned src = lane ^ (unsigned(mask) & 31u);  // lanes of lower segments may be read, those of higher ones not
  return src <= (lane | unsigned(width - 1)) ? src : lane;
}

void bad_width(int width, const char* file, int line);
inline void check_width(int width, const char* file, int line) {
  if (__builtin_expect(width < 1 || width > 32 || (width & (width - 1)) != 0, 0)) bad_width(width, file, line);
}

}  // namespace samebits

#define SAMEBITS_SHUFFLE(NAME, T, ARG, SOURCE)                                                                         \
  static inline T NAME(unsigned mask, T v, ARG arg, int width = 32, SAMEBITS_SITE) {                                   \
    ::samebits::check_width(width, file, line);                                                                        \
    unsigned source = ::samebits::SOURCE(::samebits::lane(), arg, width);                                              \
    return ::samebits::from_bits<T>(                                                                                   \
        ::samebits::collective(::samebits::Op::shuffle, mask, ::samebits::to_bits(v), source, file, line));            \
  }
#define SAMEBITS_SHUFFLES(T)                                      \
  SAMEBITS_SHUFFLE(__shfl_sync, T, int, source_idx)               \
  SAMEBITS_SHUFFLE(__shfl_up_sync, T, unsigned, source_up)        \
  SAMEBITS_SHUFFLE(__shfl_down_sync, T, unsigned, source_down)    \
  SAMEBITS_SHUFFLE(__shfl_xor_sync, T, int, source_xor)
SAMEBITS_SHUFFLES(int)
SAMEBITS_SHUFFLES(unsigned)
SAMEBITS_SHUFFLES(long)
SAMEBITS_SHUFFLES(unsigned long)
SAMEBITS_SHUFFLES(long long)
SAMEBITS_SHUFFLES(unsigned long long)
SAMEBITS_SHUFFLES(float)
SAMEBITS_SHUFFLES(double)
#undef SAMEBITS_SHUFFLES
#undef SAMEBITS_SHUFFLE

#define SAMEBITS_VOTE(OP, MASK, VALUE) \
  ::samebits::collective(::samebits::Op::OP, MASK, VALUE, 0, file, line)

static inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, SAMEBITS_SITE) { SAMEBITS_VOTE(syncwarp, mask, 0); }
static inline unsigned __ballot_sync(unsigned mask, int predicate, SAMEBITS_SITE) {
  return unsigned(SAMEBITS_VOTE(ballot, mask, predicate != 0));
}
static inline int __all_sync(unsigned mask, int predicate, SAMEBITS_SITE) {
  return int(SAMEBITS_VOTE(all, mask, predicate != 0));
}
static inline int __any_sync(unsigned mask, int predicate, SAMEBITS_SITE) {
  return int(SAMEBITS_VOTE(any, mask, predicate != 0));
}
// The lanes that reach this call before their warp can do nothing else: the widest answer that hardware gives.
static inline unsigned __activemask(SAMEBITS_SITE) { return unsigned(SAMEBITS_VOTE(activemask, 0xFFFFFFFFu, 0)); }

#define SAMEBITS_MATCH(T)                                                                           \
  static inline unsigned __match_any_sync(unsigned mask, T v, SAMEBITS_SITE) {                      \
    return unsigned(SAMEBITS_VOTE(match_any, mask, ::samebits::to_bits(v)));                        \
  }                                                                                                 \
  static inline unsigned __match_all_sync(unsigned mask, T v, int* predicate, SAMEBITS_SITE) {      \
    unsigned same = unsigned(SAMEBITS_VOTE(match_all, mask, ::samebits::to_bits(v)));               \
    *predicate = same != 0;                                                                         \
    return same;                                                                                    \
  }
SAMEBITS_MATCH(int)
SAMEBITS_MATCH(unsigned)
SAMEBITS_MATCH(long)
SAMEBITS_MATCH(unsigned long)
SAMEBITS_MATCH(long long)
SAMEBITS_MATCH(unsigned long long)
SAMEBITS_MATCH(float)
SAMEBITS_MATCH(double)
#undef SAMEBITS_MATCH

#define SAMEBITS_REDUCE(NAME, T, OP) \
  static inline T NAME(unsigned mask, T v, SAMEBITS_SITE) { return (T)SAMEBITS_VOTE(OP, mask, unsigned(v)); }
SAMEBITS_REDUCE(__reduce_add_sync, int, reduce_add)
SAMEBITS_REDUCE(__reduce_add_sync, unsigned, reduce_add)
SAMEBITS_REDUCE(__reduce_min_sync, int, reduce_min_s)
SAMEBITS_REDUCE(__reduce_min_sync, unsigned, reduce_min_u)
SAMEBITS_REDUCE(__reduce_max_sync, int, reduce_max_s)
SAMEBITS_REDUCE(__reduce_max_sync, unsigned, reduce_max_u)
SAMEBITS_REDUCE(__reduce_and_sync, unsigned, reduce_and)
SAMEBITS_REDUCE(__reduce_or_sync, unsigned, reduce_or)
SAMEBITS_REDUCE(__reduce_xor_sync, unsigned, reduce_xor)
#undef SAMEBITS_REDUCE
#undef SAMEBITS_VOTE
