// SPDX-License-Identifier: Apache-2.0
#include "rollout/engine.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "core/check.h"
#include "numerics/constants.h"

namespace lockstep::rollout {
namespace {

constexpr int64_t kPage = numerics::kKeyBlock;

int64_t pages_for(int64_t tokens) {
  return (tokens + kPage - 1) / kPage;
}

}  // namespace

Status check_cache(const EngineConfig& config, int64_t tokens) {
  if (config.max_total_tokens <= 0) return ok_status();
  // A request alone needs its own pages and those of the prefix it copies the last page from.
  const int64_t needed = pages_for(tokens) + (config.prefix_cache ? 1 : 0);
  if (needed <= pages_for(config.max_total_tokens)) return ok_status();
  return invalid(
      "--max-total-tokens {}: one request of {} tokens needs {} pages of {} tokens; give at least {}",
      config.max_total_tokens, tokens, needed, kPage, needed * kPage);
}

// The keys and values of a prompt but its last token, computed once for all samples of the prompt.
struct Engine::Prefix {
  std::vector<int32_t> pages;
  bool ready = false;
  int64_t waiting = 0;  // requests of the prompt not yet admitted
};

struct Engine::Sequence {
  int64_t request = -1;         // -1: fills a prefix, draws nothing
  Prefix* prefix = nullptr;     // the prefix it fills, or waits for
  bool waits = false;           // for prefix->ready
  std::vector<int32_t> tokens;  // prompt and what was drawn
  int64_t computed = 0;         // positions whose keys and values are in pages
  std::vector<int32_t> pages;
  int64_t scheduled = 0;  // rows of this step
};

// State of one generate() call.
struct Engine::Run {
  Engine& engine;
  const cpu::Context& context;
  const std::vector<Request>& requests;
  const GenerationSettings& settings;
  std::vector<Completion> completions;
  std::vector<std::string> tails;                  // per request: bytes that may begin a stop string
  std::deque<int64_t> queue;                       // requests not admitted
  std::vector<std::unique_ptr<Sequence>> running;  // in order of admission
  std::map<std::pair<uint64_t, std::vector<int32_t>>, Prefix> prefixes;
  int64_t finished = 0;
  ops::SamplingSettings sampling;

  const model::ModelConfig& config() const { return engine.model_.config(); }

  Status start();
  int64_t expected_pages() const;
  Status check_request(int64_t index, int64_t longest_new) const;
  void admit();
  void admit_one(int64_t request);
  Prefix* prefix_of(const Request& request);
  void drop_unused_prefixes(bool also_waiting);
  void release(Sequence& sequence);
  void preempt_youngest();
  bool ensure_pages(Sequence& sequence, int64_t positions);
  bool attach_prefix(Sequence& sequence);
  void schedule();
  int64_t plan_steps();
  Status step(int64_t n);
  Status take(const std::vector<Sequence*>& drawing, const model::DrawnToken* drawn);
  bool ends(Sequence& sequence, int32_t token, Completion& completion);
};

Status Engine::Run::check_request(int64_t index, int64_t longest_new) const {
  const Request& request = requests[static_cast<size_t>(index)];
  if (request.prompt.empty()) return invalid("prompt {} is empty; give it at least one token", index);
  for (const int32_t id : request.prompt) {
    if (id < 0 || id >= config().vocab) {
      return invalid("prompt {}: token id {} is outside the vocabulary of {}", index, id, config().vocab);
    }
  }
  const int64_t total = static_cast<int64_t>(request.prompt.size()) + longest_new;
  if (total > config().max_positions) {
    return invalid(
        "prompt {}: {} tokens + {} new ones exceed max_position_embeddings {}; shorten the prompt or the "
        "response",
        index, request.prompt.size(), longest_new, config().max_positions);
  }
  return check_cache(engine.config_, total);
}

// Of everything that runs at once, at its longest.
int64_t Engine::Run::expected_pages() const {
  size_t longest = 0;
  for (const Request& request : requests) longest = std::max(longest, request.prompt.size());
  const int64_t pages = pages_for(static_cast<int64_t>(longest) + settings.sampling.max_new_tokens) + 1;
  const int64_t all =
      pages * std::min(static_cast<int64_t>(requests.size()), engine.config_.max_running_requests);
  return engine.pool_.capacity() > 0 ? std::min(all, engine.pool_.capacity()) : all;
}

Status Engine::Run::start() {
  const SamplingConfig& s = settings.sampling;
  sampling = {s.temperature, s.top_p, s.top_k, settings.sampleable};
  LOCKSTEP_RETURN_IF_ERROR(ops::check_sampling(sampling, config().vocab));
  for (size_t i = 0; i < requests.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(check_request(static_cast<int64_t>(i), s.max_new_tokens));
  }
  completions.resize(requests.size());
  tails.resize(requests.size());
  std::vector<int64_t> order(requests.size());
  std::iota(order.begin(), order.end(), 0);
  if (engine.config_.admission_shuffle) {
    for (size_t i = order.size(); i > 1; --i) {
      const uint64_t bits =
          numerics::draw(*engine.config_.admission_shuffle, numerics::Purpose::kShuffle, i, 0, 0);
      std::swap(order[i - 1], order[bits % i]);
    }
  }
  queue.assign(order.begin(), order.end());
  engine.decoder_->reserve_pages(expected_pages());
  if (s.max_new_tokens == 0) {
    finished = static_cast<int64_t>(queue.size());
    queue.clear();
  }
  if (engine.config_.prefix_cache) {
    for (const int64_t i : order) {
      if (Prefix* prefix = prefix_of(requests[static_cast<size_t>(i)])) ++prefix->waiting;
    }
  }
  return ok_status();
}

// Null for a prompt of one token: nothing to share.
Engine::Prefix* Engine::Run::prefix_of(const Request& request) {
  if (!engine.config_.prefix_cache || request.prompt.size() < 2) return nullptr;
  return &prefixes[{request.ordinal, request.prompt}];
}

void Engine::Run::admit() {
  while (!queue.empty() &&
         static_cast<int64_t>(running.size()) < std::max<int64_t>(1, engine.config_.max_running_requests)) {
    const int64_t capacity = engine.pool_.capacity();
    // Under a limit, admit only what can make progress: a page for it and one of slack for each running
    // sequence.
    if (capacity > 0 && !running.empty() &&
        engine.pool_.used() + static_cast<int64_t>(running.size()) + 2 > capacity) {
      return;
    }
    const int64_t request = queue.front();
    queue.pop_front();
    admit_one(request);
  }
}

void Engine::Run::admit_one(int64_t request) {
  const Request& r = requests[static_cast<size_t>(request)];
  auto sequence = std::make_unique<Sequence>();
  sequence->request = request;
  sequence->tokens = r.prompt;
  const Completion& done = completions[static_cast<size_t>(request)];  // not empty after a preemption
  sequence->tokens.insert(sequence->tokens.end(), done.tokens.begin(), done.tokens.end());
  if (Prefix* prefix = prefix_of(r)) {
    --prefix->waiting;
    sequence->prefix = prefix;
    sequence->waits = true;
    const bool filling = std::any_of(running.begin(), running.end(), [&](const auto& other) {
      return other->request < 0 && other->prefix == prefix;
    });
    if (!prefix->ready && !filling) {
      auto fill = std::make_unique<Sequence>();
      fill->prefix = prefix;
      fill->tokens.assign(r.prompt.begin(), r.prompt.end() - 1);
      running.push_back(std::move(fill));
    }
  }
  running.push_back(std::move(sequence));
}

void Engine::Run::release(Sequence& sequence) {
  for (const int32_t page : sequence.pages) engine.pool_.release(page);
  sequence.pages.clear();
  sequence.computed = 0;
}

// Frees prefixes nobody waits for; under pressure (also_waiting) those too that only queued requests wait
// for: they are filled again later.
void Engine::Run::drop_unused_prefixes(bool also_waiting) {
  for (auto it = prefixes.begin(); it != prefixes.end();) {
    Prefix& prefix = it->second;
    const bool held =
        std::any_of(running.begin(), running.end(), [&](const auto& s) { return s->prefix == &prefix; });
    if (held || (prefix.waiting > 0 && !also_waiting)) {
      ++it;
      continue;
    }
    for (const int32_t page : prefix.pages) engine.pool_.release(page);
    prefix.pages.clear();
    prefix.ready = false;
    it = prefix.waiting > 0 ? std::next(it) : prefixes.erase(it);
  }
}

// Gives up the newest sequence: its pages are freed and it is computed again later, to the same bits.
void Engine::Run::preempt_youngest() {
  std::unique_ptr<Sequence> victim = std::move(running.back());
  running.pop_back();
  release(*victim);
  ++engine.stats_.preemptions;
  if (victim->request >= 0) {
    queue.push_front(victim->request);
    if (Prefix* prefix = prefix_of(requests[static_cast<size_t>(victim->request)])) ++prefix->waiting;
    return;
  }
  // A prefix that was being filled: those that wait for it go back too.
  for (size_t i = running.size(); i-- > 0;) {
    if (running[i]->prefix == victim->prefix && running[i]->waits) {
      queue.push_front(running[i]->request);
      ++victim->prefix->waiting;
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

bool Engine::Run::ensure_pages(Sequence& sequence, int64_t positions) {
  while (static_cast<int64_t>(sequence.pages.size()) < pages_for(positions)) {
    const int32_t page = engine.pool_.allocate();
    if (page < 0) return false;
    sequence.pages.push_back(page);
  }
  return true;
}

// Shares the whole pages of the prefix and copies the last one if it is partly filled.
bool Engine::Run::attach_prefix(Sequence& sequence) {
  const Request& request = requests[static_cast<size_t>(sequence.request)];
  const int64_t length = static_cast<int64_t>(request.prompt.size()) - 1;
  const int64_t whole = length / kPage;
  int32_t copy = -1;
  if (length % kPage != 0) {
    copy = engine.pool_.clone(sequence.prefix->pages[static_cast<size_t>(whole)]);
    if (copy < 0) return false;
  }
  for (int64_t i = 0; i < whole; ++i) {
    engine.pool_.share(sequence.prefix->pages[static_cast<size_t>(i)]);
    sequence.pages.push_back(sequence.prefix->pages[static_cast<size_t>(i)]);
  }
  if (copy >= 0) sequence.pages.push_back(copy);
  sequence.computed = length;
  sequence.waits = false;
  sequence.prefix = nullptr;
  engine.stats_.cached_tokens += length;
  return true;
}

// Chooses this step's rows: every sequence with one token to go, and prompt chunks up to the limit.
void Engine::Run::schedule() {
  for (auto& sequence : running) sequence->scheduled = 0;
  int64_t budget = std::max<int64_t>(1, engine.config_.chunked_prefill_size);
  for (size_t i = 0; i < running.size(); ++i) {
    Sequence& sequence = *running[i];
    while (true) {
      bool fits = true;
      if (sequence.waits && sequence.prefix->ready) fits = attach_prefix(sequence);
      if (fits && !sequence.waits) {
        const int64_t pending = static_cast<int64_t>(sequence.tokens.size()) - sequence.computed;
        const int64_t rows = pending == 1 ? 1 : std::min(pending, budget);
        fits = ensure_pages(sequence, sequence.computed + rows);
        if (fits) {
          sequence.scheduled = rows;
          if (pending > 1) budget -= rows;
        }
      }
      if (fits) break;
      drop_unused_prefixes(false);
      const int64_t before = engine.pool_.used();
      if (before < engine.pool_.capacity()) continue;
      drop_unused_prefixes(true);
      if (engine.pool_.used() < before) continue;
      LOCKSTEP_CHECK(running.size() > 1, "the cache is too small for one sequence");
      const bool itself = i + 1 == running.size();
      preempt_youngest();
      if (itself || i >= running.size() || running[i].get() != &sequence) return;
    }
  }
}

bool Engine::Run::ends(Sequence& sequence, int32_t token, Completion& completion) {
  const auto contains = [token](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (contains(settings.end_ids) || contains(settings.sampling.stop_token_ids)) {
    completion.finish = FinishReason::kStop;
    return true;
  }
  if (!settings.sampling.stop.empty()) {
    size_t longest = 0;
    const std::string bytes = settings.token_bytes(token);
    std::string& tail = tails[static_cast<size_t>(sequence.request)];
    tail += bytes;
    for (const std::string& stop : settings.sampling.stop) {
      longest = std::max(longest, stop.size());
      if (tail.find(stop) != std::string::npos) {
        completion.finish = FinishReason::kStop;
        return true;
      }
    }
    if (tail.size() > longest) tail.erase(0, tail.size() - longest);
  }
  if (static_cast<int64_t>(completion.tokens.size()) >= settings.sampling.max_new_tokens) {
    completion.finish = FinishReason::kLength;
    return true;
  }
  return false;
}

// How many steps follow each other before the scheduler is needed: 1, or more where every sequence draws a
// token, none is waiting, no length ends and the pool has the pages, which are then reserved.
int64_t Engine::Run::plan_steps() {
  int64_t n =
      engine.config_.decode_steps > 0 ? engine.config_.decode_steps : engine.decoder_->preferred_steps();
  if (!queue.empty()) return 1;
  for (const auto& sequence : running) {
    const bool draws = sequence->request >= 0 && sequence->scheduled == 1 &&
                       sequence->computed + 1 == static_cast<int64_t>(sequence->tokens.size());
    if (!draws) return 1;
    const Completion& completion = completions[static_cast<size_t>(sequence->request)];
    n = std::min(n, settings.sampling.max_new_tokens - static_cast<int64_t>(completion.tokens.size()));
  }
  for (; n > 1; n /= 2) {
    int64_t needed = 0;
    for (const auto& sequence : running)
      needed += std::max<int64_t>(
          0, pages_for(sequence->computed + n) - static_cast<int64_t>(sequence->pages.size()));
    const int64_t capacity = engine.pool_.capacity();
    if (capacity > 0 && engine.pool_.used() + needed > capacity) continue;
    for (const auto& sequence : running) LOCKSTEP_CHECK(ensure_pages(*sequence, sequence->computed + n));
    return n;
  }
  return 1;
}

// Appends the tokens of one step, of the sequences that have not ended, and ends what is finished.
Status Engine::Run::take(const std::vector<Sequence*>& drawing, const model::DrawnToken* drawn) {
  for (size_t i = 0; i < drawing.size(); ++i) {
    if (drawing[i]->request >= 0 && drawn[i].token < 0) {
      return stopped(
          "sampling request {} at position {}: a logit is NaN or infinite; the weights have diverged",
          drawing[i]->request, drawing[i]->tokens.size());
    }
  }
  for (size_t i = 0; i < drawing.size(); ++i) {
    Sequence& sequence = *drawing[i];
    if (sequence.request < 0) continue;
    Completion& completion = completions[static_cast<size_t>(sequence.request)];
    completion.tokens.push_back(drawn[i].token);
    completion.log_probs.push_back(drawn[i].log_prob);
    sequence.tokens.push_back(drawn[i].token);
    sequence.computed = static_cast<int64_t>(sequence.tokens.size()) - 1;
    ++engine.stats_.generated_tokens;
    if (ends(sequence, drawn[i].token, completion)) {
      release(sequence);
      sequence.request = -2;  // finished: removed after the step
      ++finished;
    }
  }
  return ok_status();
}

Status Engine::Run::step(int64_t n) {
  model::DecodeBatch batch;
  std::vector<Sequence*> active, drawing;
  for (auto& entry : running) {
    Sequence& sequence = *entry;
    if (sequence.scheduled == 0) continue;
    const int64_t first = static_cast<int64_t>(batch.ids.size());
    const int64_t end = sequence.computed + sequence.scheduled;
    for (int64_t p = sequence.computed; p < end; ++p) {
      batch.ids.push_back(sequence.tokens[static_cast<size_t>(p)]);
      batch.positions.push_back(static_cast<int32_t>(p));
    }
    const auto pages = sequence.pages.begin();
    batch.runs.push_back(
        {first, sequence.scheduled, sequence.computed, {pages, pages + pages_for(end + n - 1)}});
    active.push_back(&sequence);
    if (sequence.request >= 0 && end == static_cast<int64_t>(sequence.tokens.size())) {
      const Request& request = requests[static_cast<size_t>(sequence.request)];
      drawing.push_back(&sequence);
      batch.draws.push_back({static_cast<int64_t>(batch.ids.size()) - 1, settings.seed, settings.purpose,
                             request.ordinal, request.sample_index,
                             static_cast<uint32_t>(sequence.tokens.size())});
    }
    if (sequence.scheduled > 1 || sequence.request < 0) engine.stats_.prefill_tokens += sequence.scheduled;
  }
  LOCKSTEP_CHECK(!batch.ids.empty(), "the scheduler made no progress");
  // Rows that all draw: the decoder's short way, whatever n.
  const bool draws_all = drawing.size() == batch.ids.size();
  std::vector<model::DrawnToken> drawn;
  LOCKSTEP_RETURN_IF_ERROR(draws_all ? engine.decoder_->steps(context, batch, n, sampling, &drawn)
                                     : engine.decoder_->step(context, batch, sampling, &drawn));
  for (Sequence* sequence : active) {
    sequence->computed += sequence->scheduled;
    const bool filled =
        sequence->request < 0 && sequence->computed == static_cast<int64_t>(sequence->tokens.size());
    if (filled) {
      sequence->prefix->pages = std::move(sequence->pages);
      sequence->pages.clear();
      sequence->prefix->ready = true;
      sequence->request = -2;
    }
  }
  engine.stats_.steps += draws_all ? static_cast<int64_t>(drawn.size() / drawing.size()) : 1;
  for (size_t first = 0; first < drawn.size(); first += drawing.size())
    LOCKSTEP_RETURN_IF_ERROR(take(drawing, drawn.data() + first));
  running.erase(
      std::remove_if(running.begin(), running.end(), [](const auto& s) { return s->request == -2; }),
      running.end());
  drop_unused_prefixes(false);
  return ok_status();
}

Engine::Engine(const model::Model& model, const EngineConfig& config)
    : model_(model),
      config_(config),
      decoder_(model.make_decoder()),
      pool_(decoder_.get(), pages_for(config.max_total_tokens)) {}

Result<std::vector<Completion>> Engine::generate(const cpu::Context& context,
                                                 const std::vector<Request>& requests,
                                                 const GenerationSettings& settings,
                                                 const std::function<void(const Progress&)>& progress) {
  stats_ = {};
  Run run{*this, context, requests, settings, {}, {}, {}, {}, {}, 0, {}};
  LOCKSTEP_RETURN_IF_ERROR(run.start());
  const int64_t total = static_cast<int64_t>(requests.size());
  Status status = ok_status();
  while (run.finished < total && status.ok()) {
    run.admit();
    run.schedule();
    status = run.step(run.plan_steps());
    if (progress) progress({run.finished, total, stats_.generated_tokens});
  }
  for (auto& sequence : run.running) run.release(*sequence);
  run.running.clear();
  run.drop_unused_prefixes(true);
  stats_.peak_kv_pages = pool_.peak();
  if (!status.ok()) return status;
  return std::move(run.completions);
}

}  // namespace lockstep::rollout
