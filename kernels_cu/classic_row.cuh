// What a block of paged_attention_v1 or paged_attention_v2 works on, and which of its tokens take part: those in the sliding window (C12) whose
// block is in the block-sparse pattern. pyref/classic_tokens.py says which these are.
#pragma once

#include <cstdint>

#include "classic_shape.cuh"

namespace sb::classic {

/// Query head h of sequence n. Tokens are counted in 32 bits (seq_lens is int32_t), offsets in 64 (C16).
struct Row {
    int64_t n, h;
    int len;               // tokens
    int begin;             // the first one in the window
    const int32_t* table;  // pages of the sequence
    const C* k;            // k_cache[0, h', :, :, :], h' = h / (number of heads / g)
    const C* v;            // v_cache[0, h', :, :]
    float k_scale, v_scale;
};

/// The block's kv head.
__device__ __forceinline__ int64_t kv_head_of(const Params& p) {
    return blockIdx.x / (static_cast<unsigned>(p.h) / static_cast<unsigned>(p.g));
}

__device__ __forceinline__ Row row_of(const Params& p, int64_t n) {
    const int64_t kv_head = kv_head_of(p);
    const int len = p.seq_lens[n];
    const int begin = p.window > 0 && p.window < len ? len - static_cast<int>(p.window) : 0;
    Row row{n,    blockIdx.x, len, begin, p.block_tables + n * p.block_tables_stride[0], p.k_cache + kv_head * p.k_cache_stride[1],
                    p.v_cache + kv_head * p.v_cache_stride[1], 1.0f, 1.0f};
    if constexpr (kFp8) {
        row.k_scale = p.k_scale[p.k_scales == 1 ? 0 : kv_head];
        row.v_scale = p.v_scale[p.v_scales == 1 ? 0 : kv_head];
    }
    return row;
}

/// Whether one of the blocks that tokens [first, last] lie in is in the block-sparse pattern. Blocks are counted in 32 bits: SPEC bounds
/// what is added to their numbers. The pattern is made anew for every question, so that calls without one hold no registers for it.
__device__ __forceinline__ bool in_pattern(const Params& p, const Row& row, unsigned first, unsigned last) {
    const int64_t step = p.blocksparse_head_sliding_step;
    const int64_t slide = step >= 0 ? (p.tp_rank * p.h + row.h) * step : (p.tp_rank * p.g + kv_head_of(p)) * -step;
    const auto size = static_cast<unsigned>(p.blocksparse_block_size), stride = static_cast<unsigned>(p.blocksparse_vert_stride);
    const unsigned offset = static_cast<unsigned>(slide) + 1, from = first / size, to = last / size;
    const bool local = to + p.blocksparse_local_blocks > static_cast<unsigned>(row.len - 1) / size;
    return local || (to + offset) / stride * stride >= from + offset;  // a multiple of the stride lies in [from, to] + offset
}

/// Whether one of the tokens [first, end), end <= len, takes part. Of a page: whether those of them in the window do.
__device__ __forceinline__ bool takes_part(const Params& p, const Row& row, int first, int end) {
    first = larger(first, row.begin);
    if (first >= end) return false;
    return p.blocksparse_vert_stride <= 1 || in_pattern(p, row, first, end - 1);
}

}  // namespace sb::classic
