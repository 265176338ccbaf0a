// What crosses the borders of blocks: barriers of the cluster and of the grid, shared memory of other blocks.
#include <string.h>

#include "check.h"
#include "gang.h"

namespace samebits {

std::atomic<const char*> notes[8];

namespace {
Worker& worker_of(const Thread* thread) { return *static_cast<Worker*>(thread->block); }
}  // namespace

void Worker::arrive(Thread* thread, Scope scope, bool aligned, const char* file, int line) {
  thread->file = file;
  thread->line = line;
  thread->op = scope == kCluster ? Op::cluster_barrier : Op::grid_barrier;
  if (scope == kGrid && !grid_->cooperative && grid_->blocks > 1) {
    fail(thread, cudaErrorLaunchFailure, "a barrier of the grid in a launch that is not cooperative");
  }
  Warp& warp = warps_[thread->linear / 32];
  Across& at = warp.across[scope];
  uint32_t bit = 1u << (thread->linear % 32);
  if ((at.arrived | at.passed) & bit) {
    fail(thread, cudaErrorLaunchFailure, "divergent barrier: it arrives at " + op_name(thread->op) + " (" + site(file, line) +
                                             ") again before it has waited for the last one");
  }
  if (aligned && at.file != nullptr && at.arrived != 0 && (line != at.line || strcmp(file, at.file) != 0)) {
    partner = fiber_of_[(thread->linear & ~31u) + unsigned(__builtin_ctz(at.arrived))];
    fail(thread, cudaErrorLaunchFailure, "divergent barrier: it is at " + op_name(thread->op) + " (" + site(file, line) +
                                             ") while another lane of its warp is at " + site(at.file, at.line));
  }
  if (aligned) at.file = file, at.line = line;
  at.arrived |= bit;
  ++came_[scope];
  polls_ = 0;
  if (Check::active != nullptr && scope == kCluster) Check::on->arrive(*this, thread);
  if (all_came(scope)) gang_->meet(scope, *this);
}

void Worker::wait(Thread* thread, Scope scope, const char* file, int line) {
  Warp& warp = warps_[thread->linear / 32];
  Across& at = warp.across[scope];
  uint32_t bit = 1u << (thread->linear % 32);
  if (at.passed & bit) {
    at.passed &= ~bit;
  } else {
    thread->file = file;
    thread->line = line;
    thread->op = scope == kCluster ? Op::cluster_barrier : Op::grid_barrier;
    if ((at.arrived & bit) == 0) {
      fail(thread, cudaErrorLaunchFailure, "divergent barrier: it waits at " + op_name(thread->op) + " (" + site(file, line) + ") without having arrived");
    }
    at.waiting |= bit;
    warp.ready &= ~bit;
    block_on(thread, warp);
  }
  if (Check::active != nullptr && scope == kCluster) Check::on->pass(*this, thread);
}

// All have come: those that wait go on, the others will not have to wait.
void Worker::release_across(Scope scope) {
  if (Check::active != nullptr && came_[scope] != grid_->threads && came_[scope] != 0) checked_across(scope);
  for (unsigned i = 0; i < warp_count_; ++i) {
    Across& at = warps_[i].across[scope];
    at.passed = at.arrived & ~at.waiting;
    warps_[i].ready |= at.waiting;
    if (at.waiting != 0) ready_warps_ |= 1u << i;
    at.arrived = at.waiting = 0;
    at.file = nullptr;
  }
  came_[scope] = 0;
  polls_ = 0;
}

// A thread that returns is no longer waited for.
void Worker::leave_across(unsigned linear) {
  uint32_t bit = 1u << (linear % 32);
  for (Scope scope : {kCluster, kGrid}) {
    Across& at = warps_[linear / 32].across[scope];
    if (at.arrived & bit) --came_[scope];
    at.arrived &= ~bit;
    if (came_[scope] != 0 && all_came(scope)) gang_->meet(scope, *this);
  }
}

void Worker::poison_shared() { memset(window_, grid_->poison, window_used_); }

// The variable that holds an address of this block's shared memory, in the block of that rank: each block places its variables at their
// first use, in an order of its own.
void* Worker::map_shared(Thread* thread, const void* p, unsigned rank) {
  const char* address = static_cast<const char*>(p);
  unsigned blocks = grid_->cluster_blocks;
  if (rank >= blocks) {
    fail(thread, cudaErrorIllegalAddress, "shared memory of rank " + std::to_string(rank) + " of a cluster of " + std::to_string(blocks) + " blocks");
  }
  Worker& target = gang_->peer(*this, rank);
  if (size_t(address - window_) <= grid_->dynamic_bytes) return target.window_ + (address - window_);
  for (size_t id = 1; id < entries_.size(); ++id) {
    const SharedEntry& entry = entries_[id];
    if (entry.generation != generation || size_t(address - static_cast<char*>(entry.pointer)) > slot_of(unsigned(id))->bytes) continue;
    bool there = id < target.entries_.size() && target.entries_[id].generation == target.generation;
    void* base = there ? target.entries_[id].pointer : target.place_shared(thread, slot_of(unsigned(id)));
    return static_cast<char*>(base) + (address - static_cast<char*>(entry.pointer));
  }
  fail(thread, cudaErrorIllegalAddress, "an address of another block's shared memory is wanted for one that is not in the own");
}

int Worker::rank_of(const void* p) const {
  const Worker* owner = gang_->owner(*this, reinterpret_cast<uintptr_t>(p));
  return owner != nullptr ? int(owner->cluster_rank) : -1;
}

void Worker::checked_across(Scope scope) const {
  for (unsigned i = 0; i < grid_->threads; ++i) {
    if (!(warps_[i / 32].across[scope].arrived >> (i % 32) & 1)) continue;
    const Thread* first = fiber_of_[i];
    Check::on->report("barrier divergence",
                      op_name(first->op) + " is reached by " + std::to_string(came_[scope]) + " of the block's " + std::to_string(grid_->threads) +
                          " threads: the others have returned",
                      first, 0, nullptr, first->file, first->line);
    return;
  }
}

// What headers call.
void arrive(Scope scope, bool aligned, const char* file, int line) { worker_of(self()).arrive(self(), scope, aligned, file, line); }
void wait(Scope scope, const char* file, int line) { worker_of(self()).wait(self(), scope, file, line); }
void not_bit_accurate(const char* what) {
  for (std::atomic<const char*>& note : notes) {
    const char* none = nullptr;
    if (note.load(std::memory_order_relaxed) == what || note.compare_exchange_strong(none, what)) return;
  }
}
bool on_device() { return active_worker() != nullptr; }
bool cooperative() { return worker_of(self()).cooperative(); }
void* map_shared(const void* p, unsigned rank) { return worker_of(self()).map_shared(self(), p, rank); }
int shared_rank(const void* p) { return worker_of(self()).rank_of(p); }

size_t far_shared_address(const void* p) {
  Worker& worker = worker_of(self());
  int rank = worker.rank_of(p);
  if (rank < 0) return size_t(static_cast<const char*>(p) - worker.window());
  return size_t(static_cast<const char*>(p) - worker.gang().peer(worker, unsigned(rank)).window()) + size_t(rank + 1) * kWindow;
}
void* far_shared_pointer(size_t address) {
  Worker& worker = worker_of(self());
  size_t rank = address / kWindow - 1;
  if (rank >= worker.cluster_blocks()) return worker.window() + address;
  return worker.gang().peer(worker, unsigned(rank)).window() + address % kWindow;
}

}  // namespace samebits
