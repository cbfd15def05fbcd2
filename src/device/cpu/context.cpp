// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/context.h"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace lockstep::cpu {

void check_float_environment() {
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000;
  constexpr unsigned kDenormalsAreZero = 0x0040;
  constexpr unsigned kRounding = 0x6000;  // 0: nearest even
  LOCKSTEP_CHECK((_mm_getcsr() & (kFlushToZero | kDenormalsAreZero | kRounding)) == 0,
                 "a library changed MXCSR (flush-to-zero or rounding mode); results would differ");
#else
  LOCKSTEP_CHECK(std::fegetround() == FE_TONEAREST);
#endif
  volatile float tiny = 0x1p-126F;
  volatile float half = 0.5F;
  volatile float subnormal = tiny * half;
  LOCKSTEP_CHECK(subnormal == 0x1p-127F, "subnormal numbers are flushed to zero in this thread");
}

struct Context::Pool {
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::vector<std::thread> workers;
  // Guarded by mutex; `next` is taken from without it.
  const std::function<void(int64_t)>* task = nullptr;
  int64_t count = 0;
  std::atomic<int64_t> next{0};
  uint64_t generation = 0;
  int busy = 0;
  std::exception_ptr thrown;  // the first
  bool stop = false;

  void drain(const std::function<void(int64_t)>& run, int64_t limit) noexcept {
    try {
      while (true) {
        const int64_t i = next.fetch_add(1, std::memory_order_relaxed);
        if (i >= limit) return;
        run(i);
      }
    } catch (...) {
      next.store(limit, std::memory_order_relaxed);
      const std::lock_guard<std::mutex> lock(mutex);
      if (thrown == nullptr) thrown = std::current_exception();
    }
  }

  void work() {
    check_float_environment();
    uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return stop || generation != seen; });
      if (stop) return;
      seen = generation;
      const std::function<void(int64_t)>* run = task;
      const int64_t limit = count;
      lock.unlock();
      drain(*run, limit);
      lock.lock();
      if (--busy == 0) done.notify_one();
    }
  }
};

Context::Context(int threads, Isa isa) : threads_(threads), isa_(isa), pool_(std::make_unique<Pool>()) {
  LOCKSTEP_CHECK(threads >= 1);
  check_float_environment();
  for (int i = 1; i < threads; ++i) pool_->workers.emplace_back([this] { pool_->work(); });
}

Context::~Context() {
  {
    const std::lock_guard<std::mutex> lock(pool_->mutex);
    pool_->stop = true;
  }
  pool_->wake.notify_all();
  for (std::thread& worker : pool_->workers) worker.join();
}

void Context::parallel_for(int64_t count, const std::function<void(int64_t)>& task) const {
  if (count <= 0) return;
  if (pool_->workers.empty() || count == 1) {
    for (int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(pool_->mutex);
    pool_->task = &task;
    pool_->count = count;
    pool_->next.store(0, std::memory_order_relaxed);
    pool_->busy = static_cast<int>(pool_->workers.size());
    ++pool_->generation;
  }
  pool_->wake.notify_all();
  pool_->drain(task, count);
  std::unique_lock<std::mutex> lock(pool_->mutex);
  pool_->done.wait(lock, [&] { return pool_->busy == 0; });
  if (pool_->thrown != nullptr) std::rethrow_exception(std::exchange(pool_->thrown, nullptr));
}

void Context::parallel_ranges(int64_t count, int64_t grain,
                              const std::function<void(int64_t, int64_t)>& task) const {
  const int64_t step = std::max<int64_t>(1, grain);
  parallel_for((count + step - 1) / step,
               [&](int64_t piece) { task(piece * step, std::min(count, (piece + 1) * step)); });
}

}  // namespace lockstep::cpu
