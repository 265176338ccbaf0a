// Cooperative launches: every block has an OS thread and a worker of its own, and one of them runs at a time, in an order that the
// launch's order and seed say.
#pragma once

#include <condition_variable>
#include <mutex>
#include <set>

#include "worker.h"

namespace samebits {

class Relay {
 public:
  Relay(Grid& grid, unsigned blocks) : grid_(grid), running_(blocks) {
    for (unsigned i = 0; i < blocks; ++i) ready_.insert(i);
    choose(0);
  }
  void enter(unsigned ticket);             // waits for its first turn
  void pass(unsigned ticket);              // lets the others run first
  const char* sync(unsigned ticket);       // the grid's barrier; what is wrong if it can never end, nullptr if it did
  void leave(unsigned ticket);             // its block has ended

 private:
  void choose(unsigned after);
  void wait_turn(std::unique_lock<std::mutex>&, unsigned ticket);
  Grid& grid_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<unsigned> ready_;   // tickets that could run
  std::set<unsigned> waiting_;  // at the barrier
  unsigned running_;            // blocks that have not ended
  unsigned total_ended_ = 0;
  unsigned turn_ = ~0u;
  bool broken_ = false;
  uint64_t random_ = 1;
};

}  // namespace samebits
