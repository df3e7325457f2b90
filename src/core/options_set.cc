// SPDX-License-Identifier: Apache-2.0
// Options by name and text, for the C ABI and the command line: one table of keys, in the order of options.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "routerelay/options.hpp"

namespace routerelay {
namespace {

Status illegal(std::string_view key, std::string_view value, std::string_view legal) {
  return {Code::kInvalidArgument, fmt::format("options: {} is '{}'; legal: {}", key, value, legal)};
}

Status parse(std::string_view key, std::string_view text, bool& out) {
  if (text != "0" && text != "1") return illegal(key, text, "0, 1");
  out = text == "1";
  return {};
}

// Whether the number is in range is Options::check's business: it depends on other fields.
template <class Number>
Status parse(std::string_view key, std::string_view text, Number& out) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  if (error == std::errc() && stop == end) return {};
  return illegal(key, text, std::is_floating_point_v<Number> ? "a number" : "a whole number that fits");
}

Status parse(std::string_view key, std::string_view text, std::vector<int>& out) {
  std::vector<int> list;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    int layer = 0;
    RR_TRY(parse(key, text.substr(0, comma), layer));
    list.push_back(layer);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  out = std::move(list);
  return {};
}

template <auto kFromName, class Enum>
Status named(std::string_view text, Enum& out) {
  const Result<Enum> value = kFromName(text);
  if (!value.ok()) return value.status();
  out = value.value();
  return {};
}

struct Key {
  std::string_view name;
  bool routes;  // means nothing while every layer is dense
  Status (*set)(Options&, std::string_view key, std::string_view value);
};

#define RR_KEY(name, field, routes)                                                                       \
  Key {                                                                                                   \
    name, routes, [](Options& o, std::string_view k, std::string_view v) { return parse(k, v, o.field); } \
  }
#define RR_NAMED(name, field, from)                                                                      \
  Key {                                                                                                  \
    name, true, [](Options& o, std::string_view, std::string_view v) { return named<from>(v, o.field); } \
  }

const Key kKeys[] = {
    RR_KEY("dense", dense, false),
    RR_NAMED("router", router.kind, router_from),
    RR_KEY("router.samples", router.samples, true),
    RR_KEY("router.candidate_samples", router.candidate_samples, true),
    RR_KEY("router.sub_q", router.sub_q, true),
    RR_KEY("router.sub_k", router.sub_k, true),
    RR_KEY("router.stride", router.stride, true),
    RR_NAMED("selection", selection.kind, selection_from),
    RR_KEY("selection.k", selection.k, true),
    RR_KEY("selection.floor", selection.floor, true),
    RR_KEY("selection.least", selection.least, true),
    RR_KEY("selection.p", selection.p, true),
    RR_KEY("selection.cap", selection.cap, true),
    RR_KEY("selection.threshold", selection.threshold, true),
    RR_KEY("selection.rescue_threshold", selection.rescue_threshold, true),
    RR_NAMED("relay", relay.mode, relay_from),
    RR_KEY("relay.horizon", relay.horizon, true),
    RR_KEY("relay.gamma", relay.gamma, true),
    RR_KEY("relay.delta", relay.delta, true),
    RR_KEY("relay.near_blocks", relay.near_blocks, true),
    RR_KEY("relay.probes", relay.probes, true),
    RR_KEY("relay.max_swaps", relay.max_swaps, true),
    RR_KEY("relay.probe_forces", relay.probe_forces, true),
    RR_KEY("relay.wide", relay.wide, true),
    RR_KEY("relay.near", relay.near, true),
    RR_KEY("relay.anchor_every", relay.anchor_every, true),
    RR_KEY("relay.auto_off", relay.auto_off, true),
    RR_KEY("relay.seed", relay.seed, true),
    RR_NAMED("heads", heads, heads_from),
    RR_KEY("q_block", q_block, false),
    RR_KEY("k_block", k_block, false),
    RR_KEY("sink_blocks", sink_blocks, true),
    RR_KEY("local_blocks", local_blocks, true),
    RR_KEY("force_diagonal", force_diagonal, true),
    RR_KEY("dense_layers", dense_layers, true),
    RR_KEY("never_relay", never_relay, true),
    RR_KEY("dense_below", dense_below, true),
    RR_KEY("audit_every", audit_every, true),
};
#undef RR_KEY
#undef RR_NAMED

}  // namespace

Status Options::set(std::string_view key, std::string_view value) {
  // As the fields are called, too.
  for (const std::string_view field : {"router.kind", "selection.kind", "relay.mode"})
    if (key == field) key = key.substr(0, key.find('.'));
  const auto* found =
      std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& k) { return k.name == key; });
  if (found == std::end(kKeys)) {
    std::string legal;
    for (const Key& k : kKeys) legal += fmt::format("{}{}", legal.empty() ? "" : ", ", k.name);
    return {Code::kInvalidArgument, fmt::format("options: key is '{}'; legal: {}", key, legal)};
  }
  if (found->routes && dense)
    return {
        Code::kInvalidArgument,
        fmt::format(
            "options: {} would do nothing: preset {} attends to every block; start from careful, balanced "
            "or fast, or set dense to 0 first",
            key, preset)};
  RR_TRY(found->set(*this, key, value));
  preset += fmt::format(" {}={}", key, value);
  return {};
}

Status Options::set_all(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(';'), text.size());
    const std::string_view pair = text.substr(0, end);
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos)
      return {Code::kInvalidArgument,
              fmt::format("options: '{}' is no key=value; join several with ;", pair)};
    RR_TRY(set(pair.substr(0, equals), pair.substr(equals + 1)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

}  // namespace routerelay
