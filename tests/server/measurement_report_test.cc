// No field of a full report that has a meaning stays empty.

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "server/scratch_space.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

using ::testing::IsEmpty;

constexpr int64_t kRows = 60;

// The fields of a message that are not set, "a.b" for inner ones; of repeated messages the first.
void Unset(const google::protobuf::Message& message, const std::string& prefix,
           std::set<std::string>* out) {
  const auto* descriptor = message.GetDescriptor();
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    const std::string name = prefix + field->name();
    if (field->real_containing_oneof() != nullptr) continue;
    if (field->is_repeated()) {
      if (reflection->FieldSize(message, field) == 0) {
        out->insert(name);
      } else if (field->message_type() != nullptr) {
        Unset(reflection->GetRepeatedMessage(message, field, 0), name + ".", out);
      }
    } else if (!reflection->HasField(message, field)) {
      out->insert(name);
    } else if (field->message_type() != nullptr) {
      Unset(reflection->GetMessage(message, field), name + ".", out);
    }
  }
}

std::set<std::string> UnsetOf(const google::protobuf::Message& message) {
  std::set<std::string> unset;
  Unset(message, "", &unset);
  return unset;
}

// Takes out of `unset` what has nothing to tell here, with the reason for which.
std::set<std::string> Without(std::set<std::string> unset, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    EXPECT_EQ(unset.erase(name), 1u) << name << " is set";
  }
  return unset;
}

class ReportTest : public ::testing::Test {
 protected:
  ReportTest() {
    std::string path = ::testing::TempDir() + "/report_XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    root_ = path;
    server_ = std::make_unique<TestServer>(
        TestServerOptions{.scratch_root = root_, .scratch_budget_bytes = int64_t{1} << 30});
  }
  ~ReportTest() override {
    server_.reset();
    std::filesystem::remove_all(root_);
  }

  std::vector<v1::MeasureResponse> Run(const v1::MeasureHeader& header) {
    MeasureClient client(server_.get());
    client.Send(header);
    auto frames = client.Exchange({Frame(InlineProjection(0, MakeMatrix(kRows, 2, 2))),
                                   Frame(InlineProjection(1, MakeMatrix(kRows, 2, 3))),
                                   Frame(InlineProjection(2, MakeMatrix(kRows - 1, 2, 3)))});
    EXPECT_EQ(Summary(client.Finish()), "OK");
    EXPECT_EQ(frames.size(), 5u);
    return frames;
  }
  v1::MeasureHeader FullHeader() const {
    v1::MeasureHeader header =
        Header(MakeMatrix(kRows, 5, 1), {"tnc", "kl_div", "stress", "srho", "nm_stress"}, 5);
    v1::MeasureExecution* execution = header.mutable_execution();
    execution->set_provider("partial");
    execution->set_allow_fallback(true);
    execution->set_pair_order_strategy(v1::PAIR_ORDER_STRATEGY_EXTERNAL);
    execution->set_temporary_budget_bytes(int64_t{1} << 28);
    execution->set_in_flight(2);
    header.mutable_result()->set_report_detail(v1::REPORT_DETAIL_TIMELINE);
    return header;
  }

  std::string root_;
  std::unique_ptr<TestServer> server_;
};

TEST_F(ReportTest, OfTheCall) {
  const auto frames = Run(FullHeader());
  std::set<std::string> unset = UnsetOf(frames[4].summary().report());
  std::erase_if(unset, [](const std::string& name) {
    // Lists have tests of their own below.
    return name.starts_with("original_resources.") || name.starts_with("timing.") ||
           name.starts_with("providers.") || name.starts_with("measures.") ||
           name.starts_with("timeline.") || name.starts_with("errors.");
  });
  EXPECT_THAT(Without(unset,
                      {
                          "memory.measured_peak_bytes",          // can't be told
                          "memory.plan",                         // of contractions
                          "memory_plan.original_working_bytes",  // smaller than the projections'
                          "original_resources_reused",           // they were built
                      }),
              IsEmpty());
}

TEST_F(ReportTest, OfAProjection) {
  const auto frames = Run(FullHeader());
  std::set<std::string> unset = UnsetOf(frames[1].scores().run_info());
  std::erase_if(unset, [](const std::string& name) {
    return name.starts_with("timing.") || name.starts_with("resources.") ||
           name.starts_with("measures.");
  });
  EXPECT_THAT(Without(unset, {"measured_peak_bytes"}), IsEmpty());
}

TEST_F(ReportTest, OfTheAcceptedCall) {
  const auto frames = Run(FullHeader());
  std::set<std::string> unset = UnsetOf(frames[0].accepted());
  std::erase_if(unset, [](const std::string& name) {
    return name.starts_with("original_resources.") || name.starts_with("projection_resources.");
  });
  EXPECT_THAT(Without(unset, {"estimated_first_seconds", "estimated_further_seconds",  // none made
                              "queue_position",                 // first in the queue
                              "dataset_handle",                 // not stored
                              "memory.original_working_bytes",  // smaller than the projections'
                              "granted.progress_interval_seconds", "granted.deadline_seconds"}),
              IsEmpty());
}

TEST_F(ReportTest, OfResources) {
  const auto frames = Run(FullHeader());
  std::vector<v1::ResourceReport> all(frames[4].summary().report().original_resources().begin(),
                                      frames[4].summary().report().original_resources().end());
  for (const auto& resource : frames[1].scores().run_info().resources()) all.push_back(resource);
  std::set<v1::ResourceKind> kinds;
  for (const v1::ResourceReport& resource : all) {
    SCOPED_TRACE(resource.DebugString());
    kinds.insert(resource.key().kind());
    EXPECT_NE(resource.key().space(), v1::RESOURCE_SPACE_UNSPECIFIED);
    EXPECT_EQ(resource.provider().requested(), "partial");
    EXPECT_EQ(resource.provider().fallback_reason().empty(),
              resource.provider().actual() == "partial");
    EXPECT_NE(resource.dtype(), v1::DATA_TYPE_UNSPECIFIED);
    EXPECT_GT(resource.size_bytes(), 0);
    EXPECT_GT(resource.consumers_size(), 0);
    EXPECT_FALSE(resource.algorithm().empty());
    EXPECT_NE(resource.details_case(), v1::ResourceReport::DETAILS_NOT_SET);
    EXPECT_NE(resource.built_in_run(), resource.reused());
    EXPECT_EQ(resource.released(), resource.key().space() != v1::RESOURCE_SPACE_ORIGINAL);
    if (resource.has_density()) {
      EXPECT_GT(resource.density().fused_sigmas_size(), 0);
    }
    if (resource.has_neighbors()) {
      EXPECT_EQ(resource.neighbors().requested_ks(0), 5);
    }
    if (resource.has_pair_statistics()) {
      EXPECT_EQ(resource.pair_statistics().pair_count(), kRows * (kRows - 1) / 2);
      EXPECT_EQ(resource.pair_statistics().strategy(), v1::PAIR_STRATEGY_STREAMING);
      EXPECT_EQ(resource.pair_statistics().fused_measures(0), "stress");
    }
    if (resource.has_ordered_pairs()) {
      EXPECT_EQ(resource.ordered_pairs().strategy(), v1::PAIR_STRATEGY_EXTERNAL);
      EXPECT_TRUE(resource.ordered_pairs().workspace_removed());
      EXPECT_GT(resource.ordered_pairs().temporary_bytes_peak(), 0);
    }
  }
  EXPECT_TRUE(kinds.contains(v1::RESOURCE_KIND_DENSITY));
  EXPECT_TRUE(kinds.contains(v1::RESOURCE_KIND_NEIGHBORS));
  EXPECT_TRUE(kinds.contains(v1::RESOURCE_KIND_PAIR_STATISTICS));
  EXPECT_TRUE(kinds.contains(v1::RESOURCE_KIND_ORDERED_PAIR_STATISTICS));
  EXPECT_TRUE(kinds.contains(v1::RESOURCE_KIND_RANK_COMPARISONS));
}

}  // namespace
}  // namespace tenon::server
