// Jobs on several providers, one of which fails: the groups go to those that the job names, and to
// no others.

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "backends/core/error.h"
#include "tests/server/job_test_server.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

using tenon::testing::FakeProvider;
using Entry = FakeProvider::Entry;

// Beside "fake" a second scripted provider, "other", whose groups wait until "fake" was asked.
class JobFaultTest : public ::testing::Test {
 protected:
  JobFaultTest() {
    other_.slice_value = [this](int64_t block, int64_t slice, int64_t element) {
      while (waits_for_fake_ && server_.fake().calls(Entry::kRunGroup) == 0) {
        std::this_thread::yield();
      }
      return FakeProvider::SliceValue(block, slice, element);
    };
    AddProvider("other", other_.api(), other_.options(), &server_.state());
    server_.StartRunner();
  }

  static v1::SubmitContractionHeader JobOn(const std::string& id,
                                           const std::vector<std::string>& providers) {
    v1::SubmitContractionHeader header = SlicedJob(id, providers.front());
    auto* execution = header.mutable_contraction()->mutable_execution();
    for (size_t i = 1; i < providers.size(); ++i) execution->add_providers(providers[i]);
    execution->set_threads(static_cast<int32_t>(providers.size()));
    return header;
  }
  v1::Job Run(const v1::SubmitContractionHeader& header) {
    const auto submitted = server_.Submit(header);
    EXPECT_EQ(Summary(submitted.status), "OK");
    return server_.Wait(submitted.response.job().name());
  }
  // The bytes of the job when nothing fails.
  std::string Undisturbed() {
    waits_for_fake_ = false;
    const v1::Job job = Run(JobOn("undisturbed", {"other"}));
    EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
    return server_.ReadAll(job.name()).bytes;
  }

  TestFolder folder_;
  FakeProvider other_{"other"};
  std::atomic<bool> waits_for_fake_ = true;
  JobTestServer server_{folder_.path(), {.run = false}};
};

class JobMoveTest : public JobFaultTest, public ::testing::WithParamInterface<Reason> {};

TEST_P(JobMoveTest, AFailedGroupGoesToTheOtherProviderThatIsNamed) {
  server_.fake().FailNth(Entry::kRunGroup, 1, Error(GetParam(), "broken"));
  const v1::Job job = Run(JobOn("both", {"fake", "other"}));
  ASSERT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
  EXPECT_EQ(job.resume_count(), 0) << "it was not interrupted";
  ASSERT_EQ(job.report().moved_groups_size(), 1);
  const v1::GroupMove& moved = job.report().moved_groups(0);
  EXPECT_EQ(moved.from_provider(), "fake");
  EXPECT_EQ(moved.to_provider(), "other");
  EXPECT_EQ(moved.error().reason(), ReasonName(GetParam()));
  EXPECT_EQ(server_.ReadAll(job.name()).bytes, Undisturbed());
}

INSTANTIATE_TEST_SUITE_P(Faults, JobMoveTest,
                         ::testing::Values(Reason::kInternal, Reason::kDeviceMemory,
                                           Reason::kDeviceFault),
                         [](const auto& info) { return std::string(ReasonName(info.param)); });

TEST_F(JobFaultTest, AGroupThatAllNamedProvidersFailEndsTheJob) {
  server_.fake().FailNth(Entry::kRunGroup, 0, Error(Reason::kInternal, "broken"));
  other_.FailNth(Entry::kRunGroup, 0, Error(Reason::kInternal, "broken too"));
  const v1::Job job = Run(JobOn("both", {"fake", "other"}));
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.error().reason(), "INTERNAL");
  EXPECT_EQ(job.resume_count(), 0);
}

TEST_F(JobFaultTest, WithOneProviderNamedNoOtherIsAsked) {
  server_.fake().FailNth(Entry::kRunGroup, 1, Error(Reason::kInternal, "broken"));
  const v1::Job job = Run(JobOn("one", {"fake"}));
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.error().reason(), "INTERNAL");
  EXPECT_EQ(server_.fake().calls(Entry::kRunGroup), 1);
  EXPECT_EQ(other_.calls(Entry::kRunGroup), 0);
}

}  // namespace
}  // namespace tenon::server
