// A grid's blocks over cores: one, more once it takes long.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "check.h"
#include "device.h"
#include "gang.h"

namespace samebits {

namespace {

std::atomic<int> g_workers{-1};

std::mutex pool_mutex;
std::vector<std::unique_ptr<Worker>>& pool() {
  static auto* workers = new std::vector<std::unique_ptr<Worker>>;  // never destroyed: threads may still use it at exit
  return *workers;
}

void* helper(void* grid) {
  Gang(*static_cast<Grid*>(grid)).run([](void*) {}, nullptr);
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
  void after_gang() {
    if (most_ < 2 || !threads_.empty()) return;
    ++done_;
    uint64_t gangs = grid_.blocks / grid_.gang_blocks(), left = gangs - std::min(gangs, grid_.next.load(std::memory_order_relaxed));
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

std::unique_ptr<Worker> take_worker() {
  std::lock_guard<std::mutex> lock(pool_mutex);
  if (pool().empty()) return std::make_unique<Worker>();
  std::unique_ptr<Worker> worker = std::move(pool().back());
  pool().pop_back();
  return worker;
}
void keep_worker(std::unique_ptr<Worker> worker) {
  std::lock_guard<std::mutex> lock(pool_mutex);
  pool().push_back(std::move(worker));
}

void run_grid(Grid& grid) {
  Helpers helpers(grid);
  Gang(grid).run([](void* all) { static_cast<Helpers*>(all)->after_gang(); }, &helpers);
  helpers.join();
}

}  // namespace samebits

extern "C" void samebits_set_workers(int count) { samebits::g_workers = count < 0 ? 0 : count; }
