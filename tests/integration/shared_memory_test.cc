// The same-host transport from end to end: the client library and the whole server.

#include "server/shared_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/core/error.h"
#include "server/gauges.h"
#include "tenon/client.h"
#include "tests/integration/test_server.h"
#include "tests/server/shared_memory_support.h"
#include "tests/support/status_matchers.h"

extern char** environ;

namespace tenon::testing {
namespace {

using client::Client;
using client::ContractOutcome;
using client::ContractRequest;
using client::ContractResult;
using client::SharedBlock;
using client::SharedPool;
using client::TensorView;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr char kPoolName[] = "tenon-pool";

// Values that differ from place to place, the same on every run; finite.
Tensor MakeTensor(TensorSpec spec, uint64_t seed) {
  auto tensor = MakeCorpusTensor(seed, 0, 1.0, spec);
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  return *std::move(tensor);
}

std::string BytesOf(const TensorView& view) {
  return {reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()};
}

class SharedMemoryEndToEnd : public ::testing::Test {
 protected:
  SharedMemoryEndToEnd() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) / (std::string("shm-") + test->name());
    std::filesystem::create_directories(folder_);
    socket_ = (folder_ / "s").string();
    config_ = TestConfig();
    config_.listen = {*server::ParseAddress("unix:" + (folder_ / "g").string())};
    config_.memory_budget_bytes = 512 * kMiB;
    config_.shared_memory_socket = socket_;
    config_.shared_memory_limit_bytes = 256 * kMiB;
    config_.shared_memory_pool_limit_bytes = 128 * kMiB;
  }
  ~SharedMemoryEndToEnd() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Start() {
    server_ = StartOrDie(config_);
    ASSERT_NE(server_, nullptr);
    ASSERT_TRUE(server_->WaitUntilReady());
  }
  Client Connect() {
    auto client = Client::Connect(server_->addresses().front());
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }
  std::shared_ptr<SharedPool> Pool(Client* client, int64_t bytes = 64 * kMiB) {
    auto pool = client->OpenSharedPool(bytes);
    EXPECT_TRUE(pool.ok()) << pool.status();
    return *pool;
  }
  server::SharedMemory::Figures Figures() { return server_->state()->shared_memory->figures(); }
  static bool Await(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  std::filesystem::path folder_;
  std::string socket_;
  server::Config config_;
  std::unique_ptr<server::Server> server_;
};

ContractRequest Product(const Tensor& a, const Tensor& b) {
  ContractRequest request;
  request.einsum = "ab,bc->ac";
  request.operands = {a, b};
  return request;
}

// The same question with everything sent, and with everything in the pool.
struct Pair {
  ContractOutcome sent, shared;
};
void AskBothWays(Client* client, ContractRequest request, const std::shared_ptr<SharedPool>& pool,
                 Pair* pair) {
  request.result.set_checksums(true);
  auto sent = client->Contract(request);
  ASSERT_TRUE(sent.ok()) << sent.status();
  request.pool = pool;
  request.result_in_pool = true;
  auto shared = client->Contract(request);
  ASSERT_TRUE(shared.ok()) << shared.status();
  *pair = {*std::move(sent), *std::move(shared)};
}

TEST_F(SharedMemoryEndToEnd, ResultsHaveTheBitsOfThoseThatAreSent) {
  Start();
  Client client = Connect();
  const auto pool = Pool(&client);
  const struct {
    DType a, b;
    v1::DataType result, accumulate;
    bool normalize;
  } cases[] = {
      {DType::kFloat64, DType::kFloat64, v1::DATA_TYPE_UNSPECIFIED, v1::DATA_TYPE_UNSPECIFIED,
       false},
      {DType::kFloat32, DType::kFloat64, v1::DATA_TYPE_UNSPECIFIED, v1::DATA_TYPE_UNSPECIFIED,
       false},
      {DType::kComplex64, DType::kComplex64, v1::DATA_TYPE_UNSPECIFIED, v1::DATA_TYPE_COMPLEX128,
       false},
      {DType::kFloat64, DType::kFloat64, v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_UNSPECIFIED, false},
      {DType::kFloat32, DType::kComplex128, v1::DATA_TYPE_UNSPECIFIED, v1::DATA_TYPE_UNSPECIFIED,
       false},
      {DType::kFloat64, DType::kFloat64, v1::DATA_TYPE_UNSPECIFIED, v1::DATA_TYPE_UNSPECIFIED,
       true},
  };
  for (const auto& test : cases) {
    const Tensor a = MakeTensor({test.a, {150, 170}}, 1), b = MakeTensor({test.b, {170, 190}}, 2);
    ContractRequest request = Product(a, b);
    request.result.set_dtype(test.result);
    request.execution.set_accumulate_dtype(test.accumulate);
    request.execution.set_normalize(test.normalize);
    Pair pair;
    AskBothWays(&client, request, pool, &pair);
    if (HasFatalFailure()) return;
    const ContractResult &sent = pair.sent.results.at(0), &shared = pair.shared.results.at(0);
    EXPECT_EQ(sent.block, nullptr);
    ASSERT_NE(shared.block, nullptr);
    EXPECT_EQ(shared.tensor.spec, sent.tensor.spec);
    EXPECT_EQ(shared.log10_scale, sent.log10_scale);
    EXPECT_TRUE(BytesOf(shared.view()) == BytesOf(sent.view()));
  }
  EXPECT_EQ(Figures().found, static_cast<int64_t>(std::size(cases)));
  EXPECT_EQ(Figures().not_found, 0);
  EXPECT_EQ(pool->free_bytes(), pool->size_bytes());
}

// Operands that were made in the pool are not copied, and what a call needs is used again.
TEST_F(SharedMemoryEndToEnd, RegionsAreUsedAgain) {
  Start();
  Client client = Connect();
  const auto pool = Pool(&client, 4 * kMiB);
  const TensorSpec spec{DType::kFloat64, {256, 256}};
  const Tensor a = MakeTensor(spec, 1), b = MakeTensor(spec, 2);
  const auto sent = client.Contract(Product(a, b));
  ASSERT_TRUE(sent.ok()) << sent.status();
  const std::string expected = BytesOf(sent->results.at(0).view());

  auto block = pool->Allocate(a.buffer.size_bytes());
  ASSERT_TRUE(block.ok());
  std::memcpy(block->bytes().data(), a.buffer.data(), block->bytes().size());
  ContractRequest request = Product(a, b);
  request.operands[0] = TensorView(spec, block->bytes());
  request.pool = pool;
  request.result_in_pool = true;
  int64_t place = -1;
  for (int i = 0; i < 300; ++i) {
    auto outcome = client.Contract(request);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    const ContractResult& result = outcome->results.at(0);
    ASSERT_NE(result.block, nullptr);
    if (place < 0) place = result.block->offset_bytes();
    ASSERT_EQ(result.block->offset_bytes(), place);
    ASSERT_TRUE(BytesOf(result.view()) == expected);
  }
  EXPECT_EQ(server::MappingsOf(kPoolName), 2);  // ours and the server's
  block->Release();
  EXPECT_EQ(pool->free_bytes(), pool->size_bytes());
  EXPECT_EQ(Figures().found, 300);
}

TEST_F(SharedMemoryEndToEnd, SetsInThePool) {
  Start();
  Client client = Connect();
  const auto pool = Pool(&client);
  constexpr int kSets = 40;
  const TensorSpec spec{DType::kFloat32, {160, 160}};
  std::vector<Tensor> sets;
  for (int i = 0; i < kSets; ++i) sets.push_back(MakeTensor(spec, 100 + i));
  const Tensor fixed = MakeTensor(spec, 3);
  ContractRequest request = Product(fixed, sets[0]);
  request.operands[1].varying = true;
  request.next_set = [&](int64_t set, std::vector<TensorView>* views) {
    if (set == kSets) return false;
    views->emplace_back(sets[set]);
    return true;
  };
  Pair pair;
  AskBothWays(&client, request, pool, &pair);
  if (HasFatalFailure()) return;
  ASSERT_EQ(pair.shared.results.size(), size_t{kSets});
  int in_pool = 0;
  for (int i = 0; i < kSets; ++i) {
    if (pair.shared.results[i].block != nullptr) ++in_pool;
    EXPECT_TRUE(BytesOf(pair.shared.results[i].view()) == BytesOf(pair.sent.results[i].view()));
  }
  EXPECT_EQ(in_pool, kSets);
  pair.shared.results.clear();
  EXPECT_EQ(pool->free_bytes(), pool->size_bytes());
}

// What does not fit is sent, tensor by tensor.
TEST_F(SharedMemoryEndToEnd, ASmallPoolTakesWhatFits) {
  Start();
  Client client = Connect();
  const auto pool = Pool(&client, 256 * 1024);
  const Tensor a = MakeTensor({DType::kFloat64, {128, 128}}, 1),
               b = MakeTensor({DType::kFloat64, {128, 300}}, 2);
  Pair pair;
  AskBothWays(&client, Product(a, b), pool, &pair);
  if (HasFatalFailure()) return;
  EXPECT_EQ(pair.shared.results.at(0).block, nullptr);
  EXPECT_TRUE(BytesOf(pair.shared.results[0].view()) == BytesOf(pair.sent.results[0].view()));
}

TEST_F(SharedMemoryEndToEnd, MeasuresInThePool) {
  Start();
  Client client = Connect();
  const auto pool = Pool(&client);
  const Tensor dataset = MakeTensor({DType::kFloat64, {5000, 8}}, 1);
  std::vector<Tensor> projections;
  for (int i = 0; i < 12; ++i) projections.push_back(MakeTensor({DType::kFloat64, {5000, 2}}, i));
  const auto scores = [&](const std::shared_ptr<SharedPool>& with) {
    client::MeasureRequest request;
    request.specs = {*client::ParseMeasureSpec("stress")};
    request.dataset = dataset;
    request.pool = with;
    size_t next = 0;
    request.next_projection = [&, next](client::ProjectionInput* input) mutable {
      if (next == projections.size()) return false;
      input->tensor = projections[next++];
      return true;
    };
    std::vector<std::string> all;
    auto stream = client.Measure(request);
    EXPECT_TRUE(stream.ok()) << stream.status();
    for (;;) {
      auto item = stream->Next();
      EXPECT_TRUE(item.ok()) << item.status();
      if (!item.ok() || !item->has_value()) return all;
      EXPECT_TRUE((*item)->status.ok()) << (*item)->status;
      for (const auto& spec : (*item)->scores.specs()) {
        for (const auto& [key, value] : spec.values()) {
          all.emplace_back(reinterpret_cast<const char*>(&value), sizeof(value));
        }
      }
    }
  };
  const auto sent = scores(nullptr);
  EXPECT_EQ(sent.size() % projections.size(), 0u);
  EXPECT_FALSE(sent.empty());
  EXPECT_EQ(scores(pool), sent);
  EXPECT_EQ(Figures().found, 1);
  EXPECT_EQ(pool->free_bytes(), pool->size_bytes());
  // The server does not know the pool any more, which the client can't see yet.
  server_->state()->shared_memory->Remove(pool->EnsureConnected());
  EXPECT_EQ(scores(pool), sent);
  EXPECT_EQ(Figures().not_found, 1);
}

TEST_F(SharedMemoryEndToEnd, IsOffUnlessAskedFor) {
  config_.shared_memory_socket = "";
  Start();
  Client client = Connect();
  const auto info = client.GetServerInfo();
  ASSERT_TRUE(info.ok());
  for (const v1::Feature& feature : info->features()) {
    if (feature.name() == "shared_memory") {
      EXPECT_FALSE(feature.available());
    }
  }
  EXPECT_TRUE(Fails(client.OpenSharedPool(kMiB), Reason::kNotImplemented));
  EXPECT_EQ(SharedPool::Connect(socket_, kMiB).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(socket_));
}

TEST_F(SharedMemoryEndToEnd, TellsWhatItRefuses) {
  Start();
  EXPECT_TRUE(Fails(SharedPool::Connect(socket_, 128 * kMiB + 1), Reason::kExceedsServerLimit));
  EXPECT_TRUE(Fails(SharedPool::Connect(socket_, 0), Reason::kBadParameter, "size_bytes"));
  const auto a = SharedPool::Connect(socket_, 128 * kMiB, false),
             b = SharedPool::Connect(socket_, 128 * kMiB, false);
  EXPECT_TRUE(a.ok() && b.ok());
  EXPECT_TRUE(Fails(SharedPool::Connect(socket_, kMiB), Reason::kOverloaded));
  EXPECT_EQ(server_->state()->budget.reserved_bytes(), 256 * kMiB);
  EXPECT_NE(server::MetricsText(*server_->state()).find("tenon_shared_memory_pools 2"),
            std::string::npos);
}

// The pool of one server, at another one that knows nothing of it.
TEST_F(SharedMemoryEndToEnd, FallsBackWhereThePoolIsUnknown) {
  Start();
  Client client = Connect();
  const auto pool = Pool(&client);
  server::Config other_config = TestConfig();
  for (const bool shares : {false, true}) {
    other_config.shared_memory_socket = shares ? socket_ + "2" : "";
    other_config.shared_memory_limit_bytes = other_config.shared_memory_pool_limit_bytes = kMiB;
    const auto other = StartOrDie(other_config);
    ASSERT_TRUE(other != nullptr && other->WaitUntilReady());
    auto elsewhere = Client::Connect(other->addresses().front());
    const Tensor a = MakeTensor({DType::kFloat64, {150, 150}}, 1);
    Pair pair;
    AskBothWays(&*elsewhere, Product(a, a), pool, &pair);
    if (HasFatalFailure()) return;
    EXPECT_EQ(pair.shared.results.at(0).block, nullptr);
    EXPECT_TRUE(BytesOf(pair.shared.results[0].view()) == BytesOf(pair.sent.results[0].view()));
  }
  EXPECT_EQ(pool->free_bytes(), pool->size_bytes());
}

TEST_F(SharedMemoryEndToEnd, ARestartedServerGetsThePoolAnew) {
  Start();
  const Tensor a = MakeTensor({DType::kFloat64, {150, 150}}, 1);
  std::shared_ptr<SharedPool> pool;
  ContractRequest request = Product(a, a);
  {
    Client client = Connect();
    pool = request.pool = Pool(&client);
    request.result_in_pool = true;
    const auto first = client.Contract(request);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_NE(first->results.at(0).block, nullptr);
  }
  server_.reset();
  EXPECT_TRUE(Await([&] { return !pool->connected(); }));
  EXPECT_EQ(pool->EnsureConnected(), "");
  const std::string socket = config_.shared_memory_socket;
  config_.shared_memory_socket = "";
  Start();  // without: everything is sent
  {
    Client client = Connect();
    const auto sent = client.Contract(request);
    ASSERT_TRUE(sent.ok()) << sent.status();
    EXPECT_EQ(sent->results.at(0).block, nullptr);
  }
  server_.reset();
  config_.shared_memory_socket = socket;
  Start();
  Client client = Connect();
  const auto again = client.Contract(request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_NE(again->results.at(0).block, nullptr);
}

// A call that was given up may still be written to its place. The place serves again only when the
// server has taken the pool anew.
TEST_F(SharedMemoryEndToEnd, APlaceThatMayBeWrittenToIsNotUsedAgain) {
  Start();
  Client client = Connect();
  const auto pool = Pool(&client);
  const Tensor a = MakeTensor({DType::kFloat64, {1500, 1500}}, 1);
  ContractRequest request = Product(a, a);
  request.pool = pool;
  request.result_in_pool = true;
  request.execution.set_progress_interval_seconds(1e-9);
  client::Canceller canceller;
  client::CallOptions options;
  options.canceller = &canceller;
  client::ContractCallbacks callbacks;
  callbacks.on_accepted = [&](const v1::ContractAccepted&) { canceller.Cancel(); };
  const std::string token = pool->EnsureConnected();
  const auto cancelled = client.Contract(request, options, callbacks);
  ASSERT_EQ(cancelled.status().code(), absl::StatusCode::kCancelled) << cancelled.status();
  EXPECT_FALSE(pool->connected());
  EXPECT_EQ(pool->free_bytes(), pool->size_bytes() - 1500 * 1500 * 8);
  EXPECT_TRUE(Await([&] { return !pool->EnsureConnected().empty(); }));
  EXPECT_NE(pool->EnsureConnected(), token);
  EXPECT_EQ(pool->free_bytes(), pool->size_bytes());
  const auto outcome = client.Contract(request);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_NE(outcome->results.at(0).block, nullptr);
}

TEST_F(SharedMemoryEndToEnd, ClientsDoNotSeeEachOther) {
  Start();
  Client client = Connect();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto pool = SharedPool::Connect(socket_, 4 * kMiB);
      ASSERT_TRUE(pool.ok()) << pool.status();
      const Tensor a = MakeTensor({DType::kFloat64, {150, 150}}, 10 + i);
      const auto sent = client.Contract(Product(a, a));
      ASSERT_TRUE(sent.ok()) << sent.status();
      ContractRequest request = Product(a, a);
      request.pool = *pool;
      request.result_in_pool = true;
      for (int round = 0; round < 20; ++round) {
        const auto outcome = client.Contract(request);
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        ASSERT_NE(outcome->results.at(0).block, nullptr);
        ASSERT_TRUE(BytesOf(outcome->results[0].view()) == BytesOf(sent->results[0].view()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(Await([&] { return Figures().pools == 0; }));
  EXPECT_EQ(server::MappingsOf(kPoolName), 0);
}

// R15: the peer is killed while its request runs. No crash, the memory goes, others are served.
TEST_F(SharedMemoryEndToEnd, AKilledPeerLeavesNothing) {
  Start();
  int out[2];
  ASSERT_EQ(pipe(out), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, out[0]);
  std::string program = TENON_SHARED_MEMORY_PEER, address = server_->addresses().front();
  char* arguments[] = {program.data(), address.data(), socket_.data(), nullptr};
  for (int round = 0; round < 5; ++round) {
    pid_t peer = 0;
    ASSERT_EQ(posix_spawn(&peer, program.c_str(), &actions, nullptr, arguments, environ), 0);
    char text[8];
    ASSERT_EQ(read(out[0], text, sizeof(text)), static_cast<ssize_t>(sizeof(text)));
    EXPECT_EQ(std::string(text, sizeof(text)), "running\n");
    EXPECT_EQ(Figures().pools, 1);
    kill(peer, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(peer, &status, 0), peer);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_TRUE(Await([&] { return Figures().pools == 0; }));
    EXPECT_TRUE(Await([&] { return server_->state()->metrics.in_flight() == 0; }));
    EXPECT_EQ(server::MappingsOf(kPoolName), 0);
    EXPECT_TRUE(Await([&] { return server_->state()->budget.reserved_bytes() == 0; }));
  }
  posix_spawn_file_actions_destroy(&actions);
  close(out[0]);
  close(out[1]);
  Client client = Connect();
  const auto pool = Pool(&client);
  const Tensor a = MakeTensor({DType::kFloat64, {150, 150}}, 1);
  Pair pair;
  AskBothWays(&client, Product(a, a), pool, &pair);
  if (HasFatalFailure()) return;
  EXPECT_NE(pair.shared.results.at(0).block, nullptr);
}

TEST(SharedPoolBlocks, AreTakenLowestFirstAndJoined) {
  server::Config config = TestConfig();
  const std::string socket = ::testing::TempDir() + "/shm-blocks-" + std::to_string(getpid());
  config.shared_memory_socket = socket;
  config.shared_memory_limit_bytes = config.shared_memory_pool_limit_bytes = kMiB;
  const auto server = StartOrDie(config);
  ASSERT_NE(server, nullptr);
  auto connected = SharedPool::Connect(socket, 4096);
  ASSERT_TRUE(connected.ok()) << connected.status();
  SharedPool& pool = **connected;
  auto a = pool.Allocate(1), b = pool.Allocate(64), c = pool.Allocate(65);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(a->offset_bytes(), 0);
  EXPECT_EQ(b->offset_bytes(), 64);
  EXPECT_EQ(c->offset_bytes(), 128);
  EXPECT_EQ(a->bytes().size(), 1u);
  EXPECT_EQ(pool.free_bytes(), 4096 - 256);
  EXPECT_EQ(pool.OffsetOf(b->bytes()), 64);
  EXPECT_EQ(pool.OffsetOf(b->bytes().subspan(1)), std::nullopt);      // not aligned
  EXPECT_EQ(pool.OffsetOf({c->bytes().data(), 4096}), std::nullopt);  // past the end
  const std::byte outside{};
  EXPECT_EQ(pool.OffsetOf({&outside, 1}), std::nullopt);
  EXPECT_TRUE(Fails(pool.Allocate(4096 - 256 + 1), Reason::kExceedsMemoryBudget));
  EXPECT_TRUE(Fails(pool.Allocate(INT64_MAX), Reason::kExceedsMemoryBudget));
  EXPECT_TRUE(Fails(pool.Allocate(-1), Reason::kBadParameter, "bytes"));
  a->Release();
  c->Release();
  b->Release();  // joins both sides
  SharedBlock all = *pool.Allocate(4096);
  EXPECT_EQ(all.offset_bytes(), 0);
  SharedBlock moved = std::move(all);
  EXPECT_EQ(pool.free_bytes(), 0);
  moved = SharedBlock();
  EXPECT_EQ(pool.free_bytes(), 4096);
}

}  // namespace
}  // namespace tenon::testing
