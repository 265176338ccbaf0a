// Balanced parts of paged_decode, for batches whose lengths are not known before the launch: no block takes more spans than its share of them
// all would be, long parts come first, and blocks that find nothing left are few.
#pragma once

#include "decode_walk.cuh"

// Units of a row of `len` tokens; a row of none is work too: somebody writes it out.
template <class S>
__device__ __forceinline__ int units_of_row(const PagedDecodeParams& p, int len) {
    return len > 0 ? (len - 1) / (S::kTiles * kTile) - first_token(p, len) / (S::kTiles * kTile) + 1 : 1;
}

// Rows in parts come before whole ones, and those by their length in four classes.
__device__ __forceinline__ int class_of(int units, int most) {
    return units > most ? 0 : 2 * units > most ? 1 : 4 * units > most ? 2 : 8 * units > most ? 3 : 4;
}

// What a part has at most: a fair share of `sum` units of each of `rows` rows, at least one.
__device__ __forceinline__ int fair_share(const PagedDecodeParams& p, long long sum, unsigned rows) {
    const unsigned blocks = static_cast<unsigned>(-p.split);
    const unsigned long long all = static_cast<unsigned long long>(sum) * rows + blocks - 1;
    return static_cast<int>(all >> 32 == 0 ? static_cast<unsigned>(all) / blocks : all / blocks);
}

// Part `number` of the `parts` of a row of sequence n: the first units come before those of a window.
template <class S>
__device__ __forceinline__ Part part_of(const PagedDecodeParams& p, int64_t n, int row, int len, int units, int parts, int number) {
    const int each = (units + parts - 1) / parts, first = (len > 0 ? first_token(p, len) / (S::kTiles * kTile) : 0) + number * each;
    return {n, row, first, first + each};
}

// What this block takes of a sequence alone of `len` tokens, which needs no search; nothing, where its end is 0.
template <class S>
__device__ __forceinline__ Part part_alone(const PagedDecodeParams& p, int len) {
    const unsigned rows = static_cast<unsigned>(p.g * S::kHeadBlocks);
    const int row = static_cast<int>(blockIdx.x % rows), at = static_cast<int>(blockIdx.x / rows), units = units_of_row<S>(p, len);
    const int most = fair_share(p, units, rows), parts = (units + most - 1) / most;
    return at < parts ? part_of<S>(p, 0, row, len, units, parts, at) : Part{0, row, 0, 0};
}

// What this block takes; nothing, where it says sequence p.n. Every block goes through all sequences, a thread through neighbours: first for the
// sum of their units, from which follows what a part has at most; then for the place of the block's part among all of a class.
template <class S>
__device__ __forceinline__ Part find_part(const PagedDecodeParams& p, Block<S>& s) {
    const unsigned rows = static_cast<unsigned>(p.g * S::kHeadBlocks);
    const int row = static_cast<int>(blockIdx.x % rows);
    int at = static_cast<int>(blockIdx.x / rows);  // the part's number, later in its class
    constexpr int kWarps = S::kThreads / 32;
    const int warp = S::thread() / 32, lane = S::thread() % 32;
    const int64_t count = (p.n + S::kThreads - 1) / S::kThreads;
    const int64_t from = S::thread() * count, to = from + count < p.n ? from + count : p.n;
    long long sum = 0;
    for (int64_t n = from; n < to; ++n) sum += units_of_row<S>(p, p.seq_lens[n]);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    if (lane == 0) s.sums[warp] = sum;
    if (S::thread() == 0) s.part = {p.n, 0, 0, 0};  // nothing
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += s.sums[w];
    const int most = fair_share(p, sum, rows);
    int own[kClasses] = {}, before[kClasses];  // parts of a row of each of this thread's sequences, and of all up to them
    for (int64_t n = from; n < to; ++n) {
        const int units = units_of_row<S>(p, p.seq_lens[n]), parts = (units + most - 1) / most;
#pragma unroll
        for (int c = 0; c < kClasses; ++c) own[c] += c == class_of(units, most) ? parts : 0;
    }
#pragma unroll
    for (int c = 0; c < kClasses; ++c) {
        before[c] = own[c];
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const int lower = __shfl_up_sync(0xFFFFFFFFu, before[c], step);
            if (lane >= step) before[c] += lower;
        }
        if (lane == 31) s.counts[warp][c] = before[c];
        before[c] -= own[c];
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kClasses; ++c) {
        int of_class = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            if (w < warp) before[c] += s.counts[w][c];
            of_class += s.counts[w][c];
        }
        if (at >= before[c] && at < before[c] + own[c]) {
            int number = at - before[c];
            for (int64_t n = from; n < to; ++n) {
                const int len = p.seq_lens[n], units = units_of_row<S>(p, len), parts = (units + most - 1) / most;
                if (class_of(units, most) != c) continue;
                if (number < parts) {
                    s.part = part_of<S>(p, n, row, len, units, parts, number);
                    break;
                }
                number -= parts;
            }
        }
        at -= of_class;
    }
    __syncthreads();
    return s.part;
}

// Of a sequence alone: whether a part is a whole row of so many units.
template <int kTiles>
__device__ __forceinline__ bool part_is_row(const PagedDecodeParams& p, int units) {
    return units <= fair_share(p, units, static_cast<unsigned>(p.g * Shape<1, kTiles>::kHeadBlocks));
}

// A row of several units that one block has finished says so by an l that no state has.
constexpr float kFinished = -1.0f;

__device__ __forceinline__ void mark_finished(const PagedDecodeParams& p, const Row& row, int64_t head) {
    if (row.units > row.first_unit + 1) p.part_l[(row.n * p.h + head) * p.states + row.first_unit] = kFinished;
}

// Whether one block has finished a row: it took all units of it. A block takes `split` spans, a tile, or a balanced part.
template <int kTiles>
__device__ __forceinline__ bool is_finished(const PagedDecodeParams& p, const Row& row, int64_t head) {
    if (row.units <= row.first_unit + 1) return true;
    if (kTiles > 1 && p.split < 0 && p.n == 1) return part_is_row<kTiles>(p, row.units - row.first_unit);
    if (kTiles > 1 && p.split < 0) return p.part_l[(row.n * p.h + head) * p.states + row.first_unit] == kFinished;
    return kTiles > 1 && p.split > 1 && (row.units - 1) / p.split == row.first_unit / p.split;
}
