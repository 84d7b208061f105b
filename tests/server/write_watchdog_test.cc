#include "server/write_watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <optional>

#include "backends/core/error.h"

namespace tenon::server {
namespace {

constexpr std::chrono::milliseconds kLimit(20);

class FakeStream : public WatchedStream {
 public:
  bool WriteStalledSince(std::chrono::steady_clock::time_point limit) override {
    looked_at.fetch_add(1);
    return began < limit;
  }
  void CutSlowReader() override {
    began = std::chrono::steady_clock::time_point::max();
    if (on_cut) on_cut();
    cut.set_value();
  }
  void EndCall(const absl::Status& why) override {
    ended_with = GetErrorDetails(why).reason;
    if (on_cut) on_cut();
  }
  ClientWaits WaitsForClient() override {
    asked.fetch_add(1);
    return waits;
  }
  ClientWaits waits;
  std::atomic<int> asked{0};
  std::optional<Reason> ended_with;
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::time_point::max();
  std::function<void()> on_cut;
  std::atomic<int> looked_at{0};
  std::promise<void> cut;
};

TEST(WriteWatchdog, CutsTheStreamThatStandsStillAndNoOther) {
  FakeStream stalled, moving;
  stalled.began = std::chrono::steady_clock::now() - std::chrono::hours(1);
  {
    WriteWatchdog watchdog(kLimit);
    watchdog.Add(&moving);
    watchdog.Add(&stalled);
    stalled.cut.get_future().wait();
    watchdog.Remove(&stalled);
    watchdog.Remove(&moving);
  }
  EXPECT_GE(moving.looked_at.load(), 0);
  EXPECT_EQ(moving.cut.get_future().wait_for(std::chrono::seconds(0)), std::future_status::timeout);
}

// Cancelling a call may run its last reaction on the same thread, and that removes the stream.
TEST(WriteWatchdog, AStreamMayRemoveItselfWhileItIsCut) {
  FakeStream stalled;
  stalled.began = std::chrono::steady_clock::now() - std::chrono::hours(1);
  WriteWatchdog watchdog(kLimit);
  stalled.on_cut = [&] { watchdog.Remove(&stalled); };
  watchdog.Add(&stalled);
  stalled.cut.get_future().wait();
  watchdog.Remove(&stalled);  // waits for the cut to be over
}

TEST(WriteWatchdog, RemoveWaitsForACutUnderWay) {
  FakeStream stalled;
  stalled.began = std::chrono::steady_clock::now() - std::chrono::hours(1);
  std::promise<void> cutting, go_on;
  std::atomic<bool> cut_over{false};
  WriteWatchdog watchdog(kLimit);
  stalled.on_cut = [&] {
    cutting.set_value();
    go_on.get_future().wait();
    cut_over.store(true);
  };
  watchdog.Add(&stalled);
  cutting.get_future().wait();
  auto removed = std::async(std::launch::async, [&] {
    watchdog.Remove(&stalled);
    return cut_over.load();
  });
  go_on.set_value();
  EXPECT_TRUE(removed.get());
}

TEST(WriteWatchdog, EndsAllStreamsThatAreLeft) {
  FakeStream first, second, gone;
  WriteWatchdog watchdog(std::chrono::hours(1));
  for (FakeStream* stream : {&first, &second, &gone}) watchdog.Add(stream);
  watchdog.Remove(&gone);
  first.on_cut = [&] { watchdog.Remove(&first); };  // as gRPC may, on the same thread
  watchdog.EndAll(Error(Reason::kDraining, "the end"));
  watchdog.Remove(&second);
  EXPECT_EQ(first.ended_with, Reason::kDraining);
  EXPECT_EQ(second.ended_with, Reason::kDraining);
  EXPECT_EQ(gone.ended_with, std::nullopt);
}

TEST(WriteWatchdog, EndsStreamsWhoseClientSendsNothing) {
  const auto long_ago = std::chrono::steady_clock::now() - std::chrono::hours(1);
  for (const bool in_upload : {true, false}) {
    FakeStream waits, moves, other;
    (in_upload ? waits.waits.upload : waits.waits.next) = long_ago;
    (in_upload ? other.waits.next : other.waits.upload) = long_ago;  // has no limit
    moves.waits.upload = moves.waits.next =
        std::chrono::steady_clock::now() + std::chrono::hours(1);
    std::promise<void> ended;
    waits.on_cut = [&] {
      waits.waits = {};
      ended.set_value();
    };
    StallLimits limits;
    (in_upload ? limits.upload : limits.idle) = kLimit;
    WriteWatchdog watchdog(limits);
    for (FakeStream* stream : {&other, &moves, &waits}) watchdog.Add(stream);
    ended.get_future().wait();
    for (FakeStream* stream : {&other, &moves, &waits}) watchdog.Remove(stream);
    EXPECT_EQ(waits.ended_with, Reason::kSlowWriter);
    EXPECT_EQ(moves.ended_with, std::nullopt);
    EXPECT_EQ(other.ended_with, std::nullopt);
    EXPECT_GT(other.asked, 0);
  }
}

TEST(WriteWatchdog, TheLimitMayChange) {
  FakeStream stalled;
  stalled.began = std::chrono::steady_clock::now() - std::chrono::minutes(1);
  WriteWatchdog watchdog(std::chrono::hours(1));
  watchdog.Add(&stalled);
  watchdog.SetLimits({.write = kLimit});
  stalled.cut.get_future().wait();
  watchdog.Remove(&stalled);
}

}  // namespace
}  // namespace tenon::server
