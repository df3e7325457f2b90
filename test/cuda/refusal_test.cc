// SPDX-License-Identifier: Apache-2.0
// Every call of attend that is refused, by its sentence. No device is touched.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "cuda/attend/plan.h"
#include "cuda/plan_args.h"
#include "support/status.h"

namespace routerelay::cuda {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

struct Refusal {
  const char* name;
  std::function<void(AttendArgs&)> spoil;
  std::string message;
  Code code = Code::kInvalidArgument;
  AttendArgs args = legal_args();
};
Refusal of_pages(const char* name, const std::function<void(AttendArgs&)>& spoil, std::string message) {
  return {name, spoil, std::move(message), Code::kInvalidArgument, paged_args()};
}

Refusal of_e4m3(const char* name, const std::function<void(AttendArgs&)>& spoil, std::string message,
                Code code = Code::kInvalidArgument) {
  return {name, spoil, std::move(message), code, e4m3_args()};
}

class AttendRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(AttendRefusal, SaysWhy) {
  AttendArgs args = GetParam().args;
  ASSERT_TRUE(plan_attend(args).ok());
  GetParam().spoil(args);
  support::expect_error(plan_attend(args).status(), GetParam().code, "attend: " + GetParam().message);
  EXPECT_EQ(attend_workspace_bytes(args).status().message(), "attend: " + GetParam().message);
  EXPECT_EQ(attend(args, nullptr, 0, nullptr).message(), "attend: " + GetParam().message);
}

constexpr const char* kConfigs =
    "it has bf16, f16, head_dim 64, 128, 256, rows of 64, 128 and blocks of 64, 128";

const Refusal kTensors[] = {
    {"QIsNull", [](auto& a) { a.q.data = nullptr; }, "q.data is null; give device memory"},
    {"OutIsNull", [](auto& a) { a.out.data = nullptr; }, "out.data is null; give device memory"},
    {"NoTokens", [](auto& a) { a.q.tokens = 0; }, "q.tokens is 0; legal: 1 to 1073741824"},
    {"TooManyTokens", [](auto& a) { a.k.tokens = a.v.tokens = (int64_t{1} << 30) + 1; },
     "k.tokens is 1073741825; legal: 1 to 1073741824"},
    {"NoHeads", [](auto& a) { a.k.heads = 0; }, "k.heads is 0; legal: 1 to 65536"},
    {"EndlessHeads", [](auto& a) { a.q.heads = kHuge; }, "q.heads is 9223372036854775807; legal: 1 to 65536"},
    {"Misaligned", [](auto& a) { a.v.data += 8; }, "v.data is not aligned to 16 bytes; move it"},
    {"OddTokenStride", [](auto& a) { a.q.token_stride = 1025; },
     "q.token_stride is 1025; legal: multiples of 8 from head_dim (128) to 549755813880"},
    {"HeadsOverlap", [](auto& a) { a.k.head_stride = 64; },
     "k.head_stride is 64; legal: multiples of 8 from head_dim (128) to 549755813880"},
    {"EndlessStride", [](auto& a) { a.v.token_stride = int64_t{1} << 39; },
     "v.token_stride is 549755813888; legal: multiples of 8 from head_dim (128) to 549755813880"},
    {"HeadDimsDiffer", [](auto& a) { a.v.head_dim = 64; },
     "v.head_dim is 64, q's is 128; they must be equal"},
    {"DtypesDiffer", [](auto& a) { a.k.dtype = DType::kF16; },
     "k.dtype is f16, q's is bf16; they must be equal, or k's e4m3"},
    {"OutDtypeDiffers", [](auto& a) { a.out.dtype = DType::kF32; },
     "out.dtype is f32, q's is bf16; they must be equal"},
    {"ValuesShorter", [](auto& a) { a.v.tokens = 999; },
     "v is [999, 2], k is [1000, 2]; tokens and heads must be equal"},
    {"OutShorter", [](auto& a) { a.out.tokens = 299; },
     "out is [299, 8], q is [300, 8]; tokens and heads must be equal"},
    {"GroupsUneven", [](auto& a) { a.k.heads = a.v.heads = 3; },
     "q.heads is 8, k.heads is 3; legal: a multiple"},
    {"MoreKeyHeads", [](auto& a) { a.k.heads = a.v.heads = 16; },
     "q.heads is 8, k.heads is 16; legal: a multiple"},
};

const Refusal kOthers[] = {
    {"NoPicked", [](auto& a) { a.routes.row_offsets = address<int64_t>(0x5000); },
     "one of routes.row_offsets and routes.picked is null; give both, or neither to visit every block"},
    {"NoRowOffsets", [](auto& a) { a.routes.picked = address<int32_t>(0x5000); },
     "one of routes.row_offsets and routes.picked is null; give both, or neither to visit every block"},
    {"MisalignedRowOffsets",
     [](auto& a) {
       a.routes = {address<int64_t>(0x5004), address<int32_t>(0x6000)};
     },
     "routes.row_offsets is not aligned to 8 bytes; move it"},
    {"MisalignedPicked",
     [](auto& a) {
       a.routes = {address<int64_t>(0x5000), address<int32_t>(0x6001)};
     },
     "routes.picked is not aligned to 4 bytes; move it"},
    {"ListsOfThreeHeads", [](auto& a) { a.routes.heads = 3; },
     "routes.heads is 3, q.heads is 8; legal: a divisor, or 0 for every query head"},
    {"ListsOfMoreHeads", [](auto& a) { a.routes.heads = 16; },
     "routes.heads is 16, q.heads is 8; legal: a divisor, or 0 for every query head"},
    {"ListsOfFewerThanNoHeads", [](auto& a) { a.routes.heads = -8; },
     "routes.heads is -8, q.heads is 8; legal: a divisor, or 0 for every query head"},
    {"MisalignedLse", [](auto& a) { a.lse_log2 = address<float>(0x5002); },
     "lse_log2 is not aligned to 4 bytes; move it"},
    {"NegativeScale", [](auto& a) { a.scale = -1; },
     "scale is -1; legal: 1e-37 to 1e38, or 0 for 1 / sqrt(head_dim)"},
    {"EndlessScale", [](auto& a) { a.scale = std::numeric_limits<float>::infinity(); },
     "scale is inf; legal: 1e-37 to 1e38, or 0 for 1 / sqrt(head_dim)"},
    {"ScaleIsNan", [](auto& a) { a.scale = std::numeric_limits<float>::quiet_NaN(); },
     "scale is nan; legal: 1e-37 to 1e38, or 0 for 1 / sqrt(head_dim)"},
    {"OtherDtype", [](auto& a) { a.q.dtype = a.k.dtype = a.v.dtype = a.out.dtype = DType::kF32; },
     std::string(
         "dtype f32, head_dim 128, rows of 128 queries and blocks of 128 keys are not in this build; ") +
         kConfigs,
     Code::kUnsupported},
    {"OtherHeadDim", [](auto& a) { set_head_dim(a, 96); },
     std::string(
         "dtype bf16, head_dim 96, rows of 128 queries and blocks of 128 keys are not in this build; ") +
         kConfigs,
     Code::kUnsupported},
    {"HeadDimOf33Bits", [](auto& a) { a = legal_args((int64_t{1} << 32) + 128); },
     std::string("dtype bf16, head_dim 4294967424, rows of 128 queries and blocks of 128 keys are not in "
                 "this build; ") +
         kConfigs,
     Code::kUnsupported},
    {"OtherBlocks", [](auto& a) { a.q_block = 0, a.k_block = -64; },
     std::string(
         "dtype bf16, head_dim 128, rows of 0 queries and blocks of -64 keys are not in this build; ") +
         kConfigs,
     Code::kUnsupported},
};

const Refusal kSequences[] = {
    {"MoreQueriesThanKeys", [](auto& a) { a.k.tokens = a.v.tokens = 299; },
     "q has 300 tokens, k 299; the default sequence ends where its keys end: give `sequence`"},
    {"CountWithoutArray", [](auto& a) { a.n_sequences = 3; },
     "n_sequences is 3 and sequences is null; give their array"},
    {"NoQueries",
     [](auto& a) {
       a.sequence = {0, 0, 0, 1000, 0};
     },
     "sequence.q_begin is 0, q_len 0; legal: inside the 300 tokens of q"},
    {"QueriesBeyond",
     [](auto& a) {
       a.sequence = {1, 300, 0, 1000, 0};
     },
     "sequence.q_begin is 1, q_len 300; legal: inside the 300 tokens of q"},
    {"QueriesFarBeyond",
     [](auto& a) {
       a.sequence = {kHuge, kHuge, 0, 1000, 0};
     },
     "sequence.q_begin is 9223372036854775807, q_len 9223372036854775807; legal: inside the 300 tokens of q"},
    {"QueriesBefore",
     [](auto& a) {
       a.sequence = {-1, 1, 0, 1000, 0};
     },
     "sequence.q_begin is -1, q_len 1; legal: inside the 300 tokens of q"},
    {"KeysBeyond",
     [](auto& a) {
       a.sequence = {0, 300, 501, 500, 0};
     },
     "sequence.k_begin is 501, k_len 500; legal: inside the 1000 tokens of k"},
    {"KeysFarBeyond",
     [](auto& a) {
       a.sequence = {0, 300, kHuge, 1, 0};
     },
     "sequence.k_begin is 9223372036854775807, k_len 1; legal: inside the 1000 tokens of k"},
    {"NegativeKeys",
     [](auto& a) {
       a.sequence = {0, 300, 0, -1, 0};
     },
     "sequence.k_begin is 0, k_len -1; legal: inside the 1000 tokens of k"},
    {"NegativeOffset",
     [](auto& a) {
       a.sequence = {0, 300, 0, 1000, -1};
     },
     "sequence.q_offset is -1; legal: 0 and more"},
    {"EmptyBatch", [](auto& a) { a.sequences = address<Sequence>(0x5000), a.n_sequences = 0, a.n_rows = 3; },
     "n_sequences is 0; legal: 1 to 4096"},
    {"LargeBatch",
     [](auto& a) { a.sequences = address<Sequence>(0x5000), a.n_sequences = 4097, a.n_rows = 3; },
     "n_sequences is 4097; legal: 1 to 4096"},
    {"MisalignedBatch", [](auto& a) { a.sequences = address<Sequence>(0x5004), a.n_rows = 3; },
     "sequences is not aligned to 8 bytes; move it"},
    {"BatchWithoutRows", [](auto& a) { a.sequences = address<Sequence>(0x5000); },
     "n_rows is 0; give the rows of all sequences"},
    {"TooManyRows", [](auto& a) { a.sequences = address<Sequence>(0x5000), a.n_rows = (1 << 27) + 1; },
     "134217729 rows of 8 heads are more than 1073741824"},
    {"EndlessRows", [](auto& a) { a.sequences = address<Sequence>(0x5000), a.n_rows = kHuge; },
     "9223372036854775807 rows of 8 heads are more than 1073741824"},
};

const Refusal kPages[] = {
    of_pages(
        "NoTable", [](auto& a) { a.pages.table = nullptr; },
        "pages.table is null, max_pages 16, page_size 64, page_stride 0; give the table, or nothing"),
    {"OnlyAStride", [](auto& a) { a.pages.page_stride = 8; },
     "pages.table is null, max_pages 0, page_size 0, page_stride 8; give the table, or nothing"},
    of_pages(
        "PagesInsideOfPages", [](auto& a) { a.pages.page_stride = 256; },
        "pages.page_stride is 256; legal: 16256 and more, what a page of k spans"),
    of_pages(
        "HeadMajorPagesWithoutAStride",
        [](auto& a) {
          for (Tensor* t : {&a.k, &a.v}) t->token_stride = 128, t->head_stride = 64 * 128;
        },
        "pages.page_stride is 8192 (page_size times token_stride), and so is k.head_stride; give what lies "
        "between pages"),
    of_pages(
        "AStrideThatOverflows", [](auto& a) { a.k.token_stride = int64_t{1} << 36; },
        "pages.page_stride is 4398046511104; legal: multiples of 8 from head_dim (128) to 549755813880"),
    of_pages(
        "MisalignedTable", [](auto& a) { a.pages.table = address<const int32_t>(0x5002); },
        "pages.table is not aligned to 4 bytes; move it"),
    of_pages(
        "NoPageSize", [](auto& a) { a.pages.page_size = 0; },
        "pages.page_size is 0; legal: 16, 32, 64, 128, 256"),
    of_pages(
        "NegativePageSize", [](auto& a) { a.pages.page_size = std::numeric_limits<int32_t>::min(); },
        "pages.page_size is -2147483648; legal: 16, 32, 64, 128, 256"),
    of_pages(
        "SmallPages", [](auto& a) { a.pages.page_size = 8; },
        "pages.page_size is 8; legal: 16, 32, 64, 128, 256"),
    of_pages(
        "LargePages", [](auto& a) { a.pages.page_size = 512; },
        "pages.page_size is 512; legal: 16, 32, 64, 128, 256"),
    of_pages(
        "OddPages", [](auto& a) { a.pages.page_size = 48; },
        "pages.page_size is 48; legal: 16, 32, 64, 128, 256"),
    of_pages(
        "NoPages", [](auto& a) { a.pages.max_pages = 0; }, "pages.max_pages is 0; legal: 1 to 16777216"),
    of_pages(
        "EndlessPages", [](auto& a) { a.pages.max_pages = kHuge; },
        "pages.max_pages is 9223372036854775807; legal: 1 to 16777216"),
    of_pages(
        "PartOfAPage", [](auto& a) { a.k.tokens = a.v.tokens = 1281; },
        "k.tokens is 1281; legal: whole pages of 64"),
    of_pages(
        "OddPageStride", [](auto& a) { a.pages.page_stride = 64 * 256 + 4; },
        "pages.page_stride is 16388; legal: multiples of 8 from head_dim (128) to 549755813880"),
    of_pages(
        "ShortPageStride", [](auto& a) { a.pages.page_stride = 64; },
        "pages.page_stride is 64; legal: multiples of 8 from head_dim (128) to 549755813880"),
    of_pages(
        "EndlessPageStride", [](auto& a) { a.pages.page_stride = int64_t{1} << 39; },
        "pages.page_stride is 549755813888; legal: multiples of 8 from head_dim (128) to 549755813880"),
    of_pages(
        "NoSequence", [](auto& a) { a.sequence = {}; },
        "keys are paged and sequence is not given; its k_len says how many they are"),
    of_pages(
        "MoreKeysThanPages", [](auto& a) { a.sequence.k_len = 1025; },
        "sequence.k_begin is 0, k_len 1025; legal: inside the 1024 tokens of its pages"),
};

constexpr const char* kE4M3Configs =
    "it has bf16, f16 with e4m3 keys, head_dim 128, rows of 128 and blocks of 64, 128";

const Refusal kE4M3[] = {
    of_e4m3(
        "E4M3Queries", [](auto& a) { a.q.dtype = a.out.dtype = DType::kE4M3; },
        "q.dtype is e4m3; legal: bf16, f16; only k and v may be e4m3"),
    of_e4m3(
        "E4M3Out", [](auto& a) { a.out.dtype = DType::kE4M3; },
        "out.dtype is e4m3, q's is bf16; they must be equal"),
    of_e4m3(
        "KeysAlone", [](auto& a) { a.v.dtype = DType::kBF16; },
        "v.dtype is bf16, k's is e4m3; they must be equal"),
    of_e4m3(
        "ValuesAlone", [](auto& a) { a.k.dtype = DType::kBF16; },
        "v.dtype is e4m3, k's is bf16; they must be equal"),
    {"KeyScaleWithoutE4M3", [](auto& a) { a.k_scale = address<float>(0x5000); },
     "k_scale is given and k.dtype is bf16; legal with e4m3 only"},
    {"ValueScaleWithoutE4M3", [](auto& a) { a.v_scale = address<float>(0x5000); },
     "v_scale is given and k.dtype is bf16; legal with e4m3 only"},
    of_e4m3(
        "MisalignedKeyScale", [](auto& a) { a.k_scale = address<float>(0x5002); },
        "k_scale is not aligned to 4 bytes; move it"),
    of_e4m3(
        "MisalignedValueScale", [](auto& a) { a.v_scale = address<float>(0x5001); },
        "v_scale is not aligned to 4 bytes; move it"),
    of_e4m3(
        "E4M3Strides", [](auto& a) { a.k.token_stride = 264; },
        "k.token_stride is 264; legal: multiples of 16 from head_dim (128) to 1099511627760"),
    of_e4m3(
        "EndlessE4M3Strides", [](auto& a) { a.v.head_stride = int64_t{1} << 40; },
        "v.head_stride is 1099511627776; legal: multiples of 16 from head_dim (128) to 1099511627760"),
    of_e4m3(
        "E4M3HeadDim", [](auto& a) { set_head_dim(a, 64); },
        std::string("dtype bf16 with e4m3 keys, head_dim 64, rows of 128 queries and blocks of 128 keys are "
                    "not in this build; ") +
            kE4M3Configs,
        Code::kUnsupported),
    of_e4m3(
        "E4M3RowsOf64", [](auto& a) { a.q_block = a.k_block = 64; },
        std::string(
            "dtype bf16 with e4m3 keys, head_dim 128, rows of 64 queries and blocks of 64 keys are not "
            "in this build; ") +
            kE4M3Configs,
        Code::kUnsupported),
};

const auto kName = [](const auto& param) { return std::string(param.param.name); };
INSTANTIATE_TEST_SUITE_P(Tensors, AttendRefusal, testing::ValuesIn(kTensors), kName);
INSTANTIATE_TEST_SUITE_P(Others, AttendRefusal, testing::ValuesIn(kOthers), kName);
INSTANTIATE_TEST_SUITE_P(Sequences, AttendRefusal, testing::ValuesIn(kSequences), kName);
INSTANTIATE_TEST_SUITE_P(Pages, AttendRefusal, testing::ValuesIn(kPages), kName);
INSTANTIATE_TEST_SUITE_P(E4M3, AttendRefusal, testing::ValuesIn(kE4M3), kName);

void PrintTo(const Refusal& refusal, std::ostream* os) {
  *os << refusal.name;
}

}  // namespace
}  // namespace routerelay::cuda
