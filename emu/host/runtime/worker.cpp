// A worker's life: begin and end of a launch, one block, its shared memory, failure.
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "check.h"
#include "device.h"
#include "gang.h"

namespace samebits {

namespace {
constexpr size_t kWindowBytes = size_t(1) << 20;          // address space for the shared memory of one block; limits are far below
constexpr size_t kCheckedWindowBytes = kWindow;           // with checks variables lie far apart:
constexpr size_t kCheckedGap = size_t(1) << 16;           // running over the end of one must not reach the next
constexpr size_t kGap = 64;                       // poison between variables, so that the end of one is not the start of the next
size_t align_up(size_t n, size_t align) { return (n + align - 1) & ~(align - 1); }
}  // namespace

Worker::Worker() : BlockView{}, check(*new BlockCheck) {
  static std::atomic<unsigned> workers{0};
  check_id = workers++;
  window_bytes_ = kCheckedWindowBytes;
  void* p = mmap(nullptr, window_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  window_ = p == MAP_FAILED ? nullptr : static_cast<char*>(p);
}

Worker::~Worker() {
  if (window_ != nullptr) munmap(window_, window_bytes_);
  delete &check;
}

void Worker::begin(Grid& grid, Gang& gang, unsigned position) {
  grid_ = &grid;
  gang_ = &gang;
  position_ = position;
  async_used_ = false;
  partner = nullptr;
  order_ = grid.order;
  most_static_ = 0;
  block_dim = grid.block;
  grid_dim = grid.grid;
  cluster_dim = grid.cluster;
  gap_ = Check::on != nullptr ? kCheckedGap : kGap;
  if (window_ == nullptr) record(cudaErrorMemoryAllocation, "no memory for shared memory");
}

void Worker::end() {
  if (grid_->stop.load(std::memory_order_relaxed)) discard_fibers();
  if (most_static_ > grid_->kernel->static_bytes) {
    std::lock_guard<std::mutex> lock(grid_->mutex);
    grid_->kernel->static_bytes = std::max(grid_->kernel->static_bytes, most_static_);
  }
  grid_ = nullptr;
  gang_ = nullptr;
}

void Worker::record_fault() {
  if (Check::active != nullptr) Check::on->failure(describe_fault(*this), running(fault_stack), fault_pc);
  const auto [file, line] = resolve({static_cast<const char*>(fault_pc) + 1})[0];
  record(code_of_fault(*this), where(running(fault_stack)) + ": " + describe_fault(*this) + (line != 0 ? " (" + site(file.c_str(), line) + ")" : ""));
}

void Worker::begin_block(uint64_t index) {
  const Grid& grid = *grid_;
  const dim3 &c = grid.cluster, clusters{grid.grid.x / c.x, grid.grid.y / c.y, grid.grid.z / c.z};
  uint64_t cluster = index / grid.cluster_blocks;
  unsigned rank = cluster_rank = unsigned(index % grid.cluster_blocks);
  cluster_idx = {rank % c.x, rank / c.x % c.y, rank / c.x / c.y};
  block_idx = {unsigned(cluster % clusters.x) * c.x + cluster_idx.x, unsigned(cluster / clusters.x % clusters.y) * c.y + cluster_idx.y,
               unsigned(cluster / clusters.x / clusters.y) * c.z + cluster_idx.z};
  uint64_t number = (uint64_t(block_idx.z) * grid.grid.y + block_idx.y) * grid.grid.x + block_idx.x;
  random_ = mix(grid.seed ^ mix(number));
  ++generation;
  dynamic_shared = window_;
  dynamic_bytes = unsigned(grid.dynamic_bytes);
  static_bytes = 0;
  memset(window_, grid.poison, grid.dynamic_bytes);  // C15
  window_used_ = align_up(grid.dynamic_bytes + gap_, kGap);
  if (Check::on != nullptr) {
    Check::on->begin_block(*this, number);
    if (grid.dynamic_bytes != 0) Check::on->place(*this, "dynamic shared memory", reinterpret_cast<uintptr_t>(window_), grid.dynamic_bytes, 0);
  }

  warp_count_ = (grid.threads + 31) / 32;
  for (unsigned i = 0; i < warp_count_; ++i) {
    Warp& warp = warps_[i];
    unsigned lanes = std::min(32u, grid.threads - i * 32);
    warp.alive = warp.ready = lanes == 32 ? 0xFFFFFFFFu : (1u << lanes) - 1;
    warp.at_barrier = warp.waiting = warp.converging = warp.held = 0;
    warp.across[kCluster] = warp.across[kGrid] = {};
  }
  ready_warps_ = warp_count_ == 32 ? 0xFFFFFFFFu : (1u << warp_count_) - 1;
  alive_ = grid.threads;
  arrived_ = came_[kCluster] = came_[kGrid] = 0;
  polls_ = rounds_ = 0;
  only_polls = false;
  turn_ticks_ = 0;
  mbarriers_.clear();
  mbarriers_made_ = 0;
  if (named_used_) std::fill(std::begin(named_), std::end(named_), Named());
  named_used_ = false;
  started_ = false;
  resume_at_ = nullptr;
  current_ = order_ == Order::reverse ? warp_count_ - 1 : 0;
  std::fill_n(stack_pointer_, grid.threads + 1, nullptr);
}

bool Worker::resume(void** main) {
  void* to = resume_at_;
  if (!started_) {
    if (free_.empty() && !add_fiber()) return false;
    to = acquire(unsigned(pick()));
    started_ = true;
  }
  resume_at_ = nullptr;
  switch_stack(main, to);
  if (alive_ == 0) most_static_ = std::max(most_static_, static_bytes);
  return true;
}

// After a failure fibers stand in the middle of threads that will not go on.
void Worker::discard_fibers() {
  free_.clear();
  async_.clear();
  for (Thread* thread : stacks_.all()) free_.push_back({thread, prepare_stack(thread, fiber_main)});
}

namespace {
std::mutex slots_mutex;
std::vector<Slot*>& slots() {  // by id
  static auto* all = new std::vector<Slot*>{nullptr};
  return *all;
}
}  // namespace

Slot* slot_of(unsigned id) {
  std::lock_guard<std::mutex> lock(slots_mutex);
  return slots()[id];
}

void* Worker::place_shared(Thread* thread, Slot* slot) {
  unsigned id;
  {
    std::lock_guard<std::mutex> lock(slots_mutex);
    if (slot->id == 0) {
      __atomic_store_n(&slot->id, unsigned(slots().size()), __ATOMIC_RELAXED);
      slots().push_back(slot);
    }
    id = slot->id;
  }
  if (id >= entries_.size()) {
    entries_.resize(std::max<size_t>(id + 1, entries_.size() * 2), SharedEntry{0, nullptr});
    shared = entries_.data();
    shared_entries = unsigned(entries_.size());
  }
  static_bytes = unsigned(align_up(static_bytes, slot->align) + slot->bytes);
  const Here here{slot->file, slot->line, nullptr, 0};
  if (static_bytes > 48 * 1024) {
    fail(thread, cudaErrorInvalidValue, here,
         "static shared memory of " + std::to_string(static_bytes) + " bytes with " + slot->name + ": the limit is 49152");
  }
  if (static_bytes + grid_->dynamic_bytes > grid_->shared_limit) {
    fail(thread, cudaErrorInvalidValue, here, std::to_string(grid_->dynamic_bytes) + " bytes of dynamic and " + std::to_string(static_bytes) +
                                                  " of static shared memory: the limit is " + std::to_string(grid_->shared_limit));
  }
  // At least 16: the compiler of a GPU places arrays so too, and programs rely on it.
  size_t offset = align_up(window_used_, std::max<size_t>(slot->align, 16));
  window_used_ = offset + slot->bytes + (offset < window_bytes_ / 2 ? gap_ : kGap);
  if (window_used_ > window_bytes_ || (gap_ == kGap && window_used_ > kWindowBytes)) {
    fail(thread, cudaErrorInvalidValue, here, std::string("no room for shared variable ") + slot->name);
  }
  memset(window_ + offset, grid_->poison, slot->bytes);  // C15
  entries_[id] = {generation, window_ + offset};
  if (Check::active != nullptr) Check::on->place(*this, slot->name, reinterpret_cast<uintptr_t>(window_ + offset), slot->bytes, id);
  return window_ + offset;
}

void Worker::record(int code, std::string text) {
  std::lock_guard<std::mutex> lock(grid_->mutex);
  if (grid_->code == 0) {
    grid_->code = code;
    grid_->text = std::move(text);
  }
  grid_->stop = true;
}

void Worker::leave() {
  void* unused;
  switch_stack(&unused, gang_->main());
  __builtin_unreachable();
}

void Worker::fail(const Thread* thread, int code, const std::string& what) {
  if (Check::active != nullptr) Check::on->failure(what, thread);
  record(code, where(thread) + ": " + what);
  leave();
}

void Worker::fail(const Thread* thread, int code, const Here& here, const std::string& what) {
  std::string text = what + " (" + site(here.file, here.line) + ")";
  if (Check::active != nullptr) Check::on->failure(text, thread, nullptr, &here);
  record(code, where(thread) + ": " + text);
  leave();
}

void Worker::fail(const Thread* thread, int code, const void* pc, const std::string& what) {
  const auto [file, line] = resolve({pc})[0];
  if (line == 0) fail(thread, code, what);
  fail(thread, code, Here{file.c_str(), line, pc, 0}, what);
}

void Worker::stop(const Thread* thread, int code, const void* pc, const std::string& what) {
  const auto [file, line] = resolve({pc})[0];
  record(code, where(thread) + ": " + what + (line != 0 ? " (" + site(file.c_str(), line) + ")" : ""));
  leave();
}

std::string coordinates(unsigned x, unsigned y, unsigned z) {
  return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
}

std::string site(const char* file, int line) { return std::string(file) + ":" + std::to_string(line); }

std::string Worker::where(const Thread* t) const {
  return "block " + coordinates(block_idx.x, block_idx.y, block_idx.z) + ", thread " + coordinates(t->index.x, t->index.y, t->index.z);
}

std::string op_name(Op op) {
  switch (op) {
    case Op::syncthreads: return "__syncthreads()";
    case Op::syncthreads_count: return "__syncthreads_count()";
    case Op::syncthreads_and: return "__syncthreads_and()";
    case Op::syncthreads_or: return "__syncthreads_or()";
    case Op::syncwarp: return "__syncwarp()";
    case Op::shuffle: return "__shfl*_sync()";
    case Op::ballot: return "__ballot_sync()";
    case Op::all: return "__all_sync()";
    case Op::any: return "__any_sync()";
    case Op::match_any: return "__match_any_sync()";
    case Op::match_all: return "__match_all_sync()";
    case Op::activemask: return "__activemask()";
    case Op::cluster_barrier: return "a barrier of the cluster";
    case Op::grid_barrier: return "a barrier of the grid";
    case Op::mbarrier: return "an mbarrier";
    case Op::named_barrier: return "a numbered barrier";
    default: return "__reduce_*_sync()";
  }
}

namespace {
Worker& worker_of(Thread* thread) { return *static_cast<Worker*>(thread->block); }
}  // namespace

// What headers call.
void* shared_first(Thread* t, Slot* slot) { return worker_of(t).place_shared(t, slot); }
void yield(Thread* t) { worker_of(t).yield(t, __builtin_return_address(0)); }

void bad_width(int width, const char* file, int line) {
  Thread* t = self();
  worker_of(t).fail(t, cudaErrorLaunchFailure,
                    "__shfl*_sync() (" + site(file, line) + "): width " + std::to_string(width) + " is not a power of two up to 32");
}

void trap(const char* what) {
  if (active_worker() == nullptr) {
    fprintf(stderr, "%s in host code\n", what);
    abort();
  }
  Thread* t = self();
  worker_of(t).fail(t, cudaErrorLaunchFailure, __builtin_return_address(0), what);
}

void assert_failed(const char* expression, const char* file, int line, const char* function) {
  if (active_worker() == nullptr) {
    fprintf(stderr, "%s:%d: %s: Assertion `%s' failed.\n", file, line, function, expression);
    abort();
  }
  Thread* t = self();
  worker_of(t).fail(t, cudaErrorAssert, Here{file, line, nullptr, 0}, std::string("assertion `") + expression + "` failed");
}

}  // namespace samebits
