// Threads that run on and on without a place where others could: they may poll plain or volatile memory. A clock interrupts them.
#include <errno.h>
#include <signal.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <condition_variable>

#include "device.h"
#include "gang.h"

#ifdef __linux__
#include <link.h>
#endif

namespace samebits {

namespace {
constexpr double kFirstMs = 20;                     // of a launch, without interruptions
constexpr long kTickNs = 1000000, kQuietNs = 5000000;  // between ticks, and while no launch lasts that long
// Ticks until a thread is taken for one that polls, and a block whose threads meet at warp operations; and then, where it is known to.
constexpr unsigned kThread = 10, kBlock = 500, kKnownThread = 1, kKnownBlock = 10;

struct Text {  // of the program or library that the kernels of this OS thread come from
  uintptr_t low, high;
  bool holds(const void* pc) const { return reinterpret_cast<uintptr_t>(pc) - low < high - low; }
};
thread_local Text text = {0, 0};
}  // namespace

// A signal's handler, on the stack of the thread, which goes on from here when it is its turn again. In the middle of the emulator's own code,
// or of a library's, that must wait until the next access that is watched, or the next tick.
void Worker::tick(Thread* thread, const void* pc) {
  if (thread != ticked_ || thread->linear != ticked_linear_ || generation != ticked_generation_) ticks_ = 0;
  ticked_ = thread;
  ticked_linear_ = thread->linear;
  ticked_generation_ = generation;
  ++ticks_;
  ++turn_ticks_;
  if (ticks_ < (polls_ != 0 ? kKnownThread : kThread) && !turn_is_over()) return;
  if (text.holds(pc)) {
    interrupted_at = pc;
    interrupt(thread);
  } else {
    due_ = true;
  }
}

bool Worker::turn_is_over() const { return turn_ticks_ >= (gang_->polls_known() ? kKnownBlock : kBlock); }

void Worker::interrupt(Thread* thread) {
  due_ = false;
  ticks_ = 0;
  polls_ = std::max<uint64_t>(polls_, 1);
  unsigned next = unsigned(pick_after(thread->linear));
  if (next <= thread->linear || turn_is_over()) {  // each thread that can has had a turn
    turn_ticks_ = 0;
    gang_->let_others(*this);
    next = unsigned(pick_after(thread->linear));
  }
  current_ = next / 32;
  go_to(thread, next);
}

#ifdef __linux__

namespace {

struct sigaction others = {};  // what the signal meant before: a process may hold a second emulator, for another library

void on_tick(int signal, siginfo_t* info, void* context) {
  Worker* worker = active_worker();
  if (worker == nullptr || !worker->holds(stack_of(context))) {
    if ((others.sa_flags & SA_SIGINFO) != 0 && others.sa_sigaction != nullptr) others.sa_sigaction(signal, info, context);
    return;
  }
  int error = errno;
  worker->tick(thread_of(stack_of(context)), pc_of(context));
  errno = error;
}

struct Running {  // an OS thread that runs blocks
  pthread_t thread;
  double since;
};
struct Ticker {
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<Running> running;
  bool there = false, waits = false;
};
Ticker& ticker = *new Ticker;  // never destroyed: it runs when the program ends

void* tick_on(void*) {
  std::unique_lock<std::mutex> lock(ticker.mutex);
  for (unsigned quiet = 0;;) {
    quiet = ticker.running.empty() ? quiet + 1 : 0;
    if (quiet > 200) {  // for a second
      ticker.waits = true;
      ticker.wake.wait(lock, [] { return !ticker.running.empty(); });
      ticker.waits = false;
    }
    bool any = false;
    for (const Running& r : ticker.running) {
      if (now_ms() - r.since < kFirstMs) continue;
      any = true;
      pthread_kill(r.thread, SIGURG);
    }
    lock.unlock();
    const timespec pause{0, any ? kTickNs : kQuietNs};
    nanosleep(&pause, nullptr);
    lock.lock();
  }
}

// Not in a debugger, where a step must stay with its thread.
bool start_ticker() {
  if (getenv("SAMEBITS_NO_CLOCK") != nullptr) return true;
  struct sigaction action = {};
  action.sa_sigaction = on_tick;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGURG, &action, &others);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's own threads
  pthread_t thread;
  if (pthread_create(&thread, nullptr, tick_on, nullptr) == 0) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return true;
}

int find_text(dl_phdr_info* module, size_t, void* code) {
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const auto& part = module->dlpi_phdr[i];
    Text found{module->dlpi_addr + part.p_vaddr, module->dlpi_addr + part.p_vaddr + part.p_memsz};
    if (part.p_type != PT_LOAD || !found.holds(code)) continue;
    text = found;
    return 1;
  }
  return 0;
}
}  // namespace

void start_clock(const Grid& grid) {
  void* code = reinterpret_cast<void*>(grid.run);
  if (!text.holds(code)) dl_iterate_phdr(find_text, code);
  std::lock_guard<std::mutex> lock(ticker.mutex);
  ticker.running.push_back({pthread_self(), now_ms()});
  if (!ticker.there) ticker.there = start_ticker();
  if (ticker.waits) ticker.wake.notify_one();
}
void stop_clock() {
  std::lock_guard<std::mutex> lock(ticker.mutex);
  auto mine = [](const Running& r) { return pthread_equal(r.thread, pthread_self()) != 0; };
  ticker.running.erase(std::find_if(ticker.running.begin(), ticker.running.end(), mine));
}

#else
void start_clock(const Grid&) {}
void stop_clock() {}
#endif

}  // namespace samebits
