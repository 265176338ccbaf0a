// reshape_and_cache: writes row i of K and V to slot slots[i] of paged caches, K [pages, g, d/x, page, x], V [pages, g, d, page].
//
// A block moves a tile, 32 rows times 256 bytes of each (512 for fp8), of K or of V (blockIdx.y): 16-byte accesses read it in the order of the rows,
// shared memory turns it, 16-byte accesses write it in the order of the cache. K: x elements of a row lie together, those of the next slot
// behind them. V: consecutive slots lie together; where x rows of the tile go to x slots that begin at a multiple of x, one access writes
// them, other rows are written element by element. Neighbouring lanes write neighbouring slots where the rows of a tile go to such, else
// neighbouring elements of a row. The tile is independent of heads: any number of them, any head size that x divides.

#include <cstdint>
#include <type_traits>

#include "access.cuh"
#include "pack.cuh"
#include "quantize.cuh"

using T = SB_T;
using C = SB_C;
using Index = SB_INDEX;

struct ReshapeAndCacheParams {
    const T* k;  // [n, g, d]
    int64_t k_stride[2];
    const T* v;  // [n, g, d]
    int64_t v_stride[2];
    C* k_cache;  // [pages, g, d/x, page, x]
    int64_t k_cache_stride[2];
    C* v_cache;  // [pages, g, d, page]
    int64_t v_cache_stride[2];
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

constexpr int kThreads = 256;
constexpr int kRows = 32;                                // rows of a tile: one for each lane of the warp that plans it
constexpr int kColumns = (std::is_same<C, T>::value ? 256 : 512) / sizeof(T);  // elements of a row in a tile
constexpr int kLoad = 16 / sizeof(T);                    // elements that one access reads
constexpr int kX = 16 / sizeof(C);                       // elements that one access writes
constexpr int kPieces = kColumns / kLoad;                // accesses a row
constexpr int kLoads = kRows * kPieces / kThreads;       // accesses a thread has in flight
constexpr int kUnits = kColumns / kX;                    // K: groups of x in a row of the tile
constexpr int kUnitPitch = (kRows + 1) * kX;             // K: elements of the tile from one group to the next; one more than rows spreads banks
constexpr int kRowPitch = kColumns + kX;                 // V: elements of the tile from one row to the next
constexpr int kKTile = kUnits * kUnitPitch, kVTile = kRows * kRowPitch;
constexpr unsigned kAll = 0xFFFFFFFFu;

/// Where the rows of a tile go.
struct Plan {
    int64_t page[kRows];
    int64_t place[kRows];  // in the page; -1: nowhere
    int run[kRows];        // V: the first of kX rows that one access writes, `runs` of them
    int single[kRows];     // V: the other rows, `singles` of them
    int runs, singles;
    bool follow;           // most rows go to the slot behind that of the row before
};

/// Made by the first warp, a lane a row. `vectors`: the V cache allows accesses to kX slots.
__device__ inline void make_plan(Plan& plan, const ReshapeAndCacheParams& p, int64_t first_row, bool vectors) {
    const int lane = threadIdx.x;
    const int64_t slot = first_row + lane < p.m ? static_cast<int64_t>(p.slots[first_row + lane]) : -1;  // C16
    const bool used = slot >= 0;
    const int64_t page = used ? slot / p.page : 0;
    const int64_t place = used ? slot - page * p.page : -1;
    plan.page[lane] = page;
    plan.place[lane] = place;

    // kX consecutive slots from a multiple of kX on lie in one page: its size is a multiple too where `vectors` holds.
    const int64_t next = __shfl_down_sync(kAll, slot, 1);  // the last lane's own: a run ends there
    const unsigned steps = __ballot_sync(kAll, used && next == slot + 1);
    constexpr unsigned kRun = (1u << (kX - 1)) - 1u;
    const bool leads = vectors && used && place % kX == 0 && ((steps >> lane) & kRun) == kRun;
    const unsigned leaders = __ballot_sync(kAll, leads);
    unsigned led = 0;
#pragma unroll
    for (int i = 0; i < kX; ++i) led |= leaders << i;
    const bool alone = used && !((led >> lane) & 1u);
    const unsigned singles = __ballot_sync(kAll, alone);
    const unsigned before = (1u << lane) - 1u;
    if (leads) plan.run[__popc(leaders & before)] = lane;
    if (alone) plan.single[__popc(singles & before)] = lane;
    if (lane == 0) {
        plan.runs = __popc(leaders);
        plan.singles = __popc(singles);
        plan.follow = __popc(steps) >= kRows / 2;
    }
}

__global__ void __launch_bounds__(kThreads)
    write_tiles(const ReshapeAndCacheParams p, const unsigned column_tiles, const bool whole, const bool vectors) {
    __shared__ alignas(16) C tile[kKTile > kVTile ? kKTile : kVTile];
    __shared__ Plan plan;
    const bool is_v = blockIdx.y != 0;
    const int64_t first_row = static_cast<int64_t>(blockIdx.x / column_tiles) * kRows;
    const unsigned first_column = blockIdx.x % column_tiles * kColumns;
    const unsigned d = static_cast<unsigned>(p.d);
    const unsigned width = static_cast<unsigned>(p.g) * d;  // below 2^31 (SPEC)

    // The rows' accesses start before the slots are known: a padding row that exists is read in vain.
    const int piece = threadIdx.x % kPieces;
    const unsigned column = first_column + piece * kLoad;
    const unsigned head = column / d;
    const T* from = (is_v ? p.v : p.k) + static_cast<int64_t>(head) * (is_v ? p.v_stride[1] : p.k_stride[1]) + (column - head * d);
    const int64_t row_stride = is_v ? p.v_stride[0] : p.k_stride[0];
    sb::Pack<T, kLoad> held[kLoads]{};
#pragma unroll
    for (int u = 0; u < kLoads; ++u) {
        const int64_t row = first_row + threadIdx.x / kPieces + u * (kThreads / kPieces);
        if (row >= p.m || column >= width) continue;
        const T* pack = from + row * row_stride;
        held[u] = whole ? sb::load_pack<kLoad>(pack) : sb::gather_pack<kLoad>(pack, 1);
    }
    sb::Divisor by{};
    if constexpr (!std::is_same<C, T>::value) {
        if (column < width) by = sb::divisor(is_v ? p.v_scale[p.v_scales == 1 ? 0 : head] : p.k_scale[p.k_scales == 1 ? 0 : head]);
    }
    if (threadIdx.x < kRows) make_plan(plan, p, first_row, vectors);
#pragma unroll
    for (int u = 0; u < kLoads; ++u) {
        const int row = threadIdx.x / kPieces + u * (kThreads / kPieces);
        const int unit = piece * kLoad / kX;
        C* to = is_v ? tile + row * kRowPitch + piece * kLoad : tile + unit * kUnitPitch + row * kX + piece * kLoad % kX;
        *reinterpret_cast<sb::Pack<C, kLoad>*>(to) = sb::stored<kLoad, C, T>(held[u], by);
    }
    __syncthreads();

    const unsigned columns = width - first_column < kColumns ? width - first_column : kColumns;
    if (!is_v) {  // k_cache[page, head, i/x, place, :]
        const bool follow = plan.follow;
#pragma unroll 1
        for (int n = threadIdx.x; n < kRows * kUnits; n += kThreads) {
            const int row = follow ? n % kRows : n / kUnits;
            const int unit = follow ? n / kRows : n % kUnits;
            const unsigned in_tile = unit * kX;
            const int64_t place = plan.place[row];
            if (place < 0 || in_tile >= columns) continue;
            const unsigned at = first_column + in_tile;
            const unsigned h = at / d;
            const int64_t i = at - h * d;
            C* to = p.k_cache + plan.page[row] * p.k_cache_stride[0] + h * p.k_cache_stride[1] + (i / kX * p.page + place) * kX;
            sb::store_pack<kX>(to, sb::load_pack<kX>(tile + unit * kUnitPitch + row * kX));
        }
        return;
    }
    const auto v_address = [&](int row, unsigned in_tile) {  // v_cache[page, head, i, place]
        const unsigned at = first_column + in_tile;
        const unsigned h = at / d;
        const int64_t i = at - h * d;
        return p.v_cache + plan.page[row] * p.v_cache_stride[0] + h * p.v_cache_stride[1] + i * p.page + plan.place[row];
    };
    const unsigned runs = plan.runs, singles = plan.singles;
#pragma unroll 1
    for (unsigned n = threadIdx.x; n < columns * runs; n += kThreads) {
        const unsigned in_tile = n / runs;
        const int row = plan.run[n - in_tile * runs];
        sb::store_pack<kX>(v_address(row, in_tile), sb::gather_pack<kX>(tile + row * kRowPitch + in_tile, kRowPitch));
    }
#pragma unroll 1
    for (unsigned n = threadIdx.x; n < columns * singles; n += kThreads) {
        const unsigned which = n / columns;
        const unsigned in_tile = n - which * columns;
        const int row = plan.single[which];
        *v_address(row, in_tile) = tile[row * kRowPitch + in_tile];
    }
}

extern "C" int reshape_and_cache(const ReshapeAndCacheParams* params, void* stream) {
    const ReshapeAndCacheParams& p = *params;
    if (p.m == 0) return 0;  // an empty grid cannot be launched
    const auto alignment = [](const auto* address, int64_t rows, const int64_t* stride, int64_t heads) {
        constexpr int64_t kSize = sizeof(*address);
        return sb::alignment_of(address, rows, stride[0] * kSize) | sb::alignment_of(address, heads, stride[1] * kSize);
    };
    const uint64_t rows = alignment(p.k, p.n, p.k_stride, p.g) | alignment(p.v, p.n, p.v_stride, p.g);
    const uint64_t slots = static_cast<uint64_t>(p.page * sizeof(C)) | alignment(p.v_cache, p.pages, p.v_cache_stride, p.g);
    const int64_t row_tiles = (p.m + kRows - 1) / kRows;
    const int64_t column_tiles = (p.g * p.d + kColumns - 1) / kColumns;
    const dim3 grid(static_cast<unsigned>(row_tiles * column_tiles), 2);
    write_tiles<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p, static_cast<unsigned>(column_tiles), sb::widest_access(rows) == 16,
                                                                         sb::widest_access(slots) == 16);
    return static_cast<int>(cudaGetLastError());
}
