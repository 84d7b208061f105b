// --shared-memory of the command, with a whole server.

#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/core/file.h"
#include "server/shared_memory.h"
#include "tests/client/tool_fixture.h"
#include "tests/integration/test_server.h"

namespace tenon::testing {
namespace {

using ::testing::HasSubstr;
using tool::Result;
using tool::RunWith;

constexpr int64_t kMiB = int64_t{1} << 20;

class SharedMemoryTool : public tool::ToolTest {
 protected:
  void Start(bool shared) {
    server::Config config = TestConfig();
    config.listen = {*server::ParseAddress("unix:" + Path("g"))};
    config.memory_budget_bytes = 512 * kMiB;
    if (shared) {
      config.shared_memory_socket = Path("s");
      config.shared_memory_limit_bytes = 128 * kMiB;
      config.shared_memory_pool_limit_bytes = 64 * kMiB;
    }
    server_ = StartOrDie(config);
    ASSERT_NE(server_, nullptr);
    ASSERT_TRUE(server_->WaitUntilReady());
  }
  Result Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--server", server_->addresses().front()});
    return RunWith(arguments);
  }
  int64_t Received(server::Method method) {
    for (const auto& statistics : server_->state()->metrics.Statistics()) {
      if (statistics.method == server::MethodName(method)) return statistics.received_bytes;
    }
    return 0;
  }
  // 128 KiB or more: it is worth a region.
  std::string WriteMatrix(const std::string& name, int64_t rows, int64_t columns) {
    auto tensor = MakeCorpusTensor(7, 0, 1.0, {DType::kFloat64, {rows, columns}});
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return WriteNpy(name, *tensor);
  }

  std::unique_ptr<server::Server> server_;
};

TEST_F(SharedMemoryTool, ContractionsNameTheirOperandsThere) {
  Start(true);
  const std::string a = WriteMatrix("a.npy", 160, 160);
  const std::vector<std::string> call = {"contract", "ab,bc->ac", a, a, "--json", "--output"};
  std::vector<std::string> sent = call, shared = call;
  sent.push_back(Path("sent.npy"));
  shared.insert(shared.end(), {Path("shared.npy"), "--shared-memory", "8MiB"});
  ASSERT_EQ(Run(sent).code, tool::kExitOk);
  // The call is counted a moment after its client has its end.
  constexpr int64_t kSent = 2 * 160 * 160 * static_cast<int64_t>(sizeof(double));
  while (Received(server::Method::kContract) == 0) std::this_thread::yield();
  const int64_t received = Received(server::Method::kContract);
  EXPECT_EQ(received, kSent);
  const Result result = Run(shared);
  ASSERT_EQ(result.code, tool::kExitOk) << result.err;
  EXPECT_EQ(server_->state()->shared_memory->figures().found, 1);
  EXPECT_EQ(Received(server::Method::kContract), received) << "nothing was sent";
  EXPECT_EQ(AsText(ReadNpyFile(Path("shared.npy"))->buffer),
            AsText(ReadNpyFile(Path("sent.npy"))->buffer));
}

TEST_F(SharedMemoryTool, MeasurementsNameTheirDataThere) {
  Start(true);
  const std::string hd = WriteMatrix("hd.npy", 5000, 5), ld = WriteMatrix("ld.npy", 5000, 2);
  const std::vector<std::string> call = {"measure", "--hd", hd, "--spec", "tnc:k=5", ld, "--json"};
  std::vector<std::string> shared = call;
  shared.insert(shared.end(), {"--shared-memory", "8MiB"});
  const Result result = Run(shared);
  ASSERT_EQ(result.code, tool::kExitOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("trustworthiness"));
  EXPECT_EQ(server_->state()->shared_memory->figures().found, 1);
  EXPECT_EQ(Received(server::Method::kMeasure), 0) << "nothing was sent";
}

TEST_F(SharedMemoryTool, SaysWhyItCantBeHad) {
  Start(false);
  const std::string a = WriteMatrix("a.npy", 4, 4);
  for (const std::vector<std::string>& call : std::vector<std::vector<std::string>>{
           {"contract", "ab->ba", a, "--shared-memory", "1MiB"},
           {"measure", "--hd", a, "--spec", "tnc:k=1", a, "--shared-memory", "1MiB"}}) {
    const Result result = Run(call);
    EXPECT_EQ(result.code, tool::kExitUsage);
    EXPECT_THAT(result.err, HasSubstr("shares no memory"));
    EXPECT_THAT(result.err, HasSubstr("--shared_memory_socket"));
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(Run({"contract", "ab->ba", a, "--shared-memory", "much"}).code, tool::kExitUsage);
}

TEST_F(SharedMemoryTool, APoolThatIsTooLargeIsRefused) {
  Start(true);
  const std::string a = WriteMatrix("a.npy", 4, 4);
  const Result result = Run({"contract", "ab->ba", a, "--shared-memory", "65MiB"});
  EXPECT_EQ(result.code, tool::kExitRefused);
  EXPECT_THAT(result.err, HasSubstr("EXCEEDS_SERVER_LIMIT"));
}

}  // namespace
}  // namespace tenon::testing
