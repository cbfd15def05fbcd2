// SPDX-License-Identifier: Apache-2.0
#include "loop/environment.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "core/sha256.h"
#include "ledger/json_text.h"

namespace lockstep::loop {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

std::string environment_json(const MachineConfig& machine, const Start& start,
                             const std::string& checkpoint_folder, const std::string& ledger_sha256) {
  utsname system{};
  ::uname(&system);
  const Result<std::string> program = sha256_file("/proc/self/exe");
  const rollout::EngineConfig& engine = machine.engine;
  ledger::JsonObject out;
  out.add("time", utc_now())
      .add("host", system.nodename)
      .add("kernel", fmt::format("{} {} {}", system.sysname, system.release, system.machine))
      .add("processor", processor_name())
      .add("compiler", __VERSION__)
      .add("openssl", OpenSSL_version(OPENSSL_VERSION))
      .add("fmt", FMT_VERSION)
      .add("program_sha256", program.ok() ? program.value() : "")
      .add("pid", static_cast<int64_t>(::getpid()))
      .add("threads", start.context->threads())
      .add("isa", cpu::isa_name(start.context->isa()))
      .add("device", start.device.choice.device)
      .add("max_tokens_per_gpu", machine.max_tokens_per_gpu)
      .add("recompute_activations", machine.recompute_activations)
      .add("max_running_requests", engine.max_running_requests)
      .add("admission",
           engine.admission_shuffle ? fmt::format("shuffle:{}", *engine.admission_shuffle) : "fifo")
      .add("prefix_cache", engine.prefix_cache)
      .add("chunked_prefill_size", engine.chunked_prefill_size)
      .add("max_total_tokens", engine.max_total_tokens);
  if (start.device.gpu) {
    const model::GpuInfo& gpu = *start.device.gpu;
    out.add("gpu", gpu.name)
        .add("gpu_index", static_cast<int64_t>(gpu.index))
        .add("gpu_sms", static_cast<int64_t>(machine.device.sms > 0 ? machine.device.sms : gpu.sms))
        .add("compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor))
        .add("cuda_driver", gpu.driver)
        .add("cuda_runtime", gpu.runtime);
  }
  out.add("checkpoint", checkpoint_folder).add("ledger_sha256", ledger_sha256);
  return out.text();
}

}  // namespace lockstep::loop
