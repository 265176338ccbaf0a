// Blocks that run together on one core: a block alone, a cluster, or all blocks of a cooperative grid. One of them runs at a time, on
// fibers of its own worker; it hands over where none of its threads can go on. Where all of them only poll, those that come next in the
// order of the launch join them, as many as the device holds.
#pragma once

#include <setjmp.h>

#include <memory>
#include <vector>

#include "worker.h"

namespace samebits {

class Gang {
 public:
  explicit Gang(Grid&);
  ~Gang();
  void run(void (*after)(void*), void* context);  // one gang after the other until none is left or the launch has failed
  void suspend(Worker&);                          // on a fiber of it: others run first; returns when it is its turn again
  void let_others(Worker&);                       // the same for one that polls, if there are others
  bool polls_known() const { return polls_known_; }
  double idle_since() const { return idle_since_; }  // when one of several blocks last got anywhere
  void* main() const { return main_; }
  bool several() const { return workers_.size() > 1; }
  void meet(Scope, const Worker&);  // ends the barrier if all threads that have not returned have come
  unsigned absent() const;          // blocks that have ended
  Worker& peer(const Worker&, unsigned rank) const;  // the block of that rank in the worker's cluster
  Worker* owner(const Worker&, uintptr_t address) const;  // of the worker's cluster: whose shared memory holds the address
  sigjmp_buf fault;

 private:
  bool run_next();
  bool open();                   // the next cluster or block of the launch joins; false: there is none
  bool may_open() const;
  bool over(size_t group) const;  // whether all of its blocks have ended
  void turned(Worker&);
  Worker* choose();
  Worker* choose_ready();
  void ended(Worker&);
  void stuck();
  void fail_all();
  std::pair<size_t, size_t> members(Scope, const Worker&) const;  // first and behind the last

  Grid& grid_;
  std::vector<std::unique_ptr<Worker>> workers_;  // groups of grid_.gang_blocks(), by cluster, then by rank
  void* main_ = nullptr;                          // where run_next goes on
  size_t running_ = 0;
  uint64_t random_ = 0;
  double idle_since_ = 0;
  bool gave_way_ = false;      // the block that ran last, since it polls
  bool polls_known_ = false;   // a block has given way since one ended
};

std::unique_ptr<Worker> take_worker();  // of those that are kept for the next launch
void keep_worker(std::unique_ptr<Worker>);

}  // namespace samebits
