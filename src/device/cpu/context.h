// SPDX-License-Identifier: Apache-2.0
// Threads of the CPU backend. No arithmetic here: a task's result may depend on its index only, never on the
// thread that runs it, the number of threads or the order of completion.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "device/cpu/isa.h"

namespace lockstep::cpu {

// Aborts unless this thread rounds to nearest even and neither flushes results nor operands to zero.
void check_float_environment();

class Context {
 public:
  // threads >= 1: the calling thread and threads - 1 workers. Every worker checks its float environment at
  // start.
  Context(int threads, Isa isa);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int threads() const { return threads_; }
  Isa isa() const { return isa_; }

  // Calls task(i) once for every i in [0, count), in any order, on any thread; returns when all are done.
  // Tasks must not call parallel_for of the same context. What a task throws (no memory, say) is thrown here
  // once no thread is in a task any more; some tasks are then not called. One call at a time.
  void parallel_for(int64_t count, const std::function<void(int64_t)>& task) const;
  // Same over ranges: task(begin, end) for pieces of at most `grain` of [0, count).
  void parallel_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& task) const;

 private:
  struct Pool;
  int threads_;
  Isa isa_;
  std::unique_ptr<Pool> pool_;
};

}  // namespace lockstep::cpu
