// The table of job.proto, cell by cell, written down a second time.

#include "server/job_state.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace tenon::server {
namespace {

const std::map<std::string, std::set<std::string>> kNext = {
    {"queued", {"running", "cancelled", "failed"}},
    {"running", {"succeeded", "failed", "cancelling", "suspended"}},
    {"suspended", {"running", "cancelled", "failed"}},
    {"cancelling", {"cancelled", "succeeded", "failed"}},
    {"succeeded", {}},
    {"failed", {}},
    {"cancelled", {}}};

TEST(JobStateTest, OnlyTheTablesMovesAreLegal) {
  for (const v1::JobState from : kJobStates) {
    for (const v1::JobState to : kJobStates) {
      EXPECT_EQ(MayMove(from, to), kNext.at(JobStateLabel(from)).contains(JobStateLabel(to)))
          << JobStateLabel(from) << " to " << JobStateLabel(to);
    }
  }
}

TEST(JobStateTest, AJobHasEndedWhenNothingFollows) {
  for (const v1::JobState state : kJobStates) {
    EXPECT_EQ(HasEnded(state), kNext.at(JobStateLabel(state)).empty()) << JobStateLabel(state);
  }
}

TEST(JobStateTest, CancellingLeadsWhereTheTableSays) {
  EXPECT_EQ(AfterCancel(v1::JOB_STATE_QUEUED), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(AfterCancel(v1::JOB_STATE_RUNNING), v1::JOB_STATE_CANCELLING);
  EXPECT_EQ(AfterCancel(v1::JOB_STATE_SUSPENDED), v1::JOB_STATE_CANCELLED);
  for (const v1::JobState state : {v1::JOB_STATE_CANCELLING, v1::JOB_STATE_SUCCEEDED,
                                   v1::JOB_STATE_FAILED, v1::JOB_STATE_CANCELLED}) {
    EXPECT_EQ(AfterCancel(state), std::nullopt) << JobStateLabel(state);
  }
}

}  // namespace
}  // namespace tenon::server
