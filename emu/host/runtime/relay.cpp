#include "relay.h"

#include "check.h"

namespace samebits {

void Relay::choose(unsigned after) {
  if (ready_.empty()) {
    turn_ = ~0u;
    return;
  }
  if (grid_.order == Order::shuffle) {
    random_ = mix(random_ ^ grid_.seed);
    auto at = ready_.begin();
    std::advance(at, random_ % ready_.size());
    turn_ = *at;
  } else {
    auto at = ready_.lower_bound(after);
    turn_ = at != ready_.end() ? *at : *ready_.begin();
  }
  changed_.notify_all();
}

void Relay::wait_turn(std::unique_lock<std::mutex>& lock, unsigned ticket) {
  changed_.wait(lock, [&] { return turn_ == ticket; });
}

void Relay::enter(unsigned ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  wait_turn(lock, ticket);
}

void Relay::pass(unsigned ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  choose(ticket + 1);
  wait_turn(lock, ticket);
}

const char* Relay::sync(unsigned ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  ready_.erase(ticket);
  waiting_.insert(ticket);
  if (waiting_.size() == running_ && total_ended_ == 0) {
    if (Check::on != nullptr) Check::on->grid_barrier();
    ready_.swap(waiting_);
    choose(0);
  } else if (ready_.empty()) {  // those that have ended will not come
    broken_ = true;
    ready_.swap(waiting_);
    choose(0);
  } else {
    choose(ticket + 1);
  }
  wait_turn(lock, ticket);
  return broken_ ? "the grid's barrier waits for blocks that have returned" : nullptr;
}

void Relay::leave(unsigned ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  ready_.erase(ticket);
  --running_;
  ++total_ended_;
  if (ready_.empty() && !waiting_.empty()) {
    broken_ = true;
    ready_.swap(waiting_);
  }
  choose(ticket + 1);
}

// Called by one thread of a block whose others wait at a barrier.
void grid_sync() {
  Thread* thread = self();
  Worker& worker = *static_cast<Worker*>(thread->block);
  if (worker.relay == nullptr) {
    if (uint64_t(worker.grid_dim.x) * worker.grid_dim.y * worker.grid_dim.z == 1) return;
    worker.fail(thread, cudaErrorLaunchFailure, "a barrier of the grid in a launch that is not cooperative");
  }
  const char* wrong = worker.relay->sync(worker.ticket);
  if (wrong != nullptr) worker.fail(thread, cudaErrorLaunchFailure, std::string("deadlock: ") + wrong);
  if (Check::active != nullptr) Check::on->new_sequence(worker);
}

bool cooperative() { return static_cast<Worker*>(self()->block)->relay != nullptr; }

}  // namespace samebits
