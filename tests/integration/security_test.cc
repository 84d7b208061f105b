// Who may call, and what belongs to whom: the whole server.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "server/content_store.h"
#include "tenon/v1/provider.grpc.pb.h"
#include "tests/integration/caller.h"
#include "tests/integration/raw_call.h"
#include "tests/support/temporary_folder.h"

namespace tenon::testing {
namespace {

using server::Config;
using server::TokenTable;
using ::testing::HasSubstr;

// All methods of the contract, as paths.
std::vector<std::string> AllMethods() {
  std::vector<std::string> methods;
  for (const char* service :
       {"Provider", "Contraction", "Measurement", "Dataset", "Job", "Admin"}) {
    const auto* descriptor = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
        StrCat("tenon.v1.", service, "Service"));
    EXPECT_NE(descriptor, nullptr) << service;
    for (int i = 0; descriptor != nullptr && i < descriptor->method_count(); ++i) {
      methods.push_back(StrCat("/", descriptor->full_name(), "/", descriptor->method(i)->name()));
    }
  }
  return methods;
}

grpc::Status CallWith(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                      const std::vector<std::string>& authorizations) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  for (const std::string& value : authorizations) context.AddMetadata("authorization", value);
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(&queue);
  wait();
  call->WriteLast(grpc::ByteBuffer(ToByteBuffer("")), grpc::WriteOptions(), &queue);
  wait();
  grpc::ByteBuffer answer;
  do {
    call->Read(&answer, &queue);
  } while (wait());
  grpc::Status status;
  call->Finish(&status, &queue);
  wait();
  queue.Shutdown();
  void* tag;
  bool ok;
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

TEST_F(SecurityTest, EveryMethodNeedsAToken) {
  Config config = TestConfig();
  config.tokens = Tokens();
  const TemporaryFolder folder;
  config.state_dir = folder.path();  // without it nobody has jobs
  config.state_budget_bytes = 1 << 20;
  Start(config);
  const std::vector<std::string> methods = AllMethods();
  EXPECT_GT(methods.size(), 20u);
  const std::vector<std::vector<std::string>> bad = {
      {},
      {"Bearer wrong"},
      {"Bearer "},
      {"token-of-alice"},
      {"Basic token-of-alice"},
      {"Bearer token-of-alice", "Bearer token-of-alice"}};
  for (const std::string& method : methods) {
    for (const auto& authorizations : bad) {
      const grpc::Status status = CallWith(channel_, method, authorizations);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED)
          << method << ": " << status.error_message();
      EXPECT_EQ(ReasonOf(status), "UNAUTHENTICATED") << method;
      EXPECT_THAT(status.error_message(), ::testing::Not(HasSubstr("alice")));
    }
    const std::string reason = ReasonOf(CallWith(channel_, method, {"bearer token-of-alice"}));
    if (method.find("AdminService") != std::string::npos) {
      EXPECT_EQ(reason, "PERMISSION_DENIED") << method;
    } else {
      EXPECT_NE(reason, "UNAUTHENTICATED") << method;
      EXPECT_NE(reason, "PERMISSION_DENIED") << method;
      EXPECT_NE(reason, "NOT_IMPLEMENTED") << method;
    }
  }
}

TEST_F(SecurityTest, UnknownMethodsAreUnimplemented) {
  StartWithTokens();
  std::string response;
  for (const char* method : {"/tenon.v1.DatasetService/Nothing", "/nothing/at.all"}) {
    EXPECT_EQ(RawUnary(channel_, method, "", &response).error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
}

TEST_F(SecurityTest, HealthAndReflectionNeedNone) {
  StartWithTokens();
  std::string response;
  EXPECT_TRUE(RawUnary(channel_, "/grpc.health.v1.Health/Check", "", &response).ok());
  RawCall reflection(channel_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  EXPECT_TRUE(reflection.Write(std::string("\x3a\x00", 2)));
  EXPECT_THAT(reflection.Read().value_or(""), HasSubstr("tenon.v1.AdminService"));
}

// One server does not decide for the next.
TEST_F(SecurityTest, ReflectionCanBeSwitchedOff) {
  for (const bool offered : {false, true, false}) {
    Config config = TestConfig();
    config.reflection = offered;
    Start(config);
    RawCall reflection(channel_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
    reflection.Write(std::string("\x3a\x00", 2));
    EXPECT_EQ(reflection.Read().has_value(), offered);
    if (!offered) {
      EXPECT_EQ(reflection.Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
    }
    std::string response;
    EXPECT_TRUE(RawUnary(channel_, "/grpc.health.v1.Health/Check", "", &response).ok());
  }
}

TEST_F(SecurityTest, TokensMayChangeWhileTheServerRuns) {
  Config config = TestConfig();
  config.tokens = Tokens();
  Start(config);
  EXPECT_EQ(As("carol").GetDataset("datasets/x"), "UNAUTHENTICATED");
  config.tokens =
      std::make_shared<const TokenTable>(*TokenTable::Parse(Line("carol", "compute"), "tokens"));
  server_->Apply(config);
  EXPECT_EQ(As("carol").GetDataset("datasets/x"), "NOT_FOUND");
  EXPECT_EQ(As("alice").GetDataset("datasets/x"), "UNAUTHENTICATED");
}

// Others learn nothing of what somebody has, not even with its name.
TEST_F(SecurityTest, DataSetsBelongToWhoUploadedThem) {
  StartWithTokens();
  const Caller alice = As("alice"), bob = As("bob"), root = As("root");
  const std::string bytes = Doubles({0, 1, 2, 3, 4, 5});
  bool existed = true;
  const std::string name = alice.UploadDataset(bytes, &existed);
  ASSERT_THAT(name, HasSubstr("datasets/"));
  EXPECT_FALSE(existed);
  EXPECT_EQ(alice.GetDataset(name), "OK");
  for (const Caller& other : {bob, root}) {
    EXPECT_EQ(other.GetDataset(name), "NOT_FOUND");
    EXPECT_EQ(other.DeleteDataset(name), "NOT_FOUND");
    EXPECT_EQ(other.MeasureHandle(name), "NOT_FOUND");
    EXPECT_THAT(other.ListDatasets(false), ::testing::IsEmpty());
  }
  EXPECT_EQ(alice.MeasureHandle(name), "OK");
  EXPECT_EQ(bob.ListDatasets(true), std::vector<std::string>{"PERMISSION_DENIED"});
  EXPECT_EQ(root.ListDatasets(true), std::vector<std::string>{"alice:" + name});
  // The same content is news to bob, and his own.
  EXPECT_EQ(bob.UploadDataset(bytes, &existed), name);
  EXPECT_FALSE(existed);
  EXPECT_EQ(bob.MeasureHandle(name), "OK");
  EXPECT_THAT(root.ListDatasets(true),
              ::testing::UnorderedElementsAre("alice:" + name, "bob:" + name));
  EXPECT_EQ(alice.DeleteDataset(name), "OK");
  EXPECT_EQ(alice.GetDataset(name), "NOT_FOUND");
  EXPECT_EQ(bob.GetDataset(name), "OK");
}

TEST_F(SecurityTest, StoredDistancesBelongToWhoUploadedThem) {
  StartWithTokens();
  const Caller alice = As("alice"), bob = As("bob");
  const std::string name = alice.UploadDataset(Doubles({0, 1, 2, 3, 4, 5}));
  const std::string of_bob = bob.UploadDataset(Doubles({5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(alice.MeasureHandle(name, name), "SHAPE_MISMATCH");  // found, though it is not 3 x 3
  EXPECT_EQ(bob.MeasureHandle(of_bob, name), "NOT_FOUND");
}

TEST_F(SecurityTest, TensorsBelongToWhoUploadedThem) {
  StartWithTokens();
  const Caller alice = As("alice"), bob = As("bob");
  const std::string bytes = Doubles({1, 2, 3, 4});
  const std::string name = alice.UploadTensor(bytes);
  ASSERT_THAT(name, HasSubstr("tensors/"));
  EXPECT_EQ(bob.GetTensor(name), "NOT_FOUND");
  EXPECT_EQ(bob.ContractHandle(name), "NOT_FOUND");
  EXPECT_EQ(bob.DeleteTensor(name), "NOT_FOUND");
  EXPECT_EQ(alice.ContractHandle(name), "OK");
  EXPECT_EQ(bob.UploadTensor(bytes), name);
  EXPECT_EQ(bob.ContractHandle(name), "OK");
}

TEST_F(SecurityTest, PlansBelongToWhoMadeThem) {
  StartWithTokens();
  const Caller alice = As("alice"), bob = As("bob");
  const std::string id = alice.Plan();
  ASSERT_THAT(id, HasSubstr("plans/"));
  EXPECT_EQ(bob.ContractPlan(id), "NOT_FOUND");
  EXPECT_EQ(alice.ContractPlan(id), "OK");
  // The cache of plans does not tell bob that somebody has searched for the same.
  EXPECT_EQ(bob.Plan(), id);
  EXPECT_EQ(bob.plan_source(), v1::PLAN_SOURCE_SEARCH);
  EXPECT_EQ(bob.Plan(), id);
  EXPECT_EQ(bob.plan_source(), v1::PLAN_SOURCE_CACHE);
  EXPECT_EQ(bob.ContractPlan(id), "OK");
}

TEST_F(SecurityTest, OnePrincipalCannotHaveEverything) {
  Config config = TestConfig();
  config.tokens = Tokens();
  config.max_streams_per_principal = 2;
  config.max_stored_bytes_per_principal = 2 * server::ContentStore::kEntryBytes + 200;
  Start(config);
  const Caller alice = As("alice"), bob = As("bob");
  const std::string dataset = alice.UploadDataset(Doubles({0, 1, 2, 3}));
  EXPECT_THAT(dataset, HasSubstr("datasets/"));
  EXPECT_THAT(alice.UploadTensor(Doubles({0, 1, 2, 3})), HasSubstr("tensors/"));
  EXPECT_EQ(alice.UploadTensor(Doubles({0, 1, 2, 4})), "QUOTA");
  EXPECT_THAT(bob.UploadTensor(Doubles({0, 1, 2, 4})), HasSubstr("tensors/"));

  const auto stub = v1::MeasurementService::NewStub(channel_);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::MeasureRequest, v1::MeasureResponse>>>
      streams;
  for (int i = 0; i < 2; ++i) {
    contexts.push_back(alice.Context());
    streams.push_back(stub->Measure(contexts.back().get()));
    // An answer shows that the server has seen the call.
    v1::MeasureRequest request;
    request.mutable_header()->set_dataset_handle(dataset);
    request.mutable_header()->add_specs()->set_id("stress");
    request.mutable_header()->mutable_client_stream();
    request.mutable_header()->mutable_execution()->set_progress_interval_seconds(100);
    streams.back()->Write(request);
    v1::MeasureResponse response;
    ASSERT_TRUE(streams.back()->Read(&response)) << streams.back()->Finish().error_message();
    if (i == 0) continue;
    EXPECT_EQ(alice.GetDataset("datasets/x"), "QUOTA");
    v1::GetServerInfoResponse info;
    ASSERT_TRUE(
        v1::ProviderService::NewStub(channel_)->GetServerInfo(bob.Context().get(), {}, &info).ok());
    EXPECT_EQ(info.quotas().max_calls(), 2);
    EXPECT_EQ(info.quotas().calls(), 1);  // bob's own
    EXPECT_EQ(info.quotas().max_stored_bytes(), config.max_stored_bytes_per_principal);
    EXPECT_GE(info.quotas().stored_bytes(), server::ContentStore::kEntryBytes);
    EXPECT_LT(info.quotas().stored_bytes(), 2 * server::ContentStore::kEntryBytes);
    EXPECT_EQ(info.quotas().max_jobs(), 0);  // none are offered
    EXPECT_EQ(bob.GetDataset("datasets/x"), "NOT_FOUND");
  }
  streams[0]->WritesDone();
  v1::MeasureResponse response;
  while (streams[0]->Read(&response)) {
  }
  EXPECT_TRUE(streams[0]->Finish().ok());
  // The client may hear of the end a moment before the server has let go of the call.
  std::string reason;
  for (int i = 0; i < 1000 && (reason = alice.GetDataset("datasets/x")) == "QUOTA"; ++i) {
    usleep(10'000);
  }
  EXPECT_EQ(reason, "NOT_FOUND");
}

// Without principals, those on this machine administer.
TEST_F(SecurityTest, LoopbackAndUnixSocketsAdminister) {
  Config config = TestConfig();
  const std::string path = ::testing::TempDir() + "/tenon_admin_" + std::to_string(getpid());
  config.listen.push_back(*server::ParseAddress("unix:" + path));
  Start(config);
  for (const std::string& address : server_->addresses()) {
    std::string response;
    EXPECT_TRUE(RawUnary(ChannelTo(address), "/tenon.v1.AdminService/Trim", "", &response).ok())
        << address;
  }
  unlink(path.c_str());
}

// An IPv4 address of this machine that is not loopback; "" when there is none.
std::string OwnAddress() {
  ifaddrs* all = nullptr;
  std::string found;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET ||
        (one->ifa_flags & IFF_LOOPBACK) != 0 || (one->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    char text[INET_ADDRSTRLEN];
    const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    found = inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text));
  }
  freeifaddrs(all);
  return found;
}

TEST_F(SecurityTest, OtherAddressesDoNotAdminister) {
  const std::string own = OwnAddress();
  if (own.empty()) GTEST_SKIP() << "this machine has no address but loopback";
  Config config = TestConfig();
  config.listen = {*server::ParseAddress(own + ":0")};
  Start(config);
  for (const char* method : {"Drain", "SetLogLevel", "Trim"}) {
    std::string response;
    const grpc::Status status =
        RawUnary(channel_, StrCat("/tenon.v1.AdminService/", method), "", &response);
    EXPECT_EQ(ReasonOf(status), "PERMISSION_DENIED") << method;
  }
  EXPECT_EQ(As("").GetDataset("datasets/x"), "NOT_FOUND");  // anything else works
}

}  // namespace
}  // namespace tenon::testing
