#include "client/cpp/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>

#include "tests/client/fake_server.h"

namespace tenon::client {
namespace {

using ::testing::HasSubstr;
using testing::MakeStatus;

TEST(StatusTest, KeepsEverythingThatTheServerSaid) {
  const absl::Status status = StatusFromGrpc(MakeStatus({grpc::StatusCode::INVALID_ARGUMENT,
                                                         "SHAPE_MISMATCH",
                                                         "sizes differ",
                                                         "header.network",
                                                         {{"limit_bytes", "12"}},
                                                         0.5}),
                                             "here");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "sizes differ");
  const ErrorDetails details = GetErrorDetails(status);
  EXPECT_EQ(details.reason, Reason::kShapeMismatch);
  ASSERT_EQ(details.fields.size(), 1u);
  EXPECT_EQ(details.fields[0],
            (std::pair<std::string, std::string>("header.network", "wrong here")));
  EXPECT_EQ(details.metadata.at("limit_bytes"), "12");
  const auto error = ServerErrorOf(status);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->reason, "SHAPE_MISMATCH");
  EXPECT_NEAR(error->retry_delay_seconds.value(), 0.5, 1e-9);
  EXPECT_FALSE(IsUnreachable(status));
}

// What overtakes frames that nobody reads has no details.
TEST(StatusTest, AReasonMayStandInTheMessage) {
  const absl::Status status =
      StatusFromGrpc(grpc::Status(grpc::StatusCode::ABORTED, "SLOW_READER: too slow"), "here");
  EXPECT_EQ(ServerErrorOf(status)->reason, "SLOW_READER");
  EXPECT_EQ(GetErrorDetails(status).reason, Reason::kSlowReader);
  // A name alone proves nothing.
  for (const char* text : {"NOT_FOUND: x", "x", "SLOW_READERS: x", ""}) {
    const absl::Status other =
        StatusFromGrpc(grpc::Status(grpc::StatusCode::ABORTED, text), "here");
    EXPECT_EQ(ServerErrorOf(other)->reason, "") << text;
  }
}

TEST(StatusTest, TheServersCodeWins) {
  const absl::Status status =
      StatusFromGrpc(MakeStatus({grpc::StatusCode::ABORTED, "NOT_FOUND", "x", "", {}, 0}), "here");
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(GetErrorDetails(status).reason, Reason::kNotFound);
}

TEST(StatusTest, UnknownReasonsStayAsText) {
  const absl::Status status = StatusFromGrpc(
      MakeStatus(
          {grpc::StatusCode::FAILED_PRECONDITION, "SOMETHING_NEW", "x", "", {{"a", "b"}}, 0}),
      "here");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ServerErrorOf(status)->reason, "SOMETHING_NEW");
  EXPECT_EQ(ServerErrorOf(status)->metadata.at("a"), "b");
  EXPECT_EQ(ServerErrorOf(status)->retry_delay_seconds, std::nullopt);
}

TEST(StatusTest, UnreachableIsUnavailableWithoutDetails) {
  const absl::Status gone =
      StatusFromGrpc({grpc::StatusCode::UNAVAILABLE, "Connection refused"}, "host:1");
  EXPECT_TRUE(IsUnreachable(gone));
  EXPECT_THAT(std::string(gone.message()), HasSubstr("host:1: Connection refused"));
  const absl::Status draining = StatusFromGrpc(
      MakeStatus({grpc::StatusCode::UNAVAILABLE, "DRAINING", "x", "", {}, 1}), "host:1");
  EXPECT_FALSE(IsUnreachable(draining));
  EXPECT_TRUE(
      IsUnreachable(StatusFromGrpc({grpc::StatusCode::DEADLINE_EXCEEDED, "x"}, "h", false)));
  EXPECT_FALSE(
      IsUnreachable(StatusFromGrpc({grpc::StatusCode::DEADLINE_EXCEEDED, "x"}, "h", true)));
  EXPECT_FALSE(IsUnreachable(absl::UnavailableError("local")));
  EXPECT_FALSE(ServerErrorOf(absl::UnavailableError("local")).has_value());
}

TEST(StatusTest, OddStatusesDoNoHarm) {
  EXPECT_TRUE(StatusFromGrpc(grpc::Status::OK, "x").ok());
  const absl::Status garbage =
      StatusFromGrpc({grpc::StatusCode::INTERNAL, "x\xFF", "\xFF\xFF not a message"}, "x");
  EXPECT_EQ(garbage.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ServerErrorOf(garbage)->reason, "");
}

TEST(StatusTest, DetailsOfItems) {
  v1::ErrorDetail detail;
  detail.set_code(3);
  detail.set_reason("NOT_FINITE");
  detail.set_field("projection");
  detail.set_message("a NaN");
  (*detail.mutable_metadata())["row"] = "7";
  detail.set_retry_delay_seconds(1.25);
  const absl::Status status = StatusFromDetail(detail);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetErrorDetails(status).reason, Reason::kNotFinite);
  EXPECT_EQ(GetErrorDetails(status).fields[0].first, "projection");
  EXPECT_EQ(GetErrorDetails(status).metadata.at("row"), "7");
  EXPECT_NEAR(ServerErrorOf(status)->retry_delay_seconds.value(), 1.25, 1e-9);
  for (const double delay : {std::nan(""), -1.0, std::numeric_limits<double>::infinity()}) {
    detail.set_retry_delay_seconds(delay);
    EXPECT_GE(ServerErrorOf(StatusFromDetail(detail))->retry_delay_seconds.value(), 0) << delay;
  }
  EXPECT_EQ(StatusFromDetail(v1::ErrorDetail()).code(), absl::StatusCode::kUnknown);
  detail.set_code(99);
  EXPECT_EQ(StatusFromDetail(detail).code(), absl::StatusCode::kUnknown);
}

TEST(StatusTest, ExceptionsBecomeStatuses) {
  EXPECT_EQ(
      GetErrorDetails(CatchExceptions([]() -> absl::Status { throw std::bad_alloc(); })).reason,
      Reason::kExceedsMemoryBudget);
  const absl::Status status =
      CatchExceptions([]() -> absl::Status { throw std::runtime_error("oh"); });
  EXPECT_EQ(GetErrorDetails(status).reason, Reason::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("oh"));
  EXPECT_FALSE(CatchExceptions([]() -> absl::Status { throw 7; }).ok());
  EXPECT_TRUE(CatchExceptions([] { return absl::OkStatus(); }).ok());
}

TEST(CancellerTest, RunsActionsOnceAndLateOnesAtOnce) {
  Canceller canceller;
  int early = 0;
  int removed = 0;
  canceller.Add([&] { ++early; });
  canceller.Remove(canceller.Add([&] { ++removed; }));
  EXPECT_FALSE(canceller.cancelled());
  EXPECT_FALSE(canceller.WaitFor(absl::ZeroDuration()));
  canceller.Cancel();
  EXPECT_TRUE(canceller.cancelled());
  EXPECT_TRUE(canceller.WaitFor(absl::Hours(1)));
  EXPECT_EQ(early, 1);
  EXPECT_EQ(removed, 0);
  int late = 0;
  canceller.Add([&] { ++late; });
  EXPECT_EQ(late, 1);
}

}  // namespace
}  // namespace tenon::client
