#include "server/shared_memory_listener.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/core/error.h"
#include "server/logging.h"
#include "tenon/v1/shared_memory.pb.h"
#include "tests/server/shared_memory_support.h"
#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using tenon::testing::Fails;

constexpr int64_t kMiB = int64_t{1} << 20;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

// A client that may do anything wrong.
class RawClient {
 public:
  explicit RawClient(const std::string& path) : fd_(socket(AF_UNIX, SOCK_SEQPACKET, 0)) {
    const sockaddr_un address = AddressOf(path);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { Close(); }
  bool connected() const { return connected_; }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

  void Send(std::string bytes, const std::vector<int>& descriptors) {
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const size_t size = descriptors.size() * sizeof(int);
    std::vector<char> control(CMSG_SPACE(size));
    if (!descriptors.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* item = CMSG_FIRSTHDR(&message);
      item->cmsg_level = SOL_SOCKET;
      item->cmsg_type = SCM_RIGHTS;
      item->cmsg_len = CMSG_LEN(size);
      std::memcpy(CMSG_DATA(item), descriptors.data(), size);
    }
    sendmsg(fd_, &message, MSG_NOSIGNAL);  // a refusal may be there already, and the end with it
  }
  void SendHello(int descriptor, int version = 1) {
    v1::SharedMemoryHello hello;
    hello.set_version(version);
    Send(hello.SerializeAsString(), {descriptor});
  }

  // Empty at the end of the connection.
  v1::SharedMemoryWelcome Receive() {
    char buffer[4096];
    v1::SharedMemoryWelcome welcome;
    ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
    // The other side has closed with our hello unread; its answer stands behind that error.
    if (got < 0 && errno == ECONNRESET) got = recv(fd_, buffer, sizeof(buffer), 0);
    EXPECT_TRUE(welcome.ParseFromArray(buffer, static_cast<int>(std::max<ssize_t>(got, 0))));
    return welcome;
  }
  bool AtEnd() {
    char byte;
    return recv(fd_, &byte, 1, 0) <= 0;
  }

 private:
  int fd_;
  bool connected_ = false;
};

class SharedMemoryListenerTest : public ::testing::Test {
 protected:
  SharedMemoryListenerTest() {
    InitLogging("error", false);
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) / (std::string("shm-") + test->name());
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "s").string();
    memory_ = std::make_unique<SharedMemory>(&budget_,
                                             SharedMemory::Options{path_, 8 * kMiB, 4 * kMiB, 4});
  }
  ~SharedMemoryListenerTest() override {
    listener_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Start(const std::vector<uid_t>& uids = {}) {
    auto listener = SharedMemoryListener::Start(uids, memory_.get());
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }
  // Waits until so many pools are mapped; false after half a minute.
  bool AwaitPools(int64_t pools) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (memory_->figures().pools != pools) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::yield();
    }
    return true;
  }

  std::filesystem::path folder_;
  std::string path_;
  MemoryBudget budget_{64 * kMiB};
  std::unique_ptr<SharedMemory> memory_;
  std::unique_ptr<SharedMemoryListener> listener_;
};

TEST_F(SharedMemoryListenerTest, APoolLivesAsLongAsItsConnection) {
  Start();
  const TestMemory memory("life", kMiB);
  RawClient client(path_);
  client.SendHello(memory.fd());
  const v1::SharedMemoryWelcome welcome = client.Receive();
  EXPECT_FALSE(welcome.has_error()) << welcome.error().message();
  EXPECT_EQ(welcome.size_bytes(), kMiB);
  EXPECT_TRUE(memory_->Find(welcome.pool(), "").ok());
  EXPECT_EQ(MappingsOf("life"), 2);
  client.Close();
  EXPECT_TRUE(AwaitPools(0));
  EXPECT_TRUE(Fails(memory_->Find(welcome.pool(), ""), Reason::kNotFound));
  EXPECT_EQ(MappingsOf("life"), 1);
}

TEST_F(SharedMemoryListenerTest, EveryClientHasItsOwn) {
  Start();
  const TestMemory memory_a("pool-a", kMiB), memory_b("pool-b", kMiB);
  RawClient a(path_), b(path_);
  a.SendHello(memory_a.fd());
  b.SendHello(memory_b.fd());
  const std::string token_a = a.Receive().pool(), token_b = b.Receive().pool();
  EXPECT_NE(token_a, token_b);
  a.Close();
  EXPECT_TRUE(AwaitPools(1));
  EXPECT_TRUE(Fails(memory_->Find(token_a, ""), Reason::kNotFound));
  EXPECT_TRUE(memory_->Find(token_b, "").ok());
}

TEST_F(SharedMemoryListenerTest, RefusesWithTheReasonAndEnds) {
  Start();
  const TestMemory good("good", kMiB), unsealed("unsealed", kMiB, 0), large("large", 5 * kMiB);
  const auto expect = [&](const std::string& reason, const auto& send) {
    RawClient client(path_);
    send(client);
    EXPECT_EQ(client.Receive().error().reason(), reason);
    EXPECT_TRUE(client.AtEnd());
  };
  v1::SharedMemoryHello hello;
  hello.set_version(1);
  const std::string bytes = hello.SerializeAsString();
  expect("BAD_PARAMETER", [&](RawClient& client) { client.SendHello(unsealed.fd()); });
  expect("EXCEEDS_SERVER_LIMIT", [&](RawClient& client) { client.SendHello(large.fd()); });
  expect("NOT_IMPLEMENTED", [&](RawClient& client) { client.SendHello(good.fd(), 2); });
  expect("MISSING_FIELD", [&](RawClient& client) { client.Send(bytes, {}); });
  expect("MALFORMED_FRAME", [&](RawClient& client) { client.Send("\xff\xff", {good.fd()}); });
  expect("MALFORMED_FRAME", [&](RawClient& client) { client.Send(bytes, {good.fd(), good.fd()}); });
  expect("MALFORMED_FRAME",
         [&](RawClient& client) { client.Send(bytes, std::vector<int>(200, good.fd())); });
  expect("MALFORMED_FRAME",
         [&](RawClient& client) { client.Send(std::string(8192, 'x'), {good.fd()}); });
  EXPECT_EQ(memory_->figures().pools, 0);
}

TEST_F(SharedMemoryListenerTest, NothingMayFollowTheHello) {
  Start();
  const TestMemory memory("talkative", kMiB);
  RawClient client(path_);
  client.SendHello(memory.fd());
  EXPECT_FALSE(client.Receive().has_error());
  client.Send("more", {});
  EXPECT_TRUE(client.AtEnd());
  EXPECT_TRUE(AwaitPools(0));
}

TEST_F(SharedMemoryListenerTest, ReplacesASocketThatNobodyServes) {
  const sockaddr_un address = AddressOf(path_);
  const int dead = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  ASSERT_EQ(bind(dead, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  close(dead);
  ASSERT_TRUE(std::filesystem::exists(path_));
  Start();
  EXPECT_TRUE(RawClient(path_).connected());
  struct stat file {};
  ASSERT_EQ(lstat(path_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & ACCESSPERMS, mode_t{S_IRUSR | S_IWUSR});  // for this user alone
  listener_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SharedMemoryListenerTest, TakesNobodysPlace) {
  Start();
  EXPECT_TRUE(Fails(SharedMemoryListener::Start({}, memory_.get()), Reason::kBadParameter,
                    "shared_memory_socket"));
  EXPECT_TRUE(RawClient(path_).connected());  // the first one still serves
  listener_.reset();
  std::ofstream(path_) << "a file";
  EXPECT_TRUE(Fails(SharedMemoryListener::Start({}, memory_.get()), Reason::kBadParameter,
                    "shared_memory_socket"));
  EXPECT_TRUE(std::filesystem::is_regular_file(path_));
}

TEST_F(SharedMemoryListenerTest, OthersMayOnlyConnectWhereSomeAreNamed) {
  constexpr uid_t kSomebody = 54321;
  Start({kSomebody});
  struct stat file {};
  ASSERT_EQ(lstat(path_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & ACCESSPERMS, mode_t{DEFFILEMODE});
  const TestMemory memory("own", kMiB);
  RawClient client(path_);
  client.SendHello(memory.fd());
  EXPECT_FALSE(client.Receive().has_error());  // its own user still may
}

// Another user needs root to be played.
TEST_F(SharedMemoryListenerTest, RefusesOtherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  constexpr uid_t kSomebody = 54321, kNobody = 54322;
  Start({kSomebody});
  std::filesystem::permissions(folder_, std::filesystem::perms::all);
  const TestMemory memory("foreign", kMiB);
  const auto outcome_as = [&](uid_t uid) {
    // Credentials belong to a thread where the system call is made directly.
    std::string reason;
    std::thread other([&] {
      ASSERT_EQ(syscall(SYS_setresuid, uid, uid, -1), 0);
      RawClient client(path_);
      ASSERT_TRUE(client.connected());
      client.SendHello(memory.fd());
      reason = client.Receive().error().reason();
    });
    other.join();
    return reason;
  };
  EXPECT_EQ(outcome_as(kSomebody), "");
  EXPECT_EQ(outcome_as(kNobody), "PERMISSION_DENIED");
}

}  // namespace
}  // namespace tenon::server
