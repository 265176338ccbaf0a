// Launches: configuration, limits, blocks over workers, errors.
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "device.h"
#include "worker.h"

namespace samebits {

namespace {

struct Config {
  dim3 grid, block;
  size_t dynamic_bytes;
  const char* file;
  int line;
};

struct HostThread {  // what CUDA keeps per host thread
  cudaError_t last = cudaSuccess;
  std::string text;
  std::vector<Config> configs;  // pushed by configure(), popped by the kernel that is called next
  std::vector<size_t> open;
  Kernel** query = nullptr;
};
HostThread& host() {
  thread_local HostThread state;
  return state;
}

std::atomic<int> g_order{0};
std::atomic<uint64_t> g_seed{0};
std::atomic<int> g_workers{-1};
std::atomic<int> g_poison{0xFF};
std::atomic<double> g_patience{10};

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
  explicit Helpers(Grid& grid) : grid_(grid), most_(grid.order == Order::forward ? worker_count() : 1), start_(now_ms()) {}
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

void run_grid(Grid& grid) {
  PooledWorker worker;
  Helpers helpers(grid);
  (*worker).run(grid, [](void* all) { static_cast<Helpers*>(all)->after_block(); }, &helpers);
  helpers.join();
}

std::string shape(dim3 d) { return coordinates(d.x, d.y, d.z); }

// The limits of the architecture. For all of them an H200 with toolkit 13.0 returns cudaErrorInvalidValue (tests/emulator_programs/
// limits.cu); older toolkits said cudaErrorInvalidConfiguration of grids and blocks.
cudaError_t check(const Kernel& kernel, const Config& c, std::string* text) {
  const Arch& arch = current_arch();
  uint64_t threads = uint64_t(c.block.x) * c.block.y * c.block.z;
  if (threads == 0) {
    *text = "empty block " + shape(c.block);
    return cudaErrorInvalidValue;
  }
  if (c.block.x > 1024 || c.block.y > 1024 || c.block.z > 64 || threads > 1024) {
    *text = "block " + shape(c.block) + " is beyond (1024, 1024, 64) or has more than 1024 threads";
    return cudaErrorInvalidValue;
  }
  if (c.grid.x == 0 || c.grid.y == 0 || c.grid.z == 0) {
    *text = "empty grid " + shape(c.grid);
    return cudaErrorInvalidValue;
  }
  if (c.grid.x > unsigned(INT_MAX) || c.grid.y > 65535 || c.grid.z > 65535) {
    *text = "grid " + shape(c.grid) + " is beyond (2147483647, 65535, 65535)";
    return cudaErrorInvalidValue;
  }
  if (kernel.max_threads != 0 && threads > kernel.max_threads) {
    *text = std::to_string(threads) + " threads exceed __launch_bounds__(" + std::to_string(kernel.max_threads) + ")";
    return cudaErrorInvalidValue;
  }
  size_t limit = shared_limit(kernel) - std::min<size_t>(shared_limit(kernel), kernel.static_bytes);
  if (kernel.max_dynamic_bytes >= 0) limit = std::min(limit, size_t(kernel.max_dynamic_bytes));
  if (c.dynamic_bytes > limit) {
    *text = std::to_string(c.dynamic_bytes) + " bytes of dynamic shared memory, " + std::to_string(kernel.static_bytes) +
            " static: the limit is " + std::to_string(limit) +
            (kernel.max_dynamic_bytes < 0 ? " without cudaFuncAttributeMaxDynamicSharedMemorySize" : " as set or of " + std::string(arch.name));
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

}  // namespace

double now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) * 1e3 + double(t.tv_nsec) * 1e-6;
}

// Shared memory that static and dynamic variables may take together.
size_t shared_limit(const Kernel& kernel) {
  return kernel.max_dynamic_bytes < 0 ? 48 * 1024 : std::max<size_t>(48 * 1024, current_arch().shared_optin);
}

cudaError_t set_error(cudaError_t code, std::string text) {
  host().last = code;
  host().text = std::move(text);
  return code;
}

void configure(dim3 grid, dim3 block, size_t dynamic_bytes, cudaStream_t, const char* file, int line) {
  if (active_worker() != nullptr) trap("a launch from device code, which is not modelled");
  HostThread& h = host();
  h.open.push_back(h.configs.size());
  h.configs.push_back({grid, block, dynamic_bytes, file, line});
}

void launched() {
  HostThread& h = host();
  size_t depth = h.open.back();
  h.open.pop_back();
  if (h.configs.size() <= depth) return;
  Config c = h.configs[depth];
  h.configs.resize(depth);
  set_error(cudaErrorInvalidDeviceFunction, "the launch at " + site(c.file, c.line) + " called a function that is not a __global__ function");
}

bool enter(Kernel* kernel) {
  HostThread& h = host();
  if (h.query == nullptr) return true;
  *h.query = kernel;
  return false;
}

// Asks a function which kernel it is: its first statement answers before anything looks at the arguments, which are missing here.
Kernel* kernel_of(const void* function) {
  Kernel* found = nullptr;
  HostThread& h = host();
  h.query = &found;
  reinterpret_cast<void (*)()>(const_cast<void*>(function))();
  h.query = nullptr;
  return found;
}

void launch_closure(Kernel* kernel, void (*run)(void*), void* closure) {
  if (active_worker() != nullptr) trap("a __global__ function was called from device code");
  HostThread& h = host();
  if (h.configs.empty()) {
    set_error(cudaErrorInvalidConfiguration, std::string("kernel ") + kernel->name + " (" + site(kernel->file, kernel->line) +
                                                 ") was called without <<<...>>>");
    return;
  }
  Config c = h.configs.back();
  h.configs.pop_back();
  std::string text;
  cudaError_t code = check(*kernel, c, &text);
  if (code == cudaSuccess) {
    Grid grid;
    grid.kernel = kernel;
    grid.run = run;
    grid.closure = closure;
    grid.grid = c.grid;
    grid.block = c.block;
    grid.threads = c.block.x * c.block.y * c.block.z;
    grid.dynamic_bytes = c.dynamic_bytes;
    grid.shared_limit = shared_limit(*kernel);
    grid.order = Order(g_order.load());
    grid.seed = g_seed.load();
    grid.poison = g_poison.load();
    grid.patience_ms = g_patience.load() * 1e3;
    grid.blocks = uint64_t(c.grid.x) * c.grid.y * c.grid.z;
    catch_faults();
    run_grid(grid);
    release_faults();
    if (grid.code == 0) return;
    code = cudaError_t(grid.code);
    text = std::move(grid.text);
  }
  set_error(code, std::string("kernel ") + kernel->name + " (" + site(kernel->file, kernel->line) + "), launched at " +
                      site(c.file, c.line) + ": " + text);
}

cudaError_t execution_error() {
  switch (host().last) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure: return host().last;
    default: return cudaSuccess;
  }
}

int poison_byte() { return g_poison.load() & 0xFF; }

}  // namespace samebits

namespace samebits_api {
cudaError_t cudaGetLastError() {
  cudaError_t code = samebits::host().last;
  samebits::host().last = cudaSuccess;
  return code;
}
cudaError_t cudaPeekAtLastError() { return samebits::host().last; }
}  // namespace samebits_api

extern "C" {
const char* samebits_last_error() { return samebits::host().text.c_str(); }
void samebits_clear_error() { samebits::set_error(cudaSuccess, ""); }
void samebits_set_order(int mode, unsigned long long seed) {
  samebits::g_order = mode < 0 || mode > 2 ? 0 : mode;
  samebits::g_seed = seed;
}
void samebits_set_workers(int count) { samebits::g_workers = count < 0 ? 0 : count; }
void samebits_set_patience(double seconds) { samebits::g_patience = seconds; }
void samebits_set_poison(int byte) { samebits::g_poison = byte & 0xFF; }
}
