// SPDX-License-Identifier: Apache-2.0
#include "workload/structured.h"

#include <cmath>

#include "core/convert.h"
#include "core/rng.h"

namespace routerelay {
namespace {

constexpr int kTopics = 32;
constexpr int kSink = kTopics;      // the direction of the first keys
constexpr int64_t kSinkTokens = 4;  // as attention sinks of real models: a handful of first tokens
constexpr int64_t kRun = 64;        // queries that want the same: one row
constexpr int kWants = 2;
constexpr double kReplace = 0.45;  // chance per layer that a want is replaced
// Logits (after 1/sqrt(head_dim)) of a key in the query's direction. With 2 of 32 topics wanted, the wanted
// sixteenth of the keys holds e^6.5 / 15 = 98 % before noise, about 90 % with it.
constexpr double kWantLogit = 6.5;
constexpr double kSinkLogit = 8;
constexpr double kNoise = 0.7;  // of a key's length, spread over all dimensions

enum Stream : uint64_t { kSegments, kDirections, kKeys, kValues, kQueries, kWanted };

uint64_t stream_of(Stream stream, int layer, int head = 0) {
  return stream + 16 * (static_cast<uint64_t>(layer) + 4096 * static_cast<uint64_t>(head));
}

std::vector<uint8_t> topics_of(const StructuredArgs& args) {
  Philox random(args.seed, stream_of(kSegments, 0));
  std::vector<uint8_t> topics;
  topics.reserve(static_cast<size_t>(args.tokens));
  while (static_cast<int64_t>(topics.size()) < args.tokens) {
    const uint32_t length = 32 + random.below(225);
    topics.insert(topics.end(), length, static_cast<uint8_t>(random.below(kTopics)));
  }
  return topics;
}

// What a run wants at `layer`: layer 0's draw, with every layer's replacements up to here.
int wanted_topic(const StructuredArgs& args, int layer, int head, int64_t run, int want) {
  Philox random(args.seed,
                stream_of(kWanted, 0, head) + 8 * static_cast<uint64_t>(run * kWants + want) * 65536);
  auto topic = static_cast<int>(random.below(kTopics));
  for (int l = 1; l <= layer; ++l) {
    const bool replace = random.uniform() < kReplace;
    const auto other = static_cast<int>(random.below(kTopics));
    if (replace) topic = other;
  }
  return topic;
}

std::vector<float> unit_vectors(Philox& random, int64_t count, int64_t head_dim) {
  std::vector<float> out(static_cast<size_t>(count * head_dim));
  for (int64_t i = 0; i < count; ++i) {
    double length = 0;
    for (int64_t c = 0; c < head_dim; ++c) {
      const double x = random.normal();
      out[static_cast<size_t>(i * head_dim + c)] = static_cast<float>(x);
      length += x * x;
    }
    for (int64_t c = 0; c < head_dim; ++c)
      out[static_cast<size_t>(i * head_dim + c)] /= static_cast<float>(std::sqrt(length));
  }
  return out;
}

}  // namespace

StructuredLayer::StructuredLayer(const StructuredArgs& args, int layer) {
  Philox random(args.seed, stream_of(kDirections, layer));
  directions_ = unit_vectors(random, int64_t{args.kv_heads} * (kTopics + 1), args.head_dim);
  const int64_t token_bytes = bytes_of(args.dtype, args.head_dim);
  q_bytes_.resize(static_cast<size_t>(args.tokens * args.q_heads * token_bytes));
  k_bytes_.resize(static_cast<size_t>(args.tokens * args.kv_heads * token_bytes));
  v_bytes_.resize(k_bytes_.size());
  q_ = contiguous(q_bytes_.data(), args.dtype, args.tokens, args.q_heads, args.head_dim);
  k_ = contiguous(k_bytes_.data(), args.dtype, args.tokens, args.kv_heads, args.head_dim);
  v_ = contiguous(v_bytes_.data(), args.dtype, args.tokens, args.kv_heads, args.head_dim);
  fill_keys(args, layer);
  fill_queries(args, layer);
}

void StructuredLayer::fill_keys(const StructuredArgs& args, int layer) {
  const std::vector<uint8_t> topics = topics_of(args);
  Philox keys(args.seed, stream_of(kKeys, layer)), values(args.seed, stream_of(kValues, layer));
  const double noise = kNoise / std::sqrt(static_cast<double>(args.head_dim));
  for (int64_t t = 0; t < args.tokens; ++t) {
    const int topic = t < kSinkTokens ? kSink : topics[static_cast<size_t>(t)];
    for (int64_t h = 0; h < args.kv_heads; ++h) {
      const float* direction = &directions_[static_cast<size_t>((h * (kTopics + 1) + topic) * args.head_dim)];
      const int64_t at = (t * args.kv_heads + h) * args.head_dim;
      for (int64_t c = 0; c < args.head_dim; ++c) {
        store_f32(k_bytes_.data(), args.dtype, at + c,
                  static_cast<float>(direction[c] + noise * keys.normal()));
        store_f32(v_bytes_.data(), args.dtype, at + c, static_cast<float>(values.normal()));
      }
    }
  }
}

void StructuredLayer::fill_queries(const StructuredArgs& args, int layer) {
  const double root = std::sqrt(static_cast<double>(args.head_dim));
  Philox random(args.seed, stream_of(kQueries, layer));
  std::vector<double> center(static_cast<size_t>(args.head_dim));
  for (int64_t run = 0; run * kRun < args.tokens; ++run) {
    for (int h = 0; h < args.q_heads; ++h) {
      const int kv_head = h / (args.q_heads / args.kv_heads);
      const float* directions = &directions_[static_cast<size_t>(kv_head * (kTopics + 1) * args.head_dim)];
      for (int64_t c = 0; c < args.head_dim; ++c)
        center[static_cast<size_t>(c)] = kSinkLogit * root * directions[kSink * args.head_dim + c];
      for (int want = 0; want < kWants; ++want) {
        const float* direction = directions + wanted_topic(args, layer, h, run, want) * args.head_dim;
        for (int64_t c = 0; c < args.head_dim; ++c)
          center[static_cast<size_t>(c)] += kWantLogit * root * direction[c];
      }
      for (int64_t t = run * kRun; t < std::min((run + 1) * kRun, args.tokens); ++t)
        for (int64_t c = 0; c < args.head_dim; ++c)
          store_f32(q_bytes_.data(), args.dtype, (t * args.q_heads + h) * args.head_dim + c,
                    static_cast<float>(center[static_cast<size_t>(c)] + random.normal()));
    }
  }
}

}  // namespace routerelay
