#include "gang.h"

#include <algorithm>

#include "check.h"

namespace samebits {

Gang::Gang(Grid& grid) : grid_(grid) { ++grid.gangs; }

Gang::~Gang() {
  --grid_.gangs;
  for (auto& worker : workers_) keep_worker(std::move(worker));
}

// after(context) is called when a gang has ended well.
void Gang::run(void (*after)(void*), void* context) {
  enter_fault_stack(true);
  start_clock(grid_);
  if (sigsetjmp(fault, 1) == 0) {
    while (run_next()) after(context);
  } else {  // from the handler of a fault in device code
    active_worker()->record_fault();
  }
  stop_clock();
  for (auto& worker : workers_) worker->end();
  active_worker() = nullptr;
  Check::active = nullptr;
  enter_fault_stack(false);
}

namespace {
uint64_t preferred(uint64_t number, uint64_t gangs) {
  uint64_t n = prefer.index;
  if (prefer.first) return number == 0 ? n : number - (number <= n);
  return number == gangs - 1 ? n : number + (number >= n);
}
}  // namespace

bool Gang::open() {
  size_t count = grid_.gang_blocks(), first = 0;
  uint64_t gangs = grid_.blocks / count, number = grid_.next.fetch_add(1);
  if (number >= gangs) return false;
  while (first < workers_.size() && !over(first)) first += count;
  while (workers_.size() < first + count) {
    workers_.push_back(take_worker());
    workers_.back()->begin(grid_, *this, unsigned(workers_.size() - 1));
  }
  if (grid_.order == Order::reverse) number = gangs - 1 - number;
  if (grid_.order == Order::prefer && prefer.which == kBlocks && prefer.index < gangs) number = preferred(number, gangs);
  if (grid_.order == Order::shuffle && (shuffle.mixed & kBlocks)) number = permute(number, gangs, grid_.seed);
  random_ = mix(grid_.seed ^ ~number);
  running_ = grid_.order == Order::reverse ? (first + count) % workers_.size() : (first + workers_.size() - 1) % workers_.size();
  for (size_t i = 0; i < count; ++i) workers_[first + i]->begin_block(number * count + i);
  return true;
}

bool Gang::over(size_t group) const {
  return std::all_of(&workers_[group], &workers_[group] + grid_.gang_blocks(), [](auto& worker) { return worker->alive() == 0; });
}

// Runs until a block alone, a cluster or a cooperative grid has ended; false: there is none, or the launch has failed.
bool Gang::run_next() {
  if (absent() == workers_.size() && !open()) return false;
  while (Worker* next = choose()) {
    gave_way_ = false;
    active_worker() = next;
    if (Check::on != nullptr) Check::active = next;
    if (!next->resume(&main_)) return false;
    if (next->alive() == 0) ended(*next);
    if (grid_.stop.load(std::memory_order_relaxed)) return false;
    turned(*next);
    if (over(next->position() / grid_.gang_blocks() * grid_.gang_blocks())) return true;
  }
  stuck();
  return false;
}

// How many blocks the device holds at once bounds how many may wait for each other.
bool Gang::may_open() const {
  if (grid_.next.load(std::memory_order_relaxed) * grid_.gang_blocks() >= grid_.blocks) return false;
  return workers_.size() + grid_.gang_blocks() <= resident_blocks(*grid_.kernel, grid_.threads, grid_.dynamic_bytes);
}

void Gang::let_others(Worker& worker) {
  if (!several() && !may_open()) return;
  gave_way_ = true;
  suspend(worker);
}

// A block has been suspended. Where cores share the launch, what it waits for may be on its way on another one.
void Gang::turned(Worker& worker) {
  worker.only_polls |= gave_way_;
  if (!gave_way_) idle_since_ = now_ms();
  if (worker.alive() == 0) {
    for (auto& other : workers_) other->only_polls = false;
  }
  polls_known_ = gave_way_ || (polls_known_ && worker.alive() != 0);
  bool all = std::all_of(workers_.begin(), workers_.end(), [](auto& w) { return w->only_polls || !w->can_run(); });
  if (all && may_open() && (grid_.gangs == 1 || now_ms() - idle_since_ > 5)) open();
}

// The next block that can go on, in the order of the launch; nullptr without any.
Worker* Gang::choose() {
  if (Worker* next = choose_ready()) return next;
  bool woken = false;  // those that wait for an mbarrier may ask again
  for (auto& worker : workers_) woken = worker->wake_all() || woken;
  return woken ? choose_ready() : nullptr;
}

Worker* Gang::choose_ready() {
  size_t n = workers_.size(), count = 0;
  if (grid_.order != Order::shuffle || !(shuffle.mixed & kBlocks)) {
    for (size_t i = 0; i < n; ++i) {
      running_ = grid_.order == Order::reverse ? (running_ + n - 1) % n : (running_ + 1) % n;
      if (workers_[running_]->can_run()) return workers_[running_].get();
    }
    return nullptr;
  }
  bool rested = std::any_of(workers_.begin(), workers_.end(), [](auto& worker) { return worker->can_run() && !worker->only_polls; });
  auto takes_part = [rested](auto& worker) { return worker->can_run() && !(rested && worker->only_polls); };
  count = size_t(std::count_if(workers_.begin(), workers_.end(), takes_part));
  if (count == 0) return nullptr;
  random_ = mix(random_);
  size_t skip = random_ % count;
  for (running_ = 0; !takes_part(workers_[running_]) || skip-- > 0;) ++running_;
  return workers_[running_].get();
}

void Gang::suspend(Worker& worker) { switch_stack(worker.resume_at(), main_); }

// Its shared memory is gone; whoever still waits for its threads waits for nobody.
void Gang::ended(Worker& worker) {
  if (Check::active != nullptr) {
    worker.checked_flights();
    Check::on->end_block(worker);
  }
  if (!several()) return;
  worker.poison_shared();
  meet(kCluster, worker);
}

unsigned Gang::absent() const {
  return unsigned(std::count_if(workers_.begin(), workers_.end(), [](auto& worker) { return worker->alive() == 0; }));
}

// None can go on: the failure is told of a block that waits at a barrier of its own, if there is one.
void Gang::stuck() {
  auto waits = [](auto& worker) { return worker->alive() != 0 && worker->waits_within(); };
  auto found = std::find_if(workers_.begin(), workers_.end(), waits);
  if (found == workers_.end()) found = std::find_if(workers_.begin(), workers_.end(), [](auto& worker) { return worker->alive() != 0; });
  (*found)->record_deadlock();
}

std::pair<size_t, size_t> Gang::members(Scope scope, const Worker& worker) const {
  if (scope == kGrid) return {0, workers_.size()};
  size_t first = worker.position() - worker.cluster_rank;
  return {first, first + grid_.cluster_blocks};
}

// A block that has returned is missed by no cluster (PTX, barrier.cluster.wait), but by a grid's barrier, which counts blocks.
void Gang::meet(Scope scope, const Worker& worker) {
  auto [first, last] = members(scope, worker);
  bool any = false;
  for (size_t i = first; i < last; ++i) {
    if (!workers_[i]->all_came(scope) || (scope == kGrid && workers_[i]->alive() == 0)) return;
    any = any || workers_[i]->alive() != 0;
  }
  if (!any) return;
  if (Check::active != nullptr && scope == kGrid) Check::on->grid_barrier();
  for (size_t i = first; i < last; ++i) {
    workers_[i]->release_across(scope);
    if (Check::active != nullptr && scope == kGrid) Check::on->new_sequence(*workers_[i]);
  }
}

Worker& Gang::peer(const Worker& worker, unsigned rank) const { return *workers_[members(kCluster, worker).first + rank]; }

Worker* Gang::owner(const Worker& worker, uintptr_t address) const {
  auto [first, last] = members(kCluster, worker);
  for (size_t i = first; i < last; ++i) {
    if (address - reinterpret_cast<uintptr_t>(workers_[i]->window()) < workers_[i]->window_bytes()) return workers_[i].get();
  }
  return nullptr;
}

}  // namespace samebits
