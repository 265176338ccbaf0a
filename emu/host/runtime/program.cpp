// Whole programs that `samebits run` started: settings from the environment, reports and crashes on the way out.
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>

#include "check.h"
#include "device.h"

extern "C" {
void samebits_set_order(int, unsigned long long);
void samebits_set_check(int);
const char* samebits_last_error();
}

namespace samebits {

namespace {

const char* reports_path = nullptr;
double time_limit = 0;

void write_reports() {
  if (reports_path == nullptr) return;
  if (Check::on != nullptr && Check::on->leaks) Check::on->report_leaks();
  std::string reports = Check::on != nullptr ? Check::on->json() : "[]";
  FILE* file = fopen(reports_path, "w");
  if (file == nullptr) return;
  std::string said;
  for (const auto& note : notes) {
    if (note.load() != nullptr) said += (said.empty() ? "" : ", ") + quoted(note.load());
  }
  fprintf(file, "{\"reports\": %s,\n \"failure\": %s, \"decisions\": %llu, \"last\": %s, \"notes\": [%s]}\n", reports.c_str(), quoted(first_failure()).c_str(),
          (unsigned long long)shuffle.made, quoted(shuffle.last).c_str(), said.c_str());
  fclose(file);
  reports_path = nullptr;
  const char* path = getenv("SAMEBITS_RUN_TRACE");
  file = path != nullptr && Check::on != nullptr && Check::on->trace != nullptr ? fopen(path, "w") : nullptr;
  if (file == nullptr) return;
  fprintf(file, "%s\n", Check::on->trace_json().c_str());
  fclose(file);
}

// Of the calls that lead to a crash the innermost one in the program itself: it may crash in a library.
const void* pc_of_the_program(const void* crashed) {
  auto module = [](const void* address) {
    Dl_info info;
    return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
  };
  const void* program = module(reinterpret_cast<const void*>(getauxval(AT_PHDR)));
  if (module(crashed) == program) return crashed;
  void* calls[64];
  int count = backtrace(calls, 64);
  void** found = std::find_if(calls, calls + count, [&](void* pc) { return module(pc) == program; });
  return found != calls + count ? *found : crashed;
}

// A crash of host code, or the time limit: says where, leaves the reports behind.
void on_end(int signal, siginfo_t*, void* context) {
  ::signal(signal, SIG_DFL);
  const void* pc = static_cast<const char*>(pc_of(context)) + 1;
  if (signal == SIGALRM && Check::on != nullptr && Check::on->recent != nullptr) pc = Check::on->recent;  // it is in a hook
  auto place = resolve({signal == SIGALRM ? pc : pc_of_the_program(pc)})[0];
  Worker* worker = active_worker();
  if (place.second == 0 && worker != nullptr && worker->interrupted_at != nullptr) {  // it is on the way to another thread
    pc = static_cast<const char*>(worker->interrupted_at) + 1;
    place = resolve({pc})[0];
  }
  fflush(stdout);
  std::string where = place.second != 0 ? place.first + ":" + std::to_string(place.second) + ": " : "";
  char limit[64];
  snprintf(limit, sizeof limit, "time limit of %g s reached", time_limit);
  std::string what = signal == SIGALRM ? limit : strsignal(signal);
  if (worker != nullptr && worker->holds(stack_of(context))) {
    what += " in device code, " + worker->where(worker->running(stack_of(context)));
    if (Check::on != nullptr) Check::on->report("no progress", what, worker->running(stack_of(context)), Check::on->site_of(pc), nullptr);
  }
  fprintf(stderr, "samebits: %s%s\n", where.c_str(), what.c_str());
  write_reports();
  if (signal == SIGALRM) _exit(124);
  raise(signal);
}

// forward, reverse, shuffle:SEED[:WHAT[:FROM-TO]], first:WHAT:INDEX, last:WHAT:INDEX, WHAT being blocks, warps or lanes.
void set_order(const std::string& order) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= order.size(); at = std::min(order.find(':', at), order.size()) + 1) {
    parts.push_back(order.substr(at, std::min(order.find(':', at), order.size()) - at));
  }
  auto mixed = [&](const std::string& what) {
    auto has = [&](const char* name, Mixed bit) { return what.find(name) != std::string::npos ? bit : 0u; };
    return has("block", kBlocks) | has("warp", kWarps) | has("lane", kLanes);
  };
  auto number = [](const std::string& text) { return strtoull(text.c_str(), nullptr, 10); };
  if (parts[0] == "first" || parts[0] == "last") {
    prefer = {Mixed(mixed(parts[1])), parts[0] == "first", unsigned(number(parts[2]))};
    return samebits_set_order(int(Order::prefer), 0);
  }
  if (parts.size() > 2) shuffle.mixed = mixed(parts[2]);
  if (parts.size() > 3) shuffle.from = number(parts[3]), shuffle.to = number(parts[3].substr(parts[3].find('-') + 1));
  samebits_set_order(parts[0] == "reverse" ? 1 : parts[0] == "shuffle" ? 2 : 0, parts.size() > 1 ? number(parts[1]) : 0);
}

__attribute__((constructor)) void begin() {
  reports_path = getenv("SAMEBITS_RUN_REPORTS");
  if (reports_path == nullptr) return;
  const char* arch = getenv("SAMEBITS_RUN_ARCH");
  if (std::string wrong = arch != nullptr ? choose_arch(arch) : ""; !wrong.empty()) {
    fprintf(stderr, "samebits run: --arch: %s\n", wrong.c_str());
    _exit(2);
  }
  if (const char* order = getenv("SAMEBITS_RUN_ORDER")) set_order(order);
  if (getenv("SAMEBITS_RUN_CHECK") != nullptr) samebits_set_check(2);
  if (Check::on != nullptr && getenv("SAMEBITS_RUN_TRACE") != nullptr) Check::on->trace = new Trace;
  if (Check::on != nullptr) Check::on->leaks = getenv("SAMEBITS_RUN_LEAKS") != nullptr;
  static char stack[256 * 1024];
  stack_t alternative = {};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof stack;
  sigaltstack(&alternative, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = on_end;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM}) sigaction(signal, &action, nullptr);
  if (const char* limit = getenv("SAMEBITS_RUN_SECONDS")) {
    time_limit = atof(limit);
    itimerval timer = {};
    timer.it_value.tv_sec = time_t(time_limit);
    timer.it_value.tv_usec = suseconds_t((time_limit - double(timer.it_value.tv_sec)) * 1e6);
    if (time_limit > 0) setitimer(ITIMER_REAL, &timer, nullptr);
  }
  setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  atexit(write_reports);
}

}  // namespace

}  // namespace samebits
