// Test-only: lockstep/recorder.h in the traps of a process's end, without any of our other code.
//
//   exit_program TRACE STEPS static   a static recorder, exit() in the middle of a step, with an
//                                     atexit function that was registered while it was made
//   exit_program TRACE STEPS left     never destroyed: _Exit()
//   exit_program TRACE STEPS killed   SIGKILL by itself in the middle of a step
//   exit_program TRACE STEPS full     files may not grow beyond a few bytes; says the error
//   exit_program TRACE STEPS flushed  after every step
//   exit_program TRACE STEPS durable  the same, synced to the disk
//   exit_program TRACE STEPS durable_large  a shard for each step
//   exit_program TRACE STEPS finished
//
// Each value lies in memory of its own that is overwritten and freed at once. Step s holds "a" and
// "b" of width 7 with s * 100 + i, and s * 100 + 50 + i.
#include <csignal>
#include <cstdlib>

#include <lockstep/recorder.h>
#include <sys/resource.h>

namespace {

lockstep::TraceInfo info() {
  lockstep::TraceInfo out;
  out.engine = "exit_program";
  return out;
}

void record(lockstep::TraceRecorder& trace, const char* name, int first) {
  auto* row = new float[7];
  for (int i = 0; i < 7; ++i) row[i] = static_cast<float>(first + i);
  trace.record(name, row, 7);
  for (int i = 0; i < 7; ++i) row[i] = -1;
  delete[] row;
}

void run(lockstep::TraceRecorder& trace, int steps, bool flush = false) {
  for (int s = 0; s < steps; ++s) {
    trace.begin_step(s, 1);
    record(trace, "a", s * 100);
    record(trace, "b", s * 100 + 50);
    trace.end_step();
    if (flush) trace.flush();
  }
}

struct Engine {
  explicit Engine(const std::string& folder) : trace(folder, info()) {
    std::atexit([] { std::fputs("leaving\n", stderr); });
  }
  lockstep::TraceRecorder trace;
};

Engine& engine(const std::string& folder) {
  static Engine instance(folder);
  return instance;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string folder = argv[1];
  const int steps = std::atoi(argv[2]);
  const std::string mode = argv[3];
  if (mode == "static") {
    lockstep::TraceRecorder& trace = engine(folder).trace;
    run(trace, steps);
    trace.begin_step(steps, 1);
    record(trace, "a", 0);
    std::exit(0);
  }
  lockstep::TraceInfo what = info();
  what.durable = mode.rfind("durable", 0) == 0;
  if (mode == "durable_large") what.memory_bytes = 1;
  auto* trace = new lockstep::TraceRecorder(folder, what);
  if (mode == "full") {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit little{100, 100};
    setrlimit(RLIMIT_FSIZE, &little);
  }
  run(*trace, steps, mode == "flushed" || mode == "durable");
  if (mode == "killed") {
    trace->flush();
    trace->begin_step(steps, 1);
    record(*trace, "a", 0);
    std::raise(SIGKILL);
  }
  if (mode == "left") {
    trace->flush();
    std::_Exit(0);
  }
  const bool finished = trace->finish();
  if (!finished) std::puts(trace->error().c_str());
  delete trace;
  return finished ? 0 : 1;
}
