// Random numbers of device code. curandStatePhilox4_32_10_t gives Philox4x32-10 as Salmon et al. define it; the other generators are the
// same one here: their numbers are not cuRAND's. The order in which the words of a counter are used, and normal numbers, may differ too.
#pragma once

#include "samebits.h"

namespace samebits {
constexpr const char* kRandomNote = "random numbers by cuRAND's names are not cuRAND's numbers";

struct Random {  // key, counter of the next four words, and how many of the present ones are used
  unsigned key[2], counter[4], words[4];
  int used;
  float normal;
  bool has_normal;

  __attribute__((always_inline)) void refill() {
    unsigned k0 = key[0], k1 = key[1], c[4] = {counter[0], counter[1], counter[2], counter[3]};
    for (int round = 0; round < 10; ++round) {
      unsigned long long p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
      unsigned next[4] = {unsigned(p1 >> 32) ^ c[1] ^ k0, unsigned(p1), unsigned(p0 >> 32) ^ c[3] ^ k1, unsigned(p0)};
      for (int i = 0; i < 4; ++i) c[i] = next[i];
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; ++i) words[i] = c[i];
    for (int i = 0; i < 4 && ++counter[i] == 0; ++i) {}
    used = 0;
  }
};
}  // namespace samebits

struct curandStateXORWOW : ::samebits::Random {};
struct curandStateMRG32k3a : ::samebits::Random {};
struct curandStatePhilox4_32_10 : ::samebits::Random {};
typedef curandStateXORWOW curandStateXORWOW_t;
typedef curandStateXORWOW curandState_t;
typedef curandStateXORWOW curandState;
typedef curandStateMRG32k3a curandStateMRG32k3a_t;
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

static inline void curand_init(unsigned long long seed, unsigned long long sequence, unsigned long long offset, ::samebits::Random* s) {
  ::samebits::not_bit_accurate(::samebits::kRandomNote);
  unsigned long long block = offset / 4;
  *s = {{unsigned(seed), unsigned(seed >> 32)}, {unsigned(block), unsigned(block >> 32), unsigned(sequence), unsigned(sequence >> 32)}, {}, 4, 0, false};
  if (offset % 4 != 0) {
    s->refill();
    s->used = int(offset % 4);
  }
}
static inline unsigned curand(::samebits::Random* s) {
  if (s->used == 4) s->refill();
  return s->words[s->used++];
}
static inline uint4 curand4(::samebits::Random* s) {
  unsigned x = curand(s), y = curand(s), z = curand(s), w = curand(s);
  return {x, y, z, w};
}
static inline float curand_uniform(::samebits::Random* s) { return float(curand(s)) * 0x1p-32f + 0x1p-33f; }  // in (0, 1]
static inline double curand_uniform_double(::samebits::Random* s) {
  unsigned long long high = curand(s), low = curand(s);
  return double((high << 21) ^ (low >> 11)) * 0x1p-53 + 0x1p-54;
}
static inline float4 curand_uniform4(::samebits::Random* s) {
  float x = curand_uniform(s), y = curand_uniform(s), z = curand_uniform(s), w = curand_uniform(s);
  return {x, y, z, w};
}
// Normal numbers, for users' programs: functions of the host library, as in more_math.h. No kernel of this project draws any (C4).
static inline float2 curand_normal2(::samebits::Random* s) {  // Box and Muller
  float radius = __builtin_sqrtf(-2.0f * logf(curand_uniform(s))), sine, cosine;
  sincosf(6.2831853f * curand_uniform(s), &sine, &cosine);
  return {radius * sine, radius * cosine};
}
static inline float curand_normal(::samebits::Random* s) {
  if (s->has_normal) {
    s->has_normal = false;
    return s->normal;
  }
  float2 both = curand_normal2(s);
  s->normal = both.y;
  s->has_normal = true;
  return both.x;
}
static inline double curand_normal_double(::samebits::Random* s) { return double(curand_normal(s)); }
static inline float4 curand_normal4(::samebits::Random* s) {
  float2 a = curand_normal2(s), b = curand_normal2(s);
  return {a.x, a.y, b.x, b.y};
}
static inline float curand_log_normal(::samebits::Random* s, float mean, float deviation) { return expf(mean + deviation * curand_normal(s)); }
static inline void skipahead(unsigned long long n, ::samebits::Random* s) {
  while (n-- > 0) (void)curand(s);
}
