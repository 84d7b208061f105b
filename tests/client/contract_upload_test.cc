#include "client/cpp/contract_upload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/core/error.h"
#include "client/cpp/wire.h"
#include "tests/client/fake_server.h"

namespace tenon::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeRange;

// "chunk 0/1@4096+100": a chunk of set 0, operand 1, and so on.
std::string Describe(const v1::ContractRequest& frame) {
  if (frame.has_chunk()) {
    const auto& chunk = frame.chunk();
    return StrCat("chunk ", chunk.set(), "/", chunk.operand(), "@", chunk.offset_bytes(), "+",
                  chunk.data().size());
  }
  std::string text = StrCat("set ", frame.operand_set().set(), ":");
  for (const auto& operand : frame.operand_set().operands()) {
    text += StrCat(" ", operand.operand(), "+", operand.data().size());
  }
  return text;
}

std::vector<std::string> SendAll(ContractUpload* upload, absl::Status* status) {
  std::vector<std::string> frames;
  *status = upload->SendRest(65536, [&](const v1::ContractRequest& frame) {
    frames.push_back(Describe(frame));
    return true;
  });
  return frames;
}

TEST(ContractUploadTest, SmallOperandsGoWithTheHeader) {
  const Tensor a = MakeRange({2, 3});
  const Tensor b = MakeRange({3, 4});
  ContractRequest request;
  request.einsum = "ab,bc->ac";
  request.operands = {a, b};
  const auto upload = ContractUpload::Create(request);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_TRUE(upload->header_is_all());
  const v1::Einsum& einsum = upload->header().header().einsum();
  EXPECT_EQ(einsum.subscripts(), "ab,bc->ac");
  ASSERT_EQ(einsum.operands_size(), 2);
  EXPECT_EQ(einsum.operands(1).inline_data(),
            std::string(b.buffer.as<char>(), static_cast<size_t>(b.buffer.size_bytes())));
  EXPECT_EQ(einsum.operands(1).spec().dtype(), v1::DATA_TYPE_FLOAT64);
  EXPECT_THAT(einsum.operands(1).spec().shape(), ElementsAre(3, 4));
}

TEST(ContractUploadTest, LargeOperandsFollowInChunks) {
  const Tensor small = MakeRange({10});
  const Tensor exact = MakeRange({8192});  // 64 KiB: no longer small
  const Tensor large = MakeRange({2 * 8192 + 1});
  ContractRequest request;
  request.einsum = "a,b,c->";
  request.operands = {small, exact, large};
  auto upload = ContractUpload::Create(request);
  ASSERT_TRUE(upload.ok());
  EXPECT_FALSE(upload->header_is_all());
  EXPECT_TRUE(upload->header().header().einsum().operands(0).has_inline_data());
  EXPECT_FALSE(upload->header().header().einsum().operands(1).has_inline_data());
  absl::Status status;
  EXPECT_THAT(SendAll(&*upload, &status),
              ElementsAre("chunk 0/1@0+65536", "chunk 0/2@0+65536", "chunk 0/2@65536+65536",
                          "chunk 0/2@131072+8"));
  EXPECT_TRUE(status.ok());
}

TEST(ContractUploadTest, HeaderAndSetFramesStayUnderTheMessageLimit) {
  const Tensor piece = MakeRange({8000});  // 64000 bytes
  ContractRequest request;
  request.network.emplace();
  for (int i = 0; i < 120; ++i) {
    request.operands.emplace_back(piece);
    request.network->inputs.push_back({StrCat("i", i)});
  }
  auto upload = ContractUpload::Create(request);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_LT(upload->header().ByteSizeLong(), size_t{4} << 20);
  size_t bytes = 0;
  for (const auto& operand : upload->header().header().network().operands()) {
    bytes += operand.inline_data().size();
  }
  EXPECT_GT(bytes, size_t{2} << 20);
  const absl::Status status = upload->SendRest(65536, [&](const v1::ContractRequest& frame) {
    EXPECT_LT(frame.ByteSizeLong(), size_t{4} << 20);
    for (const auto& operand : frame.operand_set().operands()) bytes += operand.data().size();
    return true;
  });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(bytes, 120u * 64000);
}

TEST(ContractUploadTest, HandlesAndEmptyTensorsSendNothing) {
  const Tensor empty = MakeRange({0, 4});
  ContractRequest request;
  request.einsum = "ab,bc->ac";
  request.operands = {empty, Operand()};
  request.operands[1].handle = "tensors/x";
  const auto upload = ContractUpload::Create(request);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_TRUE(upload->header_is_all());
  EXPECT_FALSE(upload->header().header().einsum().operands(0).has_inline_data());
  EXPECT_EQ(upload->header().header().einsum().operands(1).handle(), "tensors/x");
  EXPECT_FALSE(upload->header().header().einsum().operands(1).has_spec());
}

ContractRequest VaryingRequest(const std::vector<Tensor>& sets, const Tensor& fixed) {
  ContractRequest request;
  request.einsum = "a,b->";
  request.operands = {fixed, TensorView(sets[0].spec, {})};
  request.operands[1].varying = true;
  request.next_set = [&sets](int64_t set, std::vector<TensorView>* views) -> absl::StatusOr<bool> {
    if (static_cast<size_t>(set) == sets.size()) return false;
    views->push_back(sets[static_cast<size_t>(set)]);
    return true;
  };
  return request;
}

std::vector<Tensor> MakeSets(int count, const std::vector<int64_t>& shape) {
  std::vector<Tensor> sets;
  for (int i = 0; i < count; ++i) sets.push_back(MakeRange(shape));
  return sets;
}

TEST(ContractUploadTest, SetsBringTheirOwnBytes) {
  const Tensor fixed = MakeRange({3});
  const std::vector<Tensor> small = MakeSets(2, {4});
  const ContractRequest request = VaryingRequest(small, fixed);
  auto upload = ContractUpload::Create(request);
  ASSERT_TRUE(upload.ok());
  EXPECT_FALSE(upload->header_is_all());
  EXPECT_TRUE(upload->header().header().einsum().operands(0).has_inline_data());
  EXPECT_TRUE(upload->header().header().einsum().operands(1).varying());
  EXPECT_FALSE(upload->header().header().einsum().operands(1).has_inline_data());
  absl::Status status;
  EXPECT_THAT(SendAll(&*upload, &status), ElementsAre("set 0: 1+32", "set 1: 1+32"));
  EXPECT_TRUE(status.ok());

  const std::vector<Tensor> large = MakeSets(2, {8193});
  const ContractRequest large_request = VaryingRequest(large, fixed);
  auto large_upload = ContractUpload::Create(large_request);
  ASSERT_TRUE(large_upload.ok());
  EXPECT_THAT(SendAll(&*large_upload, &status),
              ElementsAre("chunk 0/1@0+65536", "chunk 0/1@65536+8", "chunk 1/1@0+65536",
                          "chunk 1/1@65536+8"));
}

TEST(ContractUploadTest, SetsWithoutBytesAreAnnounced) {
  const Tensor fixed = MakeRange({3});
  const std::vector<Tensor> sets = MakeSets(2, {0});
  const ContractRequest request = VaryingRequest(sets, fixed);
  auto upload = ContractUpload::Create(request);
  ASSERT_TRUE(upload.ok());
  absl::Status status;
  EXPECT_THAT(SendAll(&*upload, &status), ElementsAre("set 0:", "set 1:"));
}

TEST(ContractUploadTest, SetsAreChecked) {
  const Tensor fixed = MakeRange({3});
  const std::vector<Tensor> sets = MakeSets(1, {4});
  const Tensor other = MakeRange({5});
  const struct {
    std::vector<TensorView> views;
    const char* field;
  } kCases[] = {{{}, "sets[0]"},
                {{sets[0], sets[0]}, "sets[0]"},
                {{other}, "sets[0].operands[1]"},
                {{TensorView(sets[0].spec, {})}, "sets[0].operands[1]"}};
  for (const auto& c : kCases) {
    ContractRequest request = VaryingRequest(sets, fixed);
    request.next_set = [&c](int64_t, std::vector<TensorView>* views) -> absl::StatusOr<bool> {
      *views = c.views;
      return true;
    };
    auto upload = ContractUpload::Create(request);
    ASSERT_TRUE(upload.ok());
    absl::Status status;
    SendAll(&*upload, &status);
    EXPECT_EQ(GetErrorDetails(status).reason, Reason::kShapeMismatch);
    ASSERT_EQ(GetErrorDetails(status).fields.size(), 1u);
    EXPECT_EQ(GetErrorDetails(status).fields[0].first, c.field);
  }
}

TEST(ContractUploadTest, PlanAndNetworkReachTheWire) {
  const Tensor a = MakeRange({2, 2});
  ContractRequest request;
  request.network = Network{{{"x", "y"}, {"y", "z"}}, {"x", "z"}, {{"x", 2}, {"y", 2}, {"z", 2}}};
  request.operands = {a, a};
  request.path = PathSteps{PathSteps::Format::kSsa, {{0, 1}}};
  request.sliced = {"y"};
  request.execution.add_providers("cpu");
  request.result.set_chunk_bytes(4096);
  request.expected_sets = 3;
  const auto header = BuildContractHeader(request, true);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(header->network().operands(0).indices(), ElementsAre("x", "y"));
  EXPECT_THAT(header->network().output(), ElementsAre("x", "z"));
  EXPECT_EQ(header->network().index_sizes().at("y"), 2);
  EXPECT_THAT(header->path().sliced_indices(), ElementsAre("y"));
  EXPECT_EQ(header->execution().providers(0), "cpu");
  EXPECT_EQ(header->result().chunk_bytes(), 4096);
  EXPECT_EQ(header->expected_sets(), 3);
}

struct BadRequestCase {
  const char* name;
  std::function<void(ContractRequest*)> change;
  Reason reason;
  const char* field;
};

TEST(ContractUploadTest, RefusesWhatCanNotBeRight) {
  const Tensor a = MakeRange({2, 2});
  const BadRequestCase kCases[] = {
      {"no expression", [](auto* r) { r->einsum = ""; }, Reason::kMissingField,
       "header.expression"},
      {"two expressions", [](auto* r) { r->network.emplace(); }, Reason::kMissingField,
       "header.expression"},
      {"bytes and shape",
       [](auto* r) {
         r->operands[1].tensor.spec.shape = {3, 2};
       },
       Reason::kShapeMismatch, "header.einsum.operands[1].spec"},
      {"no element type", [](auto* r) { r->operands[0].tensor.spec.dtype = DType::kUnspecified; },
       Reason::kMissingField, "header.einsum.operands[0].spec"},
      {"bad text", [](auto* r) { r->einsum = "a\xFF"; }, Reason::kBadExpression,
       "header.einsum.subscripts"},
      {"two plans",
       [](auto* r) {
         r->plan_id = "plans/x";
         r->search.emplace();
       },
       Reason::kBadHeader, "header.plan"},
      {"slices without path", [](auto* r) { r->sliced = {"a"}; }, Reason::kBadSlice, "header.path"},
      {"varying without sets", [](auto* r) { r->operands[0].varying = true; }, Reason::kBadHeader,
       "next_set"},
      {"sets without varying",
       [](auto* r) {
         r->next_set = [](int64_t, std::vector<TensorView>*) -> absl::StatusOr<bool> {
           return false;
         };
       },
       Reason::kBadHeader, "next_set"},
      {"handle and varying",
       [](auto* r) {
         r->operands[0].varying = true;
         r->operands[0].handle = "tensors/x";
       },
       Reason::kBadHeader, "header.einsum.operands[0]"},
      {"network and operands",
       [](auto* r) {
         r->einsum = "";
         r->network = Network{{{"x"}}, {}, {}};
       },
       Reason::kShapeMismatch, "header.network.operands"},
      {"bad index name",
       [](auto* r) {
         r->einsum = "";
         r->network = Network{{{"x", "\xC0"}, {"x", "y"}}, {}, {}};
       },
       Reason::kBadExpression, "header.network.operands[0].indices[1]"},
  };
  for (const BadRequestCase& c : kCases) {
    ContractRequest request;
    request.einsum = "ab,bc->ac";
    request.operands = {a, a};
    c.change(&request);
    const auto upload = ContractUpload::Create(request);
    ASSERT_FALSE(upload.ok()) << c.name;
    const ErrorDetails details = GetErrorDetails(upload.status());
    EXPECT_EQ(details.reason, c.reason) << c.name;
    ASSERT_EQ(details.fields.size(), 1u) << c.name;
    EXPECT_EQ(details.fields[0].first, c.field) << c.name;
  }
}

}  // namespace
}  // namespace tenon::client
