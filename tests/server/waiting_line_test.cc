// The order of those who wait: classes, ageing, bounds, expiry.

#include "server/waiting_line.h"

#include <gtest/gtest.h>

#include <string>

namespace tenon::server {
namespace {

using std::chrono::seconds;
using Line = WaitingLine<char>;

const WaitTime kStart = WaitTime() + std::chrono::hours(1000);

Line::Entry Entry(char name, Priority priority, seconds arrived, WaitTime until = WaitTime::max()) {
  return {{static_cast<uint64_t>(name), priority, kStart + arrived, until}, name};
}

std::string Order(Line* line) {
  std::string order;
  while (!line->empty()) order += line->TakeFront().item;
  return order;
}

TEST(WaitingLine, IsFirstComeFirstServedWithinAClass) {
  Line line(10);
  for (const char name : {'a', 'b', 'c'}) line.Push(Entry(name, Priority::kBulk, seconds(0)));
  EXPECT_EQ(line.size(), 3u);
  EXPECT_EQ(Order(&line), "abc");
}

TEST(WaitingLine, ServesAClassBeforeTheOnesAfterIt) {
  Line line(10);
  line.Push(Entry('b', Priority::kBulk, seconds(0)));
  line.Push(Entry('d', Priority::kDefault, seconds(1)));
  line.Push(Entry('i', Priority::kInteractive, seconds(2)));
  EXPECT_EQ(line.Position('b'), 2u);
  EXPECT_EQ(line.Position('d'), 1u);
  EXPECT_EQ(line.Position('i'), 0u);
  EXPECT_FALSE(line.Position('x').has_value());
  EXPECT_EQ(Order(&line), "idb");
}

// One step of waiting makes up for one class, two steps for two; so no class starves.
TEST(WaitingLine, WaitingWorkAges) {
  Line line(10);
  const seconds step = Line::kClassStep;
  line.Push(Entry('b', Priority::kBulk, seconds(0)));
  line.Push(Entry('d', Priority::kDefault, step - seconds(1)));
  line.Push(Entry('e', Priority::kDefault, step + seconds(1)));
  line.Push(Entry('i', Priority::kInteractive, 2 * step - seconds(1)));
  line.Push(Entry('j', Priority::kInteractive, 2 * step + seconds(2)));
  EXPECT_EQ(Order(&line), "dibej");
}

TEST(WaitingLine, FindsTheFirstOfAnotherClass) {
  Line line(10);
  line.Push(Entry('b', Priority::kBulk, seconds(0)));
  EXPECT_EQ(line.FirstNot(Priority::kBulk), nullptr);
  line.Push(Entry('d', Priority::kDefault, 2 * Line::kClassStep));
  line.Push(Entry('e', Priority::kDefault, 2 * Line::kClassStep));
  ASSERT_NE(line.FirstNot(Priority::kBulk), nullptr);
  EXPECT_EQ(line.front().item, 'b');  // it has aged
  EXPECT_EQ(line.FirstNot(Priority::kBulk)->item, 'd');
}

TEST(WaitingLine, BoundsEachClassByItself) {
  Line line(2);
  line.Push(Entry('b', Priority::kBulk, seconds(0)));
  EXPECT_FALSE(line.full(Priority::kBulk));
  line.Push(Entry('c', Priority::kBulk, seconds(0)));
  EXPECT_TRUE(line.full(Priority::kBulk));
  EXPECT_FALSE(line.full(Priority::kInteractive));
  EXPECT_EQ(line.size(Priority::kBulk), 2u);
  EXPECT_EQ(line.size(Priority::kInteractive), 0u);
  line.TakeFront();
  EXPECT_FALSE(line.full(Priority::kBulk));
}

TEST(WaitingLine, TakesOutWhoeverLeavesOrGivesUp) {
  Line line(10);
  line.Push(Entry('a', Priority::kDefault, seconds(0), kStart + seconds(7)));
  line.Push(Entry('b', Priority::kDefault, seconds(0)));
  line.Push(Entry('c', Priority::kBulk, seconds(0), kStart + seconds(5)));
  line.Push(Entry('d', Priority::kBulk, seconds(0), kStart + seconds(9)));
  EXPECT_EQ(line.next_expiry(), kStart + seconds(5));
  EXPECT_TRUE(line.TakeExpired(kStart + seconds(4)).empty());
  const auto expired = line.TakeExpired(kStart + seconds(7));  // its time has come
  ASSERT_EQ(expired.size(), 2u);
  EXPECT_EQ(expired[0].item, 'c');
  EXPECT_EQ(expired[1].item, 'a');
  EXPECT_EQ(line.Remove('d')->item, 'd');
  EXPECT_FALSE(line.Remove('d').has_value());
  EXPECT_EQ(line.next_expiry(), WaitTime::max());
  EXPECT_EQ(Order(&line), "b");
}

}  // namespace
}  // namespace tenon::server
