// reshape_and_cache_flash: writes row i of K and V to slot slots[i] of paged caches [pages, slot, g, d], or permuted [pages, g, slot, d].
//
// Elements of a head lie together in rows and caches, so a row is copied in accesses of 16 bytes, or the widest that head size, strides and
// addresses allow (cache_rows.cuh). The order of heads and slots in a page is a matter of strides.

#include <cstdint>

#include "cache_rows.cuh"

using T = SB_T;
using C = SB_C;
using Index = SB_INDEX;

struct ReshapeAndCacheFlashParams {
    const T* k;  // [n, g, d]
    int64_t k_stride[2];
    const T* v;  // [n, g, d]
    int64_t v_stride[2];
    C* k_cache;  // [pages, page, g, d]
    int64_t k_cache_stride[3];
    C* v_cache;  // [pages, page, g, d]
    int64_t v_cache_stride[3];
    const Index* slots;    // [m], m <= n: rows from m on are padding
    const float* k_scale;  // [k_scales], 1 or g of them; null where C is T
    const float* v_scale;  // [v_scales]
    int64_t n;
    int64_t g;
    int64_t d;
    int64_t pages;
    int64_t page;
    int64_t m;
    int64_t k_scales;
    int64_t v_scales;
};

extern "C" int reshape_and_cache_flash(const ReshapeAndCacheFlashParams* params, void* stream) {
    const ReshapeAndCacheFlashParams& p = *params;
    const auto side = [](const T* rows, const int64_t* row, C* cache, const int64_t* stride, const float* scale, int64_t scales) {
        return sb::CacheRows<T, C>{rows, row[0], row[1], cache, stride[0], stride[1], stride[2], scale, scales};
    };
    const sb::CacheWrite<T, C, Index> write{side(p.k, p.k_stride, p.k_cache, p.k_cache_stride, p.k_scale, p.k_scales),
                                            side(p.v, p.v_stride, p.v_cache, p.v_cache_stride, p.v_scale, p.v_scales), p.slots, p.m, p.g, p.d, p.page};
    return sb::write_cache(write, p.n, p.pages, stream);
}
