// SPDX-License-Identifier: Apache-2.0
#include "core/machine_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace lockstep {
namespace {

// A line "NAME:  1234 kB", in bytes.
int64_t meminfo_bytes(const std::string& meminfo, const std::string& name) {
  const size_t at = meminfo.find(name + ":");
  if (at == std::string::npos) return 0;
  std::istringstream line(meminfo.substr(at + name.size() + 1));
  int64_t kib = 0;
  line >> kib;
  return kib * 1024;
}

// "max" or a number of bytes; -1: no limit.
int64_t limit_of(const std::string& text) {
  std::istringstream stream(text);
  int64_t bytes = 0;
  return stream >> bytes ? bytes : -1;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int64_t machine_memory_of(const std::string& meminfo, const std::string& group_memory,
                          const std::string& group_swap) {
  const int64_t memory = meminfo_bytes(meminfo, "MemTotal");
  const int64_t swap = meminfo_bytes(meminfo, "SwapTotal");
  const int64_t limit = limit_of(group_memory), swap_limit = limit_of(group_swap);
  return (limit >= 0 ? std::min(memory, limit) : memory) +
         (swap_limit >= 0 ? std::min(swap, swap_limit) : swap);
}

int64_t machine_memory() {
  return machine_memory_of(text_of("/proc/meminfo"), text_of("/sys/fs/cgroup/memory.max"),
                           text_of("/sys/fs/cgroup/memory.swap.max"));
}

}  // namespace lockstep
