// Cooperative groups: the thread block, tiles of a warp, coalesced lanes, the cluster, the grid.
#pragma once

#include "samebits.h"

namespace cooperative_groups {

struct group_base {};

template <unsigned Size>
class thread_block_tile;
template <unsigned Size, class Parent = void>
using thread_block_tile_of = thread_block_tile<Size>;

class grid_group : public group_base {
 public:
  bool is_valid() const { return ::samebits::cooperative(); }
  struct arrival_token {};
  void sync(SAMEBITS_SITE) const {
    ::samebits::arrive(::samebits::kGrid, true, file, line);
    ::samebits::wait(::samebits::kGrid, file, line);
  }
  arrival_token barrier_arrive(SAMEBITS_SITE) const { return ::samebits::arrive(::samebits::kGrid, true, file, line), arrival_token(); }
  void barrier_wait(arrival_token&&, SAMEBITS_SITE) const { ::samebits::wait(::samebits::kGrid, file, line); }
  unsigned long long size() const {
    dim3 b = ::samebits::block_dim();
    return (unsigned long long)b.x * b.y * b.z * num_blocks();
  }
  unsigned long long num_threads() const { return size(); }
  unsigned long long num_blocks() const {
    dim3 g = ::samebits::grid_dim();
    return (unsigned long long)g.x * g.y * g.z;
  }
  unsigned long long block_rank() const {
    dim3 g = ::samebits::grid_dim();
    return ((unsigned long long)::samebits::block_index().z * g.y + ::samebits::block_index().y) * g.x + ::samebits::block_index().x;
  }
  unsigned long long thread_rank() const {
    dim3 b = ::samebits::block_dim();
    return block_rank() * b.x * b.y * b.z + ::samebits::self()->linear;
  }
  dim3 group_dim() const { return ::samebits::grid_dim(); }
  dim3 dim_blocks() const { return ::samebits::grid_dim(); }
  dim3 block_index() const { return dim3(::samebits::block_index()); }
};
inline grid_group this_grid() { return grid_group(); }

class cluster_group : public group_base {
 public:
  struct arrival_token {};
  static void sync(SAMEBITS_SITE) {
    __cluster_barrier_arrive(file, line);
    __cluster_barrier_wait(file, line);
  }
  static arrival_token barrier_arrive(SAMEBITS_SITE) { return __cluster_barrier_arrive(file, line), arrival_token(); }
  static void barrier_wait(SAMEBITS_SITE) { __cluster_barrier_wait(file, line); }
  static void barrier_wait(arrival_token&&, SAMEBITS_SITE) { __cluster_barrier_wait(file, line); }
  static dim3 dim_blocks() { return __clusterDim(); }
  static unsigned num_blocks() { return __clusterSizeInBlocks(); }
  static dim3 block_index() { return __clusterRelativeBlockIdx(); }
  static unsigned block_rank() { return __clusterRelativeBlockRank(); }
  static dim3 dim_threads() {
    dim3 c = __clusterDim(), b = ::samebits::block_dim();
    return dim3(c.x * b.x, c.y * b.y, c.z * b.z);
  }
  static unsigned num_threads() {
    dim3 all = dim_threads();
    return all.x * all.y * all.z;
  }
  static unsigned size() { return num_threads(); }
  static dim3 thread_index() {
    dim3 i = __clusterRelativeBlockIdx(), b = ::samebits::block_dim(), t = ::samebits::thread_index();
    return dim3(i.x * b.x + t.x, i.y * b.y + t.y, i.z * b.z + t.z);
  }
  static unsigned thread_rank() {
    dim3 b = ::samebits::block_dim();
    return block_rank() * b.x * b.y * b.z + ::samebits::self()->linear;
  }
  static unsigned query_shared_rank(const void* p) { return __cluster_query_shared_rank(p); }
  template <class T>
  static T* map_shared_rank(T* p, int rank) { return static_cast<T*>(::samebits::map_shared(p, unsigned(rank))); }
};
inline cluster_group this_cluster() { return cluster_group(); }

class thread_block : public group_base {
 public:
  void sync(SAMEBITS_SITE) const { ::samebits::barrier(::samebits::self(), ::samebits::Op::syncthreads, 0, file, line); }
  static unsigned size() {
    dim3 b = ::samebits::block_dim();
    return b.x * b.y * b.z;
  }
  static unsigned num_threads() { return size(); }
  static unsigned thread_rank() { return ::samebits::self()->linear; }
  static dim3 group_index() { return dim3(::samebits::block_index()); }
  static dim3 thread_index() { return dim3(::samebits::thread_index()); }
  static dim3 group_dim() { return ::samebits::block_dim(); }
  static dim3 dim_threads() { return ::samebits::block_dim(); }
};
inline thread_block this_thread_block() { return thread_block(); }

// Lanes of a warp: `mask` holds all of them.
class warp_group : public group_base {
 public:
  void sync(SAMEBITS_SITE) const { __syncwarp(mask_, file, line); }
  unsigned size() const { return unsigned(__builtin_popcount(mask_)); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return unsigned(__builtin_popcount(mask_ & ((1u << ::samebits::lane()) - 1))); }
  template <class T>
  T shfl(T v, int rank, SAMEBITS_SITE) const { return exchange(v, lane_of(unsigned(rank) % size()), file, line); }
  template <class T>
  T shfl_up(T v, unsigned delta, SAMEBITS_SITE) const {
    unsigned r = thread_rank();
    return exchange(v, lane_of(r >= delta ? r - delta : r), file, line);
  }
  template <class T>
  T shfl_down(T v, unsigned delta, SAMEBITS_SITE) const {
    unsigned r = thread_rank();
    return exchange(v, lane_of(r + delta < size() ? r + delta : r), file, line);
  }
  template <class T>
  T shfl_xor(T v, unsigned bits, SAMEBITS_SITE) const {
    unsigned r = thread_rank();
    return exchange(v, lane_of((r ^ bits) < size() ? r ^ bits : r), file, line);
  }
  int any(int p, SAMEBITS_SITE) const { return __any_sync(mask_, p, file, line); }
  int all(int p, SAMEBITS_SITE) const { return __all_sync(mask_, p, file, line); }
  unsigned ballot(int p, SAMEBITS_SITE) const { return packed(__ballot_sync(mask_, p, file, line)); }
  template <class T>
  unsigned match_any(T v, SAMEBITS_SITE) const { return packed(__match_any_sync(mask_, v, file, line)); }
  template <class T>
  unsigned match_all(T v, int& p, SAMEBITS_SITE) const { return packed(__match_all_sync(mask_, v, &p, file, line)); }
  unsigned samebits_mask() const { return mask_; }

 protected:
  explicit warp_group(unsigned mask) : mask_(mask) {}
  unsigned lane_of(unsigned rank) const {
    unsigned left = mask_;
    while (rank-- > 0) left &= left - 1;
    return unsigned(__builtin_ctz(left));
  }
  unsigned packed(unsigned lanes) const {
    unsigned bits = 0, rank = 0;
    for (unsigned left = mask_; left != 0; left &= left - 1) bits |= (lanes >> __builtin_ctz(left) & 1u) << rank++;
    return bits;
  }
  template <class T>
  T exchange(T v, unsigned lane, const char* file, int line) const {  // of any type, eight bytes at a time
    T result;
    char* out = reinterpret_cast<char*>(&result);
    const char* in = reinterpret_cast<const char*>(&v);
    for (size_t at = 0; at < sizeof(T); at += 8) {
      unsigned long long bits = 0;
      size_t n = sizeof(T) - at < 8 ? sizeof(T) - at : 8;
      __builtin_memcpy(&bits, in + at, n);
      bits = __shfl_sync(mask_, bits, int(lane), 32, file, line);
      __builtin_memcpy(out + at, &bits, n);
    }
    return result;
  }
  unsigned mask_;
};

template <unsigned Size>
class thread_block_tile : public warp_group {
  static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0, "tiles of more than a warp are not modelled");

 public:
  thread_block_tile() : warp_group((Size == 32 ? 0xFFFFFFFFu : (1u << (Size & 31)) - 1) << (::samebits::lane() & ~(Size - 1))) {}
  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  static unsigned thread_rank() { return ::samebits::self()->linear & (Size - 1); }
  static unsigned meta_group_rank() { return ::samebits::self()->linear / Size; }
  static unsigned meta_group_size() { return (thread_block::size() + Size - 1) / Size; }
};

class coalesced_group : public warp_group {
 public:
  explicit coalesced_group(unsigned mask) : warp_group(mask) {}
  unsigned meta_group_rank() const { return 0; }
  unsigned meta_group_size() const { return 1; }
};
inline coalesced_group coalesced_threads(SAMEBITS_SITE) { return coalesced_group(__activemask(file, line)); }

class thread_group : public group_base {  // any of them, known at run time
 public:
  thread_group(const thread_block&) : mask_(0) {}
  thread_group(const warp_group& g) : mask_(g.samebits_mask()) {}
  void sync(SAMEBITS_SITE) const { mask_ != 0 ? __syncwarp(mask_, file, line) : thread_block().sync(file, line); }
  unsigned size() const { return mask_ != 0 ? coalesced_group(mask_).size() : thread_block::size(); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return mask_ != 0 ? coalesced_group(mask_).thread_rank() : thread_block::thread_rank(); }

 private:
  unsigned mask_;
};

template <unsigned Size, class Parent>
inline thread_block_tile<Size> tiled_partition(const Parent&) { return thread_block_tile<Size>(); }
inline thread_group tiled_partition(const thread_group& parent, unsigned size) {
  unsigned lane = ::samebits::lane();
  (void)parent;
  return thread_group(coalesced_group((size >= 32 ? 0xFFFFFFFFu : (1u << size) - 1) << (lane & ~(size - 1))));
}
template <class Group>
inline coalesced_group labeled_partition(const Group& g, int label, SAMEBITS_SITE) {
  return coalesced_group(__match_any_sync(g.samebits_mask(), label, file, line));
}
template <class Group>
inline coalesced_group binary_partition(const Group& g, bool p, SAMEBITS_SITE) {
  unsigned yes = __ballot_sync(g.samebits_mask(), p, file, line);
  return coalesced_group(p ? yes : g.samebits_mask() & ~yes);
}

template <class Group>
inline void sync(const Group& g, SAMEBITS_SITE) { g.sync(file, line); }

// Reductions and scans over the lanes of a group.
template <class T>
struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T>
struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T>
struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T>
struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T>
struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T>
struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };

template <class Group, class T, class F>
inline T reduce(const Group& g, T v, F f, SAMEBITS_SITE) {
  unsigned n = g.size();
  if ((n & (n - 1)) == 0) {  // by halves, as the hardware's library does for tiles
    for (unsigned d = n / 2; d > 0; d /= 2) v = f(v, g.shfl_xor(v, d, file, line));
    return v;
  }
  T total = g.shfl(v, 0, file, line);
  for (unsigned i = 1; i < n; ++i) total = f(total, g.shfl(v, int(i), file, line));
  return total;
}
template <class Group, class T, class F>
inline T inclusive_scan(const Group& g, T v, F f, SAMEBITS_SITE) {
  for (unsigned d = 1; d < g.size(); d *= 2) {
    T before = g.shfl_up(v, d, file, line);
    if (g.thread_rank() >= d) v = f(before, v);
  }
  return v;
}
template <class Group, class T>
inline T inclusive_scan(const Group& g, T v, SAMEBITS_SITE) { return inclusive_scan(g, v, plus<T>(), file, line); }
template <class Group, class T, class F>
inline T exclusive_scan(const Group& g, T v, F f, SAMEBITS_SITE) {
  T before = g.shfl_up(inclusive_scan(g, v, f, file, line), 1, file, line);
  return g.thread_rank() == 0 ? T() : before;
}
template <class Group, class T>
inline T exclusive_scan(const Group& g, T v, SAMEBITS_SITE) { return exclusive_scan(g, v, plus<T>(), file, line); }
template <class Group, class F>
inline void invoke_one(const Group& g, F f) {
  if (g.thread_rank() == 0) f();
}

// The group copies together, and waits for it with wait().
template <class Group, class T>
inline void memcpy_async(const Group& g, T* to, const T* from, size_t bytes) {
  ::samebits::async_bytes(to, from, bytes, g.thread_rank(), g.size());
  ::samebits::async_commit();
}
template <class Group>
inline void wait(const Group& g, SAMEBITS_SITE) {
  ::samebits::async_wait_all();
  g.sync(file, line);
}
template <unsigned Stages, class Group>
inline void wait_prior(const Group& g, SAMEBITS_SITE) {
  ::samebits::async_wait(Stages);
  g.sync(file, line);
}

}  // namespace cooperative_groups
