// SPDX-License-Identifier: Apache-2.0
// Broken and hostile files: each fault has its sentence, and no mutation of a valid file crashes the reader.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/rng.h"
#include "routerelay/trace.hpp"
#include "trace/files.h"

namespace routerelay {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

const std::string kMeta = R"("__metadata__":{"format":"routerelay-trace","version":"1"})";

std::string entry(const std::string& name, const std::string& shape, int64_t begin, int64_t end,
                  const std::string& dtype = "F16") {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype, shape, begin,
                     end);
}

// q, k, v of layer 0 with one head of 4 and two tokens: 16 bytes each.
const std::string kQ = entry("layers.0.q", "[2,1,4]", 0, 16);
const std::string kK = entry("layers.0.k", "[2,1,4]", 16, 32);
const std::string kV = entry("layers.0.v", "[2,1,4]", 32, 48);

class TraceHostile : public ::testing::Test {
 protected:
  // The message after "trace: <path>: ", or "" when the file opens.
  std::string open(const std::string& bytes) {
    support::write_bytes(path, bytes);
    const auto trace = Trace::open(path);
    if (trace.ok()) return "";
    const std::string prefix = "trace: " + path + ": ", message = trace.status().message();
    EXPECT_EQ(message.substr(0, prefix.size()), prefix);
    EXPECT_EQ(trace.status().code(), Code::kInvalidArgument);
    return message.substr(prefix.size());
  }
  std::string header(const std::string& text, size_t data_bytes = 48) {
    return open(support::safetensors(text, data_bytes));
  }
  std::string entries(const std::string& text, size_t data_bytes = 48) {
    return header("{" + kMeta + "," + text + "}", data_bytes);
  }
  support::TempFolder folder;
  std::string path = folder.file("t");
};

TEST_F(TraceHostile, TheValidFileOpens) {
  EXPECT_EQ(entries(kQ + "," + kK + "," + kV), "");
  EXPECT_EQ(entries(kV + "," + kQ + "," + kK), "") << "the order of names is free";
}

TEST_F(TraceHostile, Files) {
  EXPECT_EQ(open(""), "the file is empty");
  EXPECT_EQ(open("1234567"),
            "is no trace: 7 bytes; a safetensors file begins with 8 for its header's length");
  EXPECT_EQ(open(std::string(8, '\xff')),
            "is no trace: its header's length is 18446744073709551615; legal: up to 8388608");
  EXPECT_EQ(open(support::safetensors("{}", 0).substr(0, 9)),
            "the header takes 2 bytes, 1 follow; was it cut short?");
  const auto folder_itself = Trace::open("/tmp");
  ASSERT_FALSE(folder_itself.ok());
  EXPECT_EQ(folder_itself.status().message(), "trace: /tmp: not a regular file");
  const auto missing = Trace::open(folder.file("none"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), Code::kDeviceError);
  EXPECT_THAT(missing.status().message(), EndsWith("cannot open: No such file or directory"));
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_THAT(Trace::open(folder.file("pipe")).status().message(), EndsWith("not a regular file"));
}

TEST_F(TraceHostile, Json) {
  EXPECT_EQ(header("", 0), R"(header: not valid JSON at byte 1, near "")");
  EXPECT_EQ(header("[1]", 0), "header: is an array; expected an object");
  EXPECT_EQ(header("7", 0), "header: is a number; expected an object");
  EXPECT_THAT(header("{" + kMeta + ",", 0), HasSubstr("header: not valid JSON at byte"));
  EXPECT_THAT(header("{\"\xff\":1}", 0), HasSubstr("header: not valid JSON at byte 3"));
  EXPECT_EQ(header(std::string(1 << 20, '['), 0), "header: is an array; expected an object");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += R"({"a":)";
  EXPECT_EQ(header(deep, 0), R"(header: tensor "a" is not layers.<0..65535>.q, .k or .v)");
  EXPECT_EQ(header("{" + kMeta + "," + kMeta + "}"), R"(header: "__metadata__" appears twice)");
  EXPECT_EQ(entries(kQ + "," + kQ), R"(header: "layers.0.q" appears twice)");
  EXPECT_EQ(header(R"({"__metadata__":{"a":"1","a":"2"}})"), R"(header: metadata "a" appears twice)");
  EXPECT_EQ(header(R"({"__metadata__":{"a":1}})"),
            R"(header: a number where metadata "a" does not have one)");
  EXPECT_EQ(header(R"({"layers.0.q":null})"), R"(header: null where "layers.0.q" does not have one)");
}

TEST_F(TraceHostile, Names) {
  for (const char* name : {"foo", "layers.0", "layers.0.w", "layers.00.q", "layers.-1.q", "layers.65536.q",
                           "layers.99999999999999999999.q", "layers.0.q.q", "layers..q", "layers.1 .q", ""})
    EXPECT_EQ(entries(entry(name, "[2,1,4]", 0, 16)),
              fmt::format("header: tensor \"{}\" is not layers.<0..65535>.q, .k or .v", name));
  const std::string shown = entries(entry(std::string(5000, 'x'), "[2,1,4]", 0, 16));
  EXPECT_LT(shown.size(), 200u);
  EXPECT_THAT(entries(entry("a\\u0007\\nb", "[2,1,4]", 0, 16)), HasSubstr("\"a??b\""))
      << "no control characters";
}

TEST_F(TraceHostile, Fields) {
  EXPECT_EQ(entries(entry("layers.0.q", "[2,1,4]", 0, 16, "F64")),
            R"(header: tensor "layers.0.q" has dtype "F64"; legal: F32, BF16, F16)");
  EXPECT_EQ(entries(entry("layers.0.q", "[-2,1,4]", 0, 16)),
            R"(header: tensor "layers.0.q" holds -2; sizes and offsets are not negative)");
  EXPECT_EQ(entries(entry("layers.0.q", "[2,1,4,1]", 0, 16)),
            R"(header: tensor "layers.0.q" has more than 3 numbers in shape)");
  EXPECT_THAT(entries(entry("layers.0.q", "[2,4]", 0, 16)), HasSubstr("needs dtype, shape"));
  EXPECT_THAT(entries(R"("layers.0.q":{})"), HasSubstr("needs dtype, shape"));
  EXPECT_EQ(entries(R"("layers.0.q":{"shape":[2,1.5,4]})"),
            R"(header: a fraction where "layers.0.q" does not have one)");
  EXPECT_EQ(entries(R"("layers.0.q":{"shape":[[2],1,4]})"),
            R"(header: an array where "layers.0.q" does not have one)");
  EXPECT_EQ(entries(R"("layers.0.q":{"dtype":"F16","dtype":"F32"})"),
            R"(header: tensor "layers.0.q" has "dtype" twice)");
  EXPECT_EQ(entries(R"("layers.0.q":{"strides":[1]})"),
            R"(header: tensor "layers.0.q" has a field "strides"; legal: dtype, shape, data_offsets)");
  EXPECT_EQ(entries(R"("layers.0.q":{"shape":[18446744073709551615,1,4]})"),
            R"(header: tensor "layers.0.q" holds 18446744073709551615, more than 63 bits)");
  EXPECT_THAT(entries(entry("layers.0.q", "[4611686018427387904,1,4]", 0, 16)),
              HasSubstr("more than 63 bits"));
  EXPECT_THAT(entries(entry("layers.0.q", "[0,4611686018427387904,4]", 0, 0)), HasSubstr("legal: 1..65536"));
  EXPECT_THAT(entries(entry("layers.0.q", "[2,0,4]", 0, 0)), HasSubstr("has 0 heads of 4"));
}

TEST_F(TraceHostile, Places) {
  EXPECT_EQ(entries(entry("layers.0.q", "[2,1,4]", 0, 15)),
            R"(header: tensor "layers.0.q" lies at bytes 0 to 15, but its shape and dtype need 16 bytes)");
  EXPECT_THAT(entries(entry("layers.0.q", "[2,1,4]", 16, 0)), HasSubstr("lies at bytes 16 to 0"));
  EXPECT_EQ(entries(kQ + "," + kK + "," + kV, 47),
            R"(header: tensor "layers.0.v" ends at data byte 48, the file has 47; was it cut short?)");
  EXPECT_EQ(entries(kQ + "," + kK + "," + kV, 50),
            "header: the tensors end at data byte 48, the file has 50");
  EXPECT_EQ(
      entries(kQ + "," + kV),
      R"(header: tensor "layers.0.v" begins at data byte 32, the one before ends at 16; there is a hole)");
  EXPECT_EQ(entries(kQ + "," + entry("layers.0.k", "[2,1,4]", 8, 24)),
            R"(header: tensor "layers.0.k" begins at data byte 8, the one before ends at 16; they overlap)");
}

TEST_F(TraceHostile, Metadata) {
  const std::string tensors = kQ + "," + kK + "," + kV;
  const auto with = [&](const std::string& metadata) {
    return header("{\"__metadata__\":{" + metadata + "}," + tensors + "}");
  };
  EXPECT_EQ(header("{" + tensors + "}"), R"(metadata format is missing; a trace has "routerelay-trace")");
  EXPECT_EQ(with(R"("format":"pt")"), R"(metadata format is "pt"; a trace has "routerelay-trace")");
  EXPECT_EQ(with(R"("format":"routerelay-trace","version":"2")"),
            R"(metadata version is "2"; this build reads "1")");
  const std::string good = R"("format":"routerelay-trace","version":"1",)";
  EXPECT_EQ(with(good + R"("scale":"0.125")"), "");
  for (const char* bad : {"nan", "inf", "-1", "", "1x", "1e999"})
    EXPECT_EQ(with(good + fmt::format(R"("scale":"{}")", bad)),
              fmt::format("metadata scale is \"{}\"; expected a number from 0", bad));
  for (const char* bad : {"-1", "1.5", "99999999999999999999"})
    EXPECT_EQ(with(good + fmt::format(R"("q_offset":"{}")", bad)),
              fmt::format("metadata q_offset is \"{}\"; expected a number from 0", bad));
  EXPECT_EQ(with(good + R"("q_offset":"3")"),
            "layer 0: 2 keys for 2 queries at q_offset 3; expected q_offset + queries");
}

TEST_F(TraceHostile, Layers) {
  EXPECT_EQ(header("{" + kMeta + "}", 0), "no layers");
  EXPECT_EQ(entries(kQ + "," + kK, 32), "layer 0 has no v");
  EXPECT_EQ(entries(kQ + "," + kK + "," + entry("layers.0.v", "[1,2,4]", 32, 48)),
            "layer 0: k is [2, 1, 4] f16, v is [1, 2, 4] f16; expected the same");
  EXPECT_EQ(entries(kQ + "," + entry("layers.0.k", "[2,2,2]", 16, 32) + "," +
                    entry("layers.0.v", "[2,2,2]", 32, 48)),
            "layer 0: q is [2, 1, 4] f16, k is [2, 2, 2] f16; expected one head_dim, and kv_heads dividing "
            "q_heads");
  EXPECT_EQ(entries(kQ + "," + kK + "," + kV + "," + entry("layers.1.q", "[1,1,4]", 48, 56) + "," +
                        entry("layers.1.k", "[1,1,4]", 56, 64) + "," + entry("layers.1.v", "[1,1,4]", 64, 72),
                    72),
            "layer 1 has 1 queries, layer 0 has 2; expected the same");
}

// Reads every byte that a view covers, so that a sanitizer sees a view that leaves the file.
uint64_t touch(const Trace& trace) {
  uint64_t sum = 0;
  for (const TraceLayer& l : trace.layers())
    for (const Tensor* t : {&l.q, &l.k, &l.v})
      for (char c : support::bytes_of(*t)) sum += static_cast<unsigned char>(c);
  return sum;
}

TEST_F(TraceHostile, MutationsNeverCrash) {
  const std::string valid = support::safetensors("{" + kMeta + "," + kQ + "," + kK + "," + kV + "," +
                                                     entry("layers.1.q", "[2,2,4]", 48, 112, "F32") + "," +
                                                     entry("layers.1.k", "[2,1,4]", 112, 128, "BF16") + "," +
                                                     entry("layers.1.v", "[2,1,4]", 128, 144, "BF16") + "}",
                                                 144);
  ASSERT_EQ(open(valid), "");
  const size_t header_end = valid.size() - 144;
  const std::string spice = "\"{}[]:,0123456789-.eF\\u\xff\x80";
  Philox rng(20, 0);
  const auto below = [&](size_t n) { return static_cast<size_t>(rng.below(static_cast<uint32_t>(n))); };
  support::MemoryFile file;
  int opened = 0;
  uint64_t sum = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = valid;
    for (size_t edits = 1 + below(3); edits > 0; --edits) {
      const size_t at = below(std::min(header_end, bytes.size()) + 1);
      switch (rng.below(5)) {
        case 0:
          bytes.resize(below(bytes.size() + 1));
          break;
        case 1:
          if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.below(8)));
          break;
        case 2:
          if (at < bytes.size()) bytes[at] = spice[below(spice.size())];
          break;
        case 3:
          bytes.insert(std::min(at, bytes.size()), 1, spice[below(spice.size())]);
          break;
        default:
          if (at < bytes.size()) bytes.erase(at, 1 + below(8));
          break;
      }
      if (bytes.empty()) break;
    }
    ASSERT_TRUE(file.assign(bytes.data(), bytes.size()));
    const auto trace = Trace::open(file.path());
    if (!trace.ok()) {
      ASSERT_FALSE(trace.status().message().empty());
      continue;
    }
    ++opened;
    sum += touch(trace.value());
  }
  EXPECT_LT(opened, 20000) << sum;
}

}  // namespace
}  // namespace routerelay
