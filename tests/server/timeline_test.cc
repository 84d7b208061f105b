#include "server/timeline.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tenon::server {
namespace {

using std::chrono::milliseconds;

TEST(Timeline, TellsSpansInTheOrderOfTheirBeginnings) {
  const Timeline::Clock::time_point start;
  Timeline timeline;
  timeline.Start(start);
  timeline.Add(4, "cpu", 1, start + milliseconds(250), start + milliseconds(500));
  timeline.Add(3, "cuda:0", 0, start + milliseconds(125), start + milliseconds(750));
  google::protobuf::RepeatedPtrField<v1::TimelineEvent> events;
  timeline.Write(&events);
  ASSERT_EQ(events.size(), 2);
  EXPECT_EQ(events[0].ShortDebugString(),
            "item: 3 provider: \"cuda:0\" begin_seconds: 0.125 end_seconds: 0.75");
  EXPECT_EQ(events[1].ShortDebugString(),
            "item: 4 provider: \"cpu\" worker: 1 begin_seconds: 0.25 end_seconds: 0.5");
}

TEST(Timeline, HoldsSoManyOnly) {
  const Timeline::Clock::time_point start;
  Timeline timeline;
  for (size_t i = 0; i <= Timeline::kMaxEvents; ++i) timeline.Add(0, "cpu", 0, start, start);
  google::protobuf::RepeatedPtrField<v1::TimelineEvent> events;
  timeline.Write(&events);
  EXPECT_EQ(static_cast<size_t>(events.size()), Timeline::kMaxEvents);
}

TEST(Timeline, WorkersTakeWhatBeginsWhenTheyAreFree) {
  std::vector<v1::TimelineEvent> events;
  const auto add = [&](const std::string& provider, double begin, double end) {
    v1::TimelineEvent& event = events.emplace_back();
    event.set_provider(provider);
    event.set_begin_seconds(begin);
    event.set_end_seconds(end);
  };
  add("cpu", 2, 4);
  add("cpu", 0, 2);
  add("cpu", 1, 5);
  add("cpu", 4, 6);
  add("other", 1, 2);
  AssignWorkers(&events);
  std::vector<std::pair<double, int>> found;
  for (const auto& event : events) found.emplace_back(event.begin_seconds(), event.worker());
  EXPECT_EQ(found, (std::vector<std::pair<double, int>>{{0, 0}, {1, 1}, {1, 0}, {2, 0}, {4, 0}}));
}

}  // namespace
}  // namespace tenon::server
