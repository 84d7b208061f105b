#include "server/fair_mutex.h"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <thread>

#include "tests/server/waiting_support.h"

namespace tenon::server {
namespace {

TEST(FairMutex, WhoTakesItAgainGoesBehindThoseThatWait) {
  FairMutex mutex;
  std::string order;
  mutex.lock();
  std::thread first([&] {
    const std::lock_guard lock(mutex);
    order += "1";
  });
  Await([&] { return mutex.users() == 2; });
  std::thread second([&] {
    const std::lock_guard lock(mutex);
    order += "2";
  });
  Await([&] { return mutex.users() == 3; });
  mutex.unlock();
  mutex.lock();
  order += "again";
  mutex.unlock();
  first.join();
  second.join();
  EXPECT_EQ(order, "12again");
}

}  // namespace
}  // namespace tenon::server
