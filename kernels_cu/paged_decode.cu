// paged_decode: decode attention over a paged cache, one query token a sequence, in C13's order of tiles and spans.
//
// A block of four warps serves up to eight query heads of one kv head, so that K and V are read once. kWarps warps share a tile: with one
// warp a tile the block takes whole spans, with four it takes a tile alone, for batches too small to fill a GPU. In QK a lane owns 4 / kWarps
// tokens and every head; in PV it owns the head dimensions `dim(i)` and every head. K and V go straight into registers, one group ahead.
// States that other blocks made of the same row are joined by the block that finishes last. The bytes depend on none of this (C13).
#include "decode_tile.cuh"
#include "decode_walk.cuh"

// C13.5 for a finished row, after the sink where there is one.
template <int kWarps>
__device__ __forceinline__ void finish(const PagedDecodeParams& p, const Row& row, Block<kWarps>& s, Walk& walk, float (&a)[kElements]) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();  // the last weights have been read
    if (p.sinks != nullptr && lane < row.heads) {  // C13.4: one more span
        const float s2 = sb::logits2(p.sinks[row.head + lane]);
        const float m = sb::ceil(sb::running_max(-sb::kInf, s2));
        s.weights[warp][0][0][lane] = walk.step(false, m, sb::weight_p(s2, m));
    }
    if (lane < row.heads) {
        s.weights[warp][0][1][lane].next = walk.l;
        if (p.lse != nullptr && warp == 0) {
            p.lse[row.n * p.lse_stride[0] + (row.head + lane) * p.lse_stride[1]] = sb::canonical_nan(sb::lse(walk.m, walk.l));
        }
    }
    __syncwarp();
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
        int h, d;
        if (!element_of(row, e, &h, &d)) continue;
        if (p.sinks != nullptr) a[e] = join(false, a[e], s.weights[warp][0][0][h], 0.0f);
        p.out[row.n * p.out_stride[0] + (row.head + h) * p.out_stride[1] + d] = sb::from_f32<T>(sb::div(a[e], s.weights[warp][0][1][h].next));
    }
}

// C10: a row of no tokens.
__device__ __forceinline__ void finish_empty(const PagedDecodeParams& p, const Row& row) {
    for (int at = static_cast<int>(threadIdx.x); at < row.heads * D; at += kThreads) {
        p.out[row.n * p.out_stride[0] + (row.head + at / D) * p.out_stride[1] + at % D] = sb::from_f32<T>(0.0f);
        if (at % D == 0 && p.lse != nullptr) p.lse[row.n * p.lse_stride[0] + (row.head + at / D) * p.lse_stride[1]] = -sb::kInf;
    }
}

template <int kWarps>
__global__ void __launch_bounds__(kThreads, kResident) decode(const PagedDecodeParams p, const int64_t shares) {
    using B = Block<kWarps>;
    __shared__ B s;
    constexpr int kUnitTokens = B::kTiles * kTile;
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const int share = static_cast<int>(blockIdx.x % shares);  // which part of the row this block takes
    const int units_a_block = kWarps == 1 ? static_cast<int>(p.split) : 1;
    if (thread == 0) {
        Row& own = s.row;
        const int64_t block = blockIdx.x / shares, g = block / kHeadBlocks % p.g;
        own.n = block / (p.g * kHeadBlocks);
        own.head = g * kGroup + block % kHeadBlocks * kHeads;
        own.heads = static_cast<int>((g + 1) * kGroup - own.head < kHeads ? (g + 1) * kGroup - own.head : kHeads);
        own.len = p.seq_lens[own.n];
        own.start = p.window != 0 && p.window < own.len ? static_cast<int>(own.len - p.window) : 0;
        own.k = p.k_cache + g * p.k_cache_stride[1];
        own.v = p.v_cache + g * p.v_cache_stride[1];
        own.table = p.block_tables + own.n * p.block_tables_stride[0];
        own.first_unit = own.start / kUnitTokens;
        own.units = (own.len + kUnitTokens - 1) / kUnitTokens;
        own.blocks = (own.units - 1) / units_a_block - own.first_unit / units_a_block + 1;
    }
    __syncthreads();
    const Row& row = s.row;
    if (row.len <= 0) {
        if (share == 0) finish_empty(p, row);
        return;
    }
    int unit = share * units_a_block;  // this block takes [unit, last_unit)
    const int last_unit = unit + units_a_block < row.units ? unit + units_a_block : row.units;
    unit = unit > row.first_unit ? unit : row.first_unit;
    if (unit >= last_unit) return;
    for (int at = thread; at < kPad * D; at += kThreads) {
        const int h = at / D < row.heads ? at / D : 0;
        s.q[at % D][at / D] = sb::to_f32(p.q[row.n * p.q_stride[0] + (row.head + h) * p.q_stride[1] + at % D]);
    }
    Walk walk;
    float a[kElements];
    for (; unit < last_unit; ++unit) {
        Place at;
        at.slot = thread / B::kLanes, at.warp = warp % kWarps, at.lane = lane;
        at.origin = static_cast<int64_t>(unit) * kUnitTokens + at.slot * kTile;
        at.low = row.start > at.origin ? static_cast<int>(row.start - at.origin) : 0;
        at.high = row.len - at.origin < kTile ? static_cast<int>(row.len - at.origin) : kTile;
        if (at.low < at.high) read_table(row, s, at);
        __syncthreads();  // q and the table are there; the last unit's states have been read
        if (at.low < at.high) {
            const int first = at.warp * B::kTokens * 32 + lane;
            float s2[B::kTokens][kPad];
            WeightedSum<kWarps> sum;
            if (kWarps == 4) sum.begin(p, row, s, at);
            dot_products<kWarps>(p, row, s, at, first, s2);
            if (kWarps == 1) sum.begin(p, row, s, at);
#pragma unroll
            for (int i = 0; i < B::kTokens; ++i) {
#pragma unroll
                for (int h = 0; h < kPad; ++h) s2[i][h] = h < kHeads ? base2(p, row, s2[i][h], h, at.origin + first + 32 * i) : 0.0f;
            }
            softmax<kWarps>(s, at, first, s2);
            sum.finish(p, row, s, at);
        }
        __syncthreads();
        // C13.3 over this unit's tiles, C10: those without tokens are skipped. Then C13.4, or the state is stored.
        const int first_tile = unit * B::kTiles, last_tile = (row.len - 1) / kTile;
        const int from = row.start / kTile > first_tile ? row.start / kTile - first_tile : 0;
        const int to = last_tile - first_tile < B::kTiles ? last_tile - first_tile + 1 : B::kTiles;
        Walk span;
#pragma unroll
        for (int u = 0; u < B::kTiles; ++u) {
            if (u < from || u >= to || lane >= kPad) continue;
            s.weights[warp][u][0][lane] = span.step(u == from, s.m[u][lane], s.l[u][lane]);
        }
        if (row.blocks == 1 && lane < kPad) s.weights[warp][0][1][lane] = walk.step(unit == row.first_unit, span.m, span.l);
        __syncwarp();
        float span_a[kElements];
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
            int h, d;
            if (!element_of(row, e, &h, &d)) continue;
#pragma unroll
            for (int u = 0; u < B::kTiles; ++u) {
                if (u >= from && u < to) span_a[e] = join(u == from, span_a[e], s.weights[warp][u][0][h], s.scratch[u][h * D + d]);
            }
            if (row.blocks == 1) a[e] = join(unit == row.first_unit, a[e], s.weights[warp][0][1][h], span_a[e]);
        }
        if (row.blocks > 1) store(p, row, span, span_a, unit);
    }
    if (row.blocks > 1) {
        int32_t* done = p.done + row.n * p.h + row.head;
        __syncthreads();  // all of this block's states are stored
        if (thread == 0) {
            __threadfence();
            s.last = atomicAdd(done, 1) == row.blocks - 1;
            __threadfence();
        }
        __syncthreads();
        if (!s.last) return;
        walk_stored<kWarps>(p, row, s, row.first_unit, row.units, walk, a);
        if (thread == 0) *done = 0;
    }
    finish<kWarps>(p, row, s, walk, a);
}

template <int kWarps>
int launch(const PagedDecodeParams& p, void* stream) {
    const int64_t unit = kWarps == 1 ? p.split * kSpan * kTile : kTile;
    const int64_t shares = p.max_seq_len > unit ? (p.max_seq_len + unit - 1) / unit : 1;
    const int64_t blocks = p.n * p.g * kHeadBlocks * shares;
    if (blocks > 0x7FFFFFFF) return cudaErrorInvalidValue;
    decode<kWarps><<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p, shares);
    return static_cast<int>(cudaGetLastError());
}

extern "C" int paged_decode(const PagedDecodeParams* params, void* stream) {
    const PagedDecodeParams& p = *params;
    if (p.n == 0 || p.h == 0) return 0;  // an empty grid cannot be launched
    return p.split == 0 ? launch<4>(p, stream) : launch<1>(p, stream);
}
