// SPDX-License-Identifier: Apache-2.0
#include "tally.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "say.h"
#include "trace/file.h"

namespace routerelay::ggml {
namespace {

void add(LayerReport& sum, const LayerReport& r) {
  sum.layer = r.layer;
  sum.dense = sum.dense && r.dense;
  sum.relayed |= r.relayed;
  sum.auto_off |= r.auto_off;
  sum.rows += r.rows;
  sum.routed_rows += r.routed_rows;
  sum.kept_rows += r.kept_rows;
  sum.visible_blocks += r.visible_blocks;
  sum.visited_blocks += r.visited_blocks;
  sum.routed_visible_blocks += r.routed_visible_blocks;
  sum.routed_visited_blocks += r.routed_visited_blocks;
  sum.scored_blocks += r.scored_blocks;
  sum.screened_blocks += r.screened_blocks;
  sum.swaps += r.swaps;
  sum.survivors += r.survivors;
  for (size_t i = 0; i < kCauses; ++i) sum.rows_by_cause[i] += r.rows_by_cause[i];
  sum.audited_rows += r.audited_rows;
  sum.audited_id_recall += r.audited_id_recall;
  sum.audited_mass_recall += r.audited_mass_recall;
  sum.summarize_us += r.summarize_us;
  sum.relay_us += r.relay_us;
  sum.route_us += r.route_us;
  sum.attend_us += r.attend_us;
  sum.summary_bytes = std::max(sum.summary_bytes, r.summary_bytes);
  sum.workspace_bytes = std::max(sum.workspace_bytes, r.workspace_bytes);
  sum.kv_bytes_16bit = std::max(sum.kv_bytes_16bit, r.kv_bytes_16bit);
}

// How old a file is when a call writes it anew: one write of thirty layers takes a millisecond. The last layer of a
// micro-batch is the call to write after, so that a prompt's last one, if it took that long, is in the file; others may
// wait for it.
constexpr std::chrono::milliseconds kMicroBatch{50}, kMayWait{1000};

// Named in a report: a program may try one after the other.
constexpr size_t kMostPresets = 100;

template <class Counts>
nlohmann::json by_reason(const Counts& counts) {
  nlohmann::json out = nlohmann::json::object();
  for (size_t i = 1; i < kReasons; ++i)
    if (const int64_t n = counts[i]; n > 0) out[kReasonNames[i]] = n;
  return out;
}

std::string list(const nlohmann::json& by_name) {
  std::string out;
  for (const auto& [name, n] : by_name.items())
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, n.template get<int64_t>());
  return out.empty() ? "none" : out;
}

// Beside the target, under a name that no other process has, and renamed over it: a reader never sees half a report.
bool write_file(const std::string& path, const std::string& text) {
  const Result<Sibling> made = create_sibling(path);
  if (!made.ok()) return false;
  const auto& [file, name] = made.value();
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  if (write_at(file, bytes, static_cast<int64_t>(text.size()), 0).ok() &&
      std::rename(name.c_str(), path.c_str()) == 0)
    return true;
  ::unlink(name.c_str());
  return false;
}

}  // namespace

void Tally::begin(TallyHead head, std::string target) {
  const std::lock_guard lock(mutex_);
  head_ = std::move(head);
  target_ = std::move(target);
}

void Tally::goes_by(std::string preset) {
  const std::lock_guard lock(mutex_);
  now_ = std::move(preset);
}

void Tally::delegated(Reason reason, const std::string& message) {
  bool first = false, due = false;
  {
    const std::lock_guard lock(mutex_);
    ++delegated_[static_cast<size_t>(reason)];
    first = !message.empty() && engine_message_.empty();
    if (first) engine_message_ = message;
    due = is_older(kMayWait);
  }
  if (first) say("delegated to the host: " + message);
  if (due) write({writing_, std::try_to_lock});
}

void Tally::taken(const std::string& preset, const LayerReport& layer, int64_t query_rows, int threads,
                  double seconds) {
  bool due = false;
  {
    const std::lock_guard lock(mutex_);
    if (presets_.size() < kMostPresets &&
        std::find(presets_.begin(), presets_.end(), preset) == presets_.end())
      presets_.push_back(preset);
    ++calls_;
    query_rows_ += query_rows;
    seconds_ += seconds;
    threads_ = threads;
    const auto [it, first] = layers_.try_emplace(layer.layer);
    if (first) it->second.dense = true;
    add(it->second, layer);
    ++layer_calls_[layer.layer];
    due = is_older(layer.layer == layers_.rbegin()->first ? kMicroBatch : kMayWait);
  }
  if (due) write({writing_, std::try_to_lock});
}

std::string Tally::presets() const {
  return presets_.empty() ? now_ : fmt::format("{}", fmt::join(presets_, ", "));
}

Report Tally::sums() const {
  Report sums{presets(), head_.backend, head_.isa, threads_, {}};
  for (const auto& [layer, sum] : layers_) sums.layers.push_back(sum);
  return sums;
}

std::string Tally::to_json() const {
  nlohmann::json out = nlohmann::json::parse(sums().to_json());
  for (nlohmann::json& layer : out["layers"]) layer["calls"] = layer_calls_.at(layer["layer"].get<int>());
  out["version"] = RR_VERSION;
  out["host"] = {{"ggml", head_.ggml_version}, {"api", head_.api}};
  out["now"] = now_;
  out["calls"] = calls_;
  out["query_rows"] = query_rows_;
  out["seconds"] = seconds_;
  out["asked"] = {{"claimed", answers_[0].load()}, {"declined", by_reason(answers_)}};
  out["delegated"] = by_reason(delegated_);
  if (!engine_message_.empty()) out["engine_message"] = engine_message_;
  // Whatever bytes a message holds: a report must not fail the call that it counts.
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string Tally::to_text() const {
  const Report all = sums();
  const bool routed = std::any_of(all.layers.begin(), all.layers.end(),
                                  [](const LayerReport& layer) { return layer.routed_rows > 0; });
  std::string text = fmt::format("{} attention calls taken", calls_);
  if (calls_ > 0) {
    text += fmt::format(" in {:.2f} s, density {:.3f} of all rows", seconds_, all.model_density());
    text += routed ? fmt::format(", {:.3f} of routed rows", all.density()) : std::string(", no row routed");
  }
  return text + fmt::format("; delegated: {}; declined of {} questions: {}", list(by_reason(delegated_)),
                            questions(), list(by_reason(answers_)));
}

int64_t Tally::questions() const {
  return std::accumulate(answers_.begin(), answers_.end(), int64_t{0});
}

std::string Tally::why_idle() const {
  const auto of = [&](Reason reason) { return answers_[static_cast<size_t>(reason)].load(); };
  if (!serves_ || calls_ > 0 || of(Reason::kNone) > 0) return "";
  if (questions() == 0)
    return "idle: the host asked for no attention: flash attention is off, or a GPU does it";
  if (questions() == of(Reason::kFewRows) + of(Reason::kFewKeys)) return "";  // short prompts only
  return fmt::format("idle: declined of {} questions: {}", questions(), list(by_reason(answers_)));
}

void Tally::write(const std::unique_lock<std::mutex>& writing) {
  if (!writing.owns_lock()) return;
  std::string target, text;
  {
    const std::lock_guard lock(mutex_);
    written_ = std::chrono::steady_clock::now();
    if (target_.empty() || target_ == "1") return;
    target = target_;
    text = to_json();
  }
  if (write_file(target, text) || failure_said_) return;
  failure_said_ = true;
  say("ROUTERELAY_REPORT is '" + target + "', which cannot be written; tried again until the end");
}

bool Tally::is_older(std::chrono::milliseconds age) const {
  return std::chrono::steady_clock::now() - written_ > age;
}

void Tally::flush(bool at_exit) {
  {
    const std::lock_guard lock(mutex_);
    const std::string idle = at_exit ? why_idle() : "";
    if (target_ == "1" && at_exit)
      say(to_text());
    else if (!idle.empty())
      say(idle);
  }
  write(std::unique_lock(writing_));
}

std::string Tally::json() {
  const std::lock_guard lock(mutex_);
  return to_json();
}

Tally& tally() {
  static Tally* const one = new Tally;
  return *one;
}

}  // namespace routerelay::ggml
