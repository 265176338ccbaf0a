// What threads wait for beside barriers of the block: copies under way, mbarriers, numbered barriers.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace samebits {

struct AsyncCopy {
  void* to;
  const void* from;
  unsigned bytes, from_bytes;
  const void* pc;
  bool bulk = false, read = false;  // whether its source has been read
};
struct Batch {  // copies that come together: a group waits for them, mbarriers, or both
  std::vector<AsyncCopy> copies;
  unsigned issuer;
  bool come = false;
  unsigned number = 0;  // one more than that of the first mbarrier that hears of them
};
using Batches = std::vector<std::shared_ptr<Batch>>;
struct CopyGroups {  // of one thread: what it has issued since its last commit, and what it has committed
  std::vector<AsyncCopy> fresh;  // and no mbarrier has been told of
  Batches open;
  std::deque<Batches> groups;

  void close(unsigned issuer) {
    if (fresh.empty()) return;
    open.push_back(std::make_shared<Batch>(Batch{std::move(fresh), issuer}));
    fresh.clear();
  }
  void commit(unsigned issuer) {
    close(issuer);
    groups.push_back(std::move(open));
    open.clear();
  }
};
struct AsyncQueue {
  CopyGroups plain, bulk;
};

struct Here {  // a place in the source, and what an access there does
  const char* file;
  int line;
  const void* pc;
  unsigned kind;
};

class Worker;
struct Flight {  // copies under way of which an mbarrier will hear
  Batches batches;
  bool bulk;           // it counts their bytes, else one arrival
  bool asked = false;  // whether they have come
};
struct Mbarrier {
  Worker* owner;
  uintptr_t address;
  unsigned expected, pending;  // arrivals: of every phase, of this one still to come
  unsigned number;             // of the block's
  unsigned phase = 0;
  long long bytes = 0;         // that are to come in this phase
  std::vector<Flight> flights;
  std::vector<unsigned> waiters;
  void end_phase_if_complete();
  std::string text() const;  // why it does not end
};
struct Named {  // a numbered barrier of the block
  unsigned count = 0;  // threads that it is for; 0: all
  bool aligned = false;
  unsigned round = 0;
  std::vector<unsigned> waiters;
  uint32_t lanes[32] = {};  // that have come, by warp
  Here first{};
};

}  // namespace samebits
