// A grid's blocks over workers: one, more once it takes long, or one for each block of a cooperative launch.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "check.h"
#include "device.h"
#include "relay.h"

namespace samebits {

namespace {

std::atomic<int> g_workers{-1};

std::mutex pool_mutex;
std::vector<std::unique_ptr<Worker>>& pool() {
  static auto* workers = new std::vector<std::unique_ptr<Worker>>;  // never destroyed: threads may still use it at exit
  return *workers;
}

class PooledWorker {
 public:
  PooledWorker() {
    std::lock_guard<std::mutex> lock(pool_mutex);
    if (pool().empty()) {
      worker_ = std::make_unique<Worker>();
    } else {
      worker_ = std::move(pool().back());
      pool().pop_back();
    }
  }
  ~PooledWorker() {
    std::lock_guard<std::mutex> lock(pool_mutex);
    pool().push_back(std::move(worker_));
  }
  Worker& operator*() { return *worker_; }

 private:
  std::unique_ptr<Worker> worker_;
};

void* helper(void* grid) {
  PooledWorker worker;
  (*worker).run(*static_cast<Grid*>(grid), [](void*) {}, nullptr);
  return nullptr;
}

unsigned worker_count() {
  int count = g_workers.load();
  if (count < 0) {
    const char* text = getenv("SAMEBITS_WORKERS");
    count = text != nullptr ? std::max(0, atoi(text)) : 0;
  }
  if (count == 0) count = int(sysconf(_SC_NPROCESSORS_ONLN));
  return unsigned(std::min(std::max(count, 1), 256));
}

// Other cores help once a grid has shown that it takes longer than starting threads. In reverse and shuffled order a single worker
// keeps the interleaving of blocks reproducible.
class Helpers {
 public:
  explicit Helpers(Grid& grid) : grid_(grid), most_(grid.order == Order::forward && Check::on == nullptr ? worker_count() : 1), start_(now_ms()) {}
  void after_block() {
    if (most_ < 2 || !threads_.empty()) return;
    ++done_;
    uint64_t left = grid_.blocks - std::min(grid_.blocks, grid_.next.load(std::memory_order_relaxed));
    double elapsed = now_ms() - start_;
    if (left < 2 || elapsed < 0.5 || elapsed / double(done_) * double(left) < 1.0) return;
    for (unsigned i = 1; i < most_ && i <= left; ++i) {
      pthread_t thread;
      if (pthread_create(&thread, nullptr, helper, &grid_) != 0) break;
      threads_.push_back(thread);
    }
    if (threads_.empty()) most_ = 1;
  }
  void join() {
    for (pthread_t thread : threads_) pthread_join(thread, nullptr);
  }

 private:
  Grid& grid_;
  unsigned most_;
  double start_;
  uint64_t done_ = 0;
  std::vector<pthread_t> threads_;
};

}  // namespace

void run_grid(Grid& grid) {
  PooledWorker worker;
  Helpers helpers(grid);
  (*worker).run(grid, [](void* all) { static_cast<Helpers*>(all)->after_block(); }, &helpers);
  helpers.join();
}

namespace {

struct Runner {
  Grid* grid;
  Relay* relay;
  unsigned ticket;
  pthread_t thread;
};

void* run_cooperative_block(void* data) {
  Runner& runner = *static_cast<Runner*>(data);
  runner.relay->enter(runner.ticket);
  {
    PooledWorker worker;
    (*worker).relay = runner.relay;
    (*worker).ticket = runner.ticket;
    (*worker).run(*runner.grid, [](void*) {}, nullptr);
    (*worker).relay = nullptr;
  }
  runner.relay->leave(runner.ticket);
  return nullptr;
}

}  // namespace

void run_cooperative(Grid& grid) {
  Relay relay(grid, unsigned(grid.blocks));
  std::vector<Runner> runners(grid.blocks);
  for (unsigned i = 0; i < grid.blocks; ++i) {
    runners[i] = {&grid, &relay, i, {}};
    if (pthread_create(&runners[i].thread, nullptr, run_cooperative_block, &runners[i]) != 0) abort();
  }
  for (Runner& runner : runners) pthread_join(runner.thread, nullptr);
}

}  // namespace samebits

extern "C" void samebits_set_workers(int count) { samebits::g_workers = count < 0 ? 0 : count; }
