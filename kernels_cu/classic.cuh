// The classic mapping of paged attention (C14), shared by paged_attention_v1 and paged_attention_v2.
//
// A block of 4 warps works on one query head h of one sequence n. QK: a thread group of `kGroup` lanes computes the logit of one token;
// its lanes read neighbouring vectors of K[page, h', :, slot, :]. PV: the lanes of a warp read whole rows of V[page, h', d, :], `kVLanes`
// lanes a row, and keep one sum a row. In both, warps take pages in turn. A *partition* is 512 tokens, counted from token 0: its weights
// are relative to its own integral maximum, and its sums are closed before the next one begins, so it does not matter which block
// computes it. pyref/classic.py states the order of every sum.
#pragma once

#include <cstdint>

#include "contract.cuh"
#include "dtypes.cuh"

namespace sb::classic {

using T = SB_T;
constexpr int kD = SB_D;
constexpr int kPage = SB_PAGE;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kPartition = 512;
constexpr int64_t kMaxGrid = 65535;  // blocks along y and z

constexpr int at_least_1(int x) { return x > 1 ? x : 1; }
__host__ __device__ constexpr int smaller(int a, int b) { return a < b ? a : b; }
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// How many of `reads` reads are in flight at once, at most `most`: a divisor that is not much less, or what leaves the last turn
/// nearly full.
constexpr int in_flight(int reads, int most) {
  for (int n = most; n >= ceil_div(most, 2); --n) {
    if (reads % n == 0) return n;
  }
  return ceil_div(reads, ceil_div(reads, most));
}

// QK
constexpr int kSize = static_cast<int>(sizeof(T));
constexpr int kX = 16 / kSize;                            // elements of one token that lie together in K
constexpr int kGroup = at_least_1(32 / kPage);            // lanes of a thread group
constexpr int kKVec = at_least_1(16 / (kGroup * kSize));  // elements that a lane reads at once
constexpr int kSpan = kGroup * kKVec;                     // elements that a thread group reads at once; a multiple of kX
constexpr int kKVectors = kD / kSpan;                     // vectors of a lane
constexpr int kKInFlight = in_flight(kKVectors, smaller(32, 128 / (kKVec * kSize)));  // vectors loaded before the first is used

constexpr int kKTokens = 32 / kGroup;                     // tokens that a warp works on at once
constexpr int kKTurns = kPage / kKTokens;                 // 1, unless a page has more than 32 tokens

// PV
constexpr int kVVec = smaller(kX, kPage);         // tokens of one row that a lane reads at once
constexpr int kVVectors = kPage / kVVec;          // vectors of a row
constexpr int kVLanes = smaller(kVVectors, 32);   // lanes on one row
constexpr int kVTurns = kVVectors / kVLanes;      // vectors of a row that a lane takes: 1, or 2
constexpr int kVRows = 32 / kVLanes;              // rows that a warp reads at once
constexpr int kVReads = ceil_div(kD, kVRows);     // reads for all rows of a page
constexpr int kVInFlight = in_flight(kVReads, 8);  // reads that a lane has in flight: their data and sums are registers
constexpr bool kVWhole = kD % (kVRows * kVInFlight) == 0;  // no lane has a row beyond d

static_assert(kD % 8 == 0 && kD <= 512, "head size: a multiple of 8 up to 512");
static_assert(kPage <= 256 && (kPage & (kPage - 1)) == 0, "page size: a power of two up to 256");
static_assert(kD % kSpan == 0, "the lanes of a thread group must divide the head size");

constexpr int kOwned = ceil_div(kD, kThreads);  // head dimensions of a thread once sums are closed: thread, thread + 128, ...

/// N neighbouring elements, read in one access of up to 16 bytes (in several beyond).
template <typename U, int N>
struct alignas(smaller(16, N * static_cast<int>(sizeof(U)))) Pack {
  U at[N];
};

template <int N, typename U>
__device__ __forceinline__ Pack<U, N> load(const U* address) {
  return *reinterpret_cast<const Pack<U, N>*>(address);
}

/// What a block works on: query head h of sequence n. Tokens are counted in 32 bits (seq_lens is int32_t), offsets in 64 (C16).
struct Row {
  int64_t n, h;
  int len;               // tokens; <= 0: an empty row
  const int32_t* table;  // pages of the sequence
  const T* k;            // k_cache[0, h', :, :, :], h' = h / (number of heads / g)
  const T* v;            // v_cache[0, h', :, :]
};

template <typename Params>
__device__ __forceinline__ Row row_of(const Params& p, int64_t n) {
  const int64_t kv_head = blockIdx.x / (static_cast<unsigned>(p.h) / static_cast<unsigned>(p.g));
  return Row{n, blockIdx.x, p.seq_lens[n], p.block_tables + n * p.block_tables_stride[0], p.k_cache + kv_head * p.k_cache_stride[1],
             p.v_cache + kv_head * p.v_cache_stride[1]};
}

/// q[n,h,:] in binary32 (exact) to shared memory. A barrier must follow.
template <typename Params>
__device__ __forceinline__ void stage_q(const Params& p, const Row& row, float* q) {
  const T* from = p.q + row.n * p.q_stride[0] + row.h * p.q_stride[1];
  for (int d = threadIdx.x; d < kD; d += kThreads) q[d] = to_f32(from[d]);
}

/// A lane's part of q . k of one token: a chain for every vector position, then the positions in ascending order (C14).
__device__ __forceinline__ float partial_dot(const float* q, const T* k) {
  float chain[kKVec];
#pragma unroll
  for (int e = 0; e < kKVec; ++e) chain[e] = 0.0f;
#pragma unroll
  for (int first = 0; first < kKVectors; first += kKInFlight) {
    Pack<T, kKVec> read[kKInFlight];
#pragma unroll
    for (int u = 0; u < kKInFlight; ++u) {
      if (first + u < kKVectors) read[u] = load<kKVec>(k + (first + u) * (kSpan / kX) * kPage * kX);
    }
#pragma unroll
    for (int u = 0; u < kKInFlight; ++u) {
      if (first + u < kKVectors) {
        const Pack<float, kKVec> query = load<kKVec>(q + (first + u) * kSpan);
#pragma unroll
        for (int e = 0; e < kKVec; ++e) chain[e] = fma(query.at[e], to_f32(read[u].at[e]), chain[e]);
      }
    }
  }
  float sum = chain[0];
#pragma unroll
  for (int e = 1; e < kKVec; ++e) sum = add(sum, chain[e]);
  return sum;
}

/// The logit to base 2 of token t (C12). The path depends on the presence of slopes, not on their values.
template <typename Params>
__device__ __forceinline__ float logit(const Params& p, const Row& row, int t, float dot) {
  if (p.alibi_slopes == nullptr) return mul(dot, p.scale2);
  const float distance = static_cast<float>(t - (row.len - 1));  // nearest even beyond 2^24
  return logits2(add(mul(dot, p.scale), mul(p.alibi_slopes[row.h], distance)));
}

/// logits[t - first] of the tokens t in [first, end), end <= len; `first` is the start of a partition. A barrier must follow.
template <typename Params>
__device__ __forceinline__ void qk(const Params& p, const Row& row, const float* q, int first, int end, float* logits) {
  const int lane = threadIdx.x % 32;
  const int member = lane % kGroup;
  const int in_span = member * kKVec;  // this lane's first element of a span
  for (int page = first / kPage + threadIdx.x / 32; page * kPage < end; page += kWarps) {
    const T* k = row.k + static_cast<int64_t>(row.table[page]) * p.k_cache_stride[0] + (in_span / kX) * kPage * kX + in_span % kX;
#pragma unroll 1
    for (int turn = 0; turn < kKTurns; ++turn) {
      if (kGroup == 1) __syncwarp();  // or nvcc lifts the loads of q out of the loop, and all of q into registers
      const int slot = turn * kKTokens + lane / kGroup;
      const int t = page * kPage + slot;
      float dot = t < end ? partial_dot(q + in_span, k + slot * kX) : 0.0f;
#pragma unroll
      for (int other = kGroup / 2; other > 0; other /= 2) dot = add(dot, __shfl_xor_sync(0xFFFFFFFFu, dot, other));
      if (member == 0 && t < end) logits[t - first] = logit(p, row, t, dot);
    }
  }
}

/// C12 and C7 on one partition: turns `tokens` logits into weights p in place; every thread gets m and l. `rows`: 8 floats of shared
/// memory. Ends with a barrier behind it: all weights can be read.
__device__ __forceinline__ void softmax(float* logits, int tokens, float* rows, float* m, float* l) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float top = neg(kInf);
  for (int t = threadIdx.x; t < tokens; t += kThreads) top = running_max(top, logits[t]);  // C6
#pragma unroll
  for (int other = 16; other > 0; other /= 2) top = running_max(top, __shfl_xor_sync(0xFFFFFFFFu, top, other));
  if (lane == 0) rows[warp] = top;
  __syncthreads();
  top = ceil(running_max(running_max(rows[0], rows[1]), running_max(rows[2], rows[3])));  // integral, never -0
  float sum = 0.0f;
  for (int t = threadIdx.x; t < tokens; t += kThreads) {
    const float weight = weight_p(logits[t], top);
    logits[t] = weight;
    sum = add(sum, weight);
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) sum = add(sum, __shfl_xor_sync(0xFFFFFFFFu, sum, other));  // C7: lanes
  if (lane == 0) rows[kWarps + warp] = sum;
  __syncthreads();
  *m = top;
  *l = sum_rows(rows[kWarps], rows[kWarps + 1], rows[kWarps + 2], rows[kWarps + 3]);  // C7: rows
}

/// sums[warp, d]: each warp's sum of weight[t] * v[t,d] over its pages of the partition of `tokens` tokens that begins at token
/// `first`. Tokens beyond execute nothing (C8); their slots may be read with their neighbours', never used. A barrier must follow.
template <typename Params>
__device__ __forceinline__ void pv(const Params& p, const Row& row, int first, int tokens, const float* weights, float* sums) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int32_t* table = row.table + first / kPage;
#pragma unroll 1
  for (int rows = 0; rows < kD; rows += kVRows * kVInFlight) {
    const int d = rows + lane / kVLanes;  // the first of the lane's `kVInFlight` rows
    float acc[kVInFlight];
#pragma unroll
    for (int u = 0; u < kVInFlight; ++u) acc[u] = 0.0f;
#pragma unroll 1
    for (int page = warp; page * kPage < tokens; page += kWarps) {
      const T* v = row.v + static_cast<int64_t>(table[page]) * p.v_cache_stride[0] + d * kPage;
#pragma unroll 1
      for (int turn = 0; turn < kVTurns; ++turn) {
        const int slot = (turn * kVLanes + lane % kVLanes) * kVVec;
        const int t = page * kPage + slot;
        if (t >= tokens) break;
        Pack<T, kVVec> read[kVInFlight] = {};  // rows beyond d: nothing is read, and their sums go nowhere
#pragma unroll
        for (int u = 0; u < kVInFlight; ++u) {
          if (kVWhole || d + u * kVRows < kD) read[u] = load<kVVec>(v + u * kVRows * kPage + slot);
        }
        if (t + kVVec <= tokens) {
          const Pack<float, kVVec> weight = load<kVVec>(weights + t);
#pragma unroll
          for (int u = 0; u < kVInFlight; ++u) {
#pragma unroll
            for (int e = 0; e < kVVec; ++e) acc[u] = fma(weight.at[e], to_f32(read[u].at[e]), acc[u]);
          }
        } else {  // the length ends within this vector
#pragma unroll
          for (int e = 0; e < kVVec - 1; ++e) {
            if (t + e < tokens) {
              const float weight = weights[t + e];
#pragma unroll
              for (int u = 0; u < kVInFlight; ++u) acc[u] = fma(weight, to_f32(read[u].at[e]), acc[u]);
            }
          }
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kVInFlight; ++u) {
#pragma unroll
      for (int other = kVLanes / 2; other > 0; other /= 2) acc[u] = add(acc[u], __shfl_xor_sync(0xFFFFFFFFu, acc[u], other));
      if (lane % kVLanes == 0 && (kVWhole || d + u * kVRows < kD)) sums[warp * kD + d + u * kVRows] = acc[u];
    }
  }
}

/// a[d] of a partition: the warps' sums by the classic tree (0+2)+(1+3).
__device__ __forceinline__ float close(const float* sums, int d) {
  return sum_rows(sums[d], sums[kD + d], sums[2 * kD + d], sums[3 * kD + d]);
}

/// The walk of C13 over partitions: the state so far and the weights with which the next one joins it.
struct Walk {
  float m, l;
  float w, w_u;  // of the state so far, of the following partition

  __device__ __forceinline__ void join(float m_u, float l_u) {
    const float top = running_max(m, m_u);
    w = pow2_weight(sub(m, top));
    w_u = pow2_weight(sub(m_u, top));
    l = join_scalar(l, w, l_u, w_u);
    m = top;
  }
};

/// out[n,h,:] and lse[n,h] of a state; a[i] belongs to d = thread + 128 i.
template <typename Params>
__device__ __forceinline__ void finish(const Params& p, int64_t n, int64_t h, const float* a, float m, float l) {
  T* out = p.out + n * p.out_stride[0] + h * p.out_stride[1];
#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
    const int d = threadIdx.x + i * kThreads;
    if (d < kD) out[d] = from_f32<T>(div(a[i], l));  // C5, C9, C11
  }
  if (p.lse != nullptr && threadIdx.x == 0) p.lse[n * p.lse_stride[0] + h * p.lse_stride[1]] = canonical_nan(lse(m, l));
}

/// C10: +0 and -inf.
template <typename Params>
__device__ __forceinline__ void finish_empty(const Params& p, int64_t n, int64_t h) {
  T* out = p.out + n * p.out_stride[0] + h * p.out_stride[1];
  for (int d = threadIdx.x; d < kD; d += kThreads) out[d] = from_f32<T>(0.0f);
  if (p.lse != nullptr && threadIdx.x == 0) p.lse[n * p.lse_stride[0] + h * p.lse_stride[1]] = neg(kInf);
}

}  // namespace sb::classic
