// Who may call, what belongs to whom, and what administrators may do: the whole server.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <limits>
#include <memory>
#include <optional>

#include "backends/core/file.h"
#include "backends/core/sha256.h"
#include "backends/core/strings.h"
#include "server/content_store.h"
#include "server/logging.h"
#include "tenon/v1/admin.grpc.pb.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tenon/v1/dataset.grpc.pb.h"
#include "tenon/v1/measurement.grpc.pb.h"
#include "tenon/v1/provider.grpc.pb.h"
#include "tests/integration/raw_call.h"
#include "tests/integration/test_server.h"
#include "tests/support/certificates.h"
#include "tests/support/status_matchers.h"

namespace tenon::testing {
namespace {

using server::Config;
using server::Server;
using server::TokenTable;
using ::testing::HasSubstr;

std::string Line(const std::string& name, const std::string& role) {
  const auto digest = Sha256("token-of-" + name);
  return StrCat(name, " ", role, " ", HexDigits(digest.data(), digest.size()), "\n");
}

std::shared_ptr<const TokenTable> Tokens() {
  return std::make_shared<const TokenTable>(*TokenTable::Parse(
      Line("alice", "compute") + Line("bob", "compute") + Line("root", "admin"), "tokens"));
}

// What one caller does; "" for no token.
class Caller {
 public:
  Caller(std::shared_ptr<grpc::Channel> channel, std::string name)
      : channel_(std::move(channel)), name_(std::move(name)) {}

  std::unique_ptr<grpc::ClientContext> Context() const {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (!name_.empty()) context->AddMetadata("authorization", "Bearer token-of-" + name_);
    return context;
  }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // The name of the stored thing; the reason of a refusal.
  std::string UploadDataset(const std::string& bytes, bool* existed = nullptr) const {
    v1::CreateDatasetRequest request;
    v1::CreateDatasetHeader* header = request.mutable_header();
    FillSpec(bytes, header->mutable_spec());
    header->set_inline_data(bytes);
    v1::CreateDatasetResponse response;
    const auto context = Context();
    const auto stub = v1::DatasetService::NewStub(channel_);
    const auto writer = stub->CreateDataset(context.get(), &response);
    writer->Write(request);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (existed != nullptr) *existed = response.existed();
    return status.ok() ? response.dataset().name() : ReasonOf(status);
  }
  std::string UploadTensor(const std::string& bytes) const {
    v1::CreateTensorRequest request;
    FillSpec(bytes, request.mutable_header()->mutable_spec());
    request.mutable_header()->set_inline_data(bytes);
    v1::CreateTensorResponse response;
    const auto context = Context();
    const auto stub = v1::DatasetService::NewStub(channel_);
    const auto writer = stub->CreateTensor(context.get(), &response);
    writer->Write(request);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    return status.ok() ? response.tensor().name() : ReasonOf(status);
  }
  std::string GetDataset(const std::string& name) const {
    v1::GetDatasetRequest request;
    request.set_name(name);
    v1::GetDatasetResponse response;
    return Reason(
        v1::DatasetService::NewStub(channel_)->GetDataset(Context().get(), request, &response));
  }
  std::string DeleteDataset(const std::string& name) const {
    v1::DeleteDatasetRequest request;
    request.set_name(name);
    v1::DeleteDatasetResponse response;
    return Reason(
        v1::DatasetService::NewStub(channel_)->DeleteDataset(Context().get(), request, &response));
  }
  std::string GetTensor(const std::string& name) const {
    v1::GetTensorRequest request;
    request.set_name(name);
    v1::GetTensorResponse response;
    return Reason(
        v1::DatasetService::NewStub(channel_)->GetTensor(Context().get(), request, &response));
  }
  std::string DeleteTensor(const std::string& name) const {
    v1::DeleteTensorRequest request;
    request.set_name(name);
    v1::DeleteTensorResponse response;
    return Reason(
        v1::DatasetService::NewStub(channel_)->DeleteTensor(Context().get(), request, &response));
  }
  // "owner:name" of each; the reason of a refusal.
  std::vector<std::string> ListDatasets(bool all) const {
    v1::ListDatasetsRequest request;
    request.set_all_owners(all);
    v1::ListDatasetsResponse response;
    const grpc::Status status =
        v1::DatasetService::NewStub(channel_)->ListDatasets(Context().get(), request, &response);
    if (!status.ok()) return {ReasonOf(status)};
    std::vector<std::string> list;
    for (const auto& one : response.datasets()) list.push_back(one.owner() + ":" + one.name());
    return list;
  }
  // A contraction with itself of a tensor that is stored.
  std::string ContractHandle(const std::string& handle) const {
    v1::ContractRequest request;
    v1::Einsum* einsum = request.mutable_header()->mutable_einsum();
    einsum->set_subscripts("ab,cb->ac");
    for (int i = 0; i < 2; ++i) einsum->add_operands()->set_handle(handle);
    return Contract(request);
  }
  // A contraction by a stored plan.
  std::string ContractPlan(const std::string& plan) const {
    v1::ContractRequest request;
    FillChain(request.mutable_header()->mutable_einsum());
    for (auto& operand : *request.mutable_header()->mutable_einsum()->mutable_operands()) {
      operand.set_inline_data(std::string(4 * sizeof(double), '\0'));
    }
    request.mutable_header()->set_plan_id(plan);
    return Contract(request);
  }
  // A plan's id.
  std::string Plan() const {
    v1::PlanContractionRequest request;
    FillChain(request.mutable_einsum());
    request.mutable_search()->set_max_trials(2);
    const auto context = Context();
    const auto stub = v1::ContractionService::NewStub(channel_);
    const auto reader = stub->PlanContraction(context.get(), request);
    v1::PlanContractionResponse frame;
    std::string id;
    while (reader->Read(&frame)) {
      if (!frame.has_plan()) continue;
      id = frame.plan().plan().plan_id();
      source_ = frame.plan().plan().provenance().source();
    }
    const grpc::Status status = reader->Finish();
    return status.ok() ? id : ReasonOf(status);
  }
  v1::PlanSource plan_source() const { return source_; }

  std::string MeasureHandle(const std::string& handle, const std::string& distances = "") const {
    v1::MeasureRequest request;
    v1::MeasureHeader* header = request.mutable_header();
    header->set_dataset_handle(handle);
    v1::MeasureSpec* spec = header->add_specs();
    spec->set_id(distances.empty() ? "stress" : "gap_index");
    if (!distances.empty()) {
      spec->mutable_gap_index()->set_metric(v1::ROW_METRIC_PRECOMPUTED);
      spec->mutable_gap_index()->set_precomputed_handle(distances);
    }
    const auto context = Context();
    const auto stub = v1::MeasurementService::NewStub(channel_);
    const auto stream = stub->Measure(context.get());
    stream->Write(request);
    stream->WritesDone();
    v1::MeasureResponse response;
    while (stream->Read(&response)) {
    }
    return Reason(stream->Finish());
  }

  static std::string Reason(const grpc::Status& status) {
    return status.ok() ? "OK" : ReasonOf(status);
  }

 private:
  static void FillSpec(const std::string& bytes, v1::TensorSpec* spec) {
    spec->set_dtype(v1::DATA_TYPE_FLOAT64);
    spec->add_shape(static_cast<int64_t>(bytes.size() / sizeof(double) / 2));
    spec->add_shape(2);
  }
  static void FillChain(v1::Einsum* einsum) {
    einsum->set_subscripts("ab,bc,cd->ad");
    for (int i = 0; i < 3; ++i) {
      v1::TensorSpec* spec = einsum->add_operands()->mutable_spec();
      spec->set_dtype(v1::DATA_TYPE_FLOAT64);
      spec->add_shape(2);
      spec->add_shape(2);
    }
  }
  std::string Contract(const v1::ContractRequest& request) const {
    const auto context = Context();
    const auto stub = v1::ContractionService::NewStub(channel_);
    const auto stream = stub->Contract(context.get());
    stream->Write(request);
    stream->WritesDone();
    v1::ContractResponse response;
    while (stream->Read(&response)) {
    }
    return Reason(stream->Finish());
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::string name_;
  mutable v1::PlanSource source_ = v1::PLAN_SOURCE_UNSPECIFIED;
};

std::string Doubles(std::initializer_list<double> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(double)};
}

class SecurityTest : public ::testing::Test {
 protected:
  void StartWithTokens() {
    Config config = TestConfig();
    config.tokens = Tokens();
    Start(config);
  }
  void Start(const Config& config) {
    server_ = StartOrDie(config);
    ASSERT_TRUE(server_->WaitUntilReady());
    channel_ = ChannelTo(server_->addresses()[0]);
  }
  Caller As(const std::string& name) const { return {channel_, name}; }

  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

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
  StartWithTokens();
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
      if (ReasonOf(status) == "NOT_IMPLEMENTED") continue;  // answers nobody
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED)
          << method << ": " << status.error_message();
      EXPECT_EQ(ReasonOf(status), "UNAUTHENTICATED") << method;
      EXPECT_THAT(status.error_message(), ::testing::Not(HasSubstr("alice")));
      if (method.find("Dataset") == std::string::npos) break;  // one service is enough for all
    }
    const std::string reason = ReasonOf(CallWith(channel_, method, {"bearer token-of-alice"}));
    if (method.find("AdminService") != std::string::npos) {
      EXPECT_EQ(reason, "PERMISSION_DENIED") << method;
    } else {
      EXPECT_NE(reason, "UNAUTHENTICATED") << method;
      EXPECT_NE(reason, "PERMISSION_DENIED") << method;
    }
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
  EXPECT_THAT(alice.UploadDataset(Doubles({0, 1, 2, 3})), HasSubstr("datasets/"));
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
    request.mutable_header()->set_dataset_handle(alice.ListDatasets(false)[0].substr(6));
    request.mutable_header()->add_specs()->set_id("stress");
    request.mutable_header()->mutable_client_stream();
    request.mutable_header()->mutable_execution()->set_progress_interval_seconds(100);
    streams.back()->Write(request);
    v1::MeasureResponse response;
    ASSERT_TRUE(streams.back()->Read(&response)) << streams.back()->Finish().error_message();
    if (i == 0) continue;
    EXPECT_EQ(alice.GetDataset("datasets/x"), "QUOTA");
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

class AdminTest : public SecurityTest {
 protected:
  void SetUp() override {
    StartWithTokens();
    admin_ = v1::AdminService::NewStub(channel_);
  }
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

TEST_F(AdminTest, TrimGivesBackWhatIsAskedFor) {
  const Caller alice = As("alice");
  const std::string name = alice.UploadDataset(Doubles({0, 1, 2, 3, 4, 5}));
  ASSERT_NE(alice.Plan(), "");
  v1::TrimRequest request;
  v1::TrimResponse response;
  request.set_caches(true);
  ASSERT_TRUE(admin_->Trim(As("root").Context().get(), request, &response).ok());
  EXPECT_GT(response.freed_bytes(), 0);
  EXPECT_GT(response.resident_before_bytes(), 0);
  EXPECT_GT(response.resident_after_bytes(), 0);
  EXPECT_EQ(server_->state()->plans.bytes(), 0);
  EXPECT_EQ(server_->state()->programs.entries(), 0u);
  EXPECT_EQ(server_->state()->plan_cache.counters().entries, 0);
  EXPECT_EQ(alice.GetDataset(name), "OK");
  request.set_stored(true);
  ASSERT_TRUE(admin_->Trim(As("root").Context().get(), request, &response).ok());
  EXPECT_GE(response.freed_bytes(), 48);
  EXPECT_EQ(alice.GetDataset(name), "NOT_FOUND");
  ASSERT_TRUE(admin_->Trim(As("root").Context().get(), request, &response).ok());
  EXPECT_EQ(response.freed_bytes(), 0);
}

TEST_F(AdminTest, SetsTheLogLevel) {
  server::SetLogLevel(server::LogLevel::kInfo);
  v1::SetLogLevelRequest request;
  v1::SetLogLevelResponse response;
  const auto set = [&] {
    return Caller::Reason(admin_->SetLogLevel(As("root").Context().get(), request, &response));
  };
  EXPECT_EQ(set(), "MISSING_FIELD");
  request.set_level(static_cast<v1::LogLevel>(77));
  EXPECT_EQ(set(), "BAD_PARAMETER");
  request.set_level(v1::LOG_LEVEL_ERROR);
  request.set_component("planner");
  EXPECT_EQ(set(), "BAD_PARAMETER");
  request.clear_component();
  EXPECT_EQ(set(), "OK");
  EXPECT_EQ(response.previous_level(), v1::LOG_LEVEL_INFO);
  request.set_level(v1::LOG_LEVEL_INFO);
  EXPECT_EQ(set(), "OK");
  EXPECT_EQ(response.previous_level(), v1::LOG_LEVEL_ERROR);
}

TEST_F(AdminTest, DrainsWithItsOwnDelays) {
  v1::DrainRequest request;
  v1::DrainResponse response;
  const auto drain = [&] {
    return Caller::Reason(admin_->Drain(As("root").Context().get(), request, &response));
  };
  request.set_delay_seconds(-1);
  EXPECT_EQ(drain(), "BAD_PARAMETER");
  request.set_delay_seconds(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(drain(), "BAD_PARAMETER");
  EXPECT_EQ(server_->state()->lifecycle.phase(), server::ServerPhase::kReady);
  request.set_delay_seconds(3600);
  request.set_grace_seconds(0);
  EXPECT_EQ(drain(), "OK");
  EXPECT_EQ(response.state(), v1::SERVER_STATE_LAME_DUCK);
  EXPECT_EQ(response.active_calls(), 0);
  // A second one neither hurries it nor starts the delay anew.
  request.set_delay_seconds(0);
  EXPECT_EQ(drain(), "OK");
  EXPECT_EQ(response.state(), v1::SERVER_STATE_LAME_DUCK);
  EXPECT_EQ(As("alice").GetDataset("datasets/x"), "NOT_FOUND");  // still served
  server_->Shutdown();                                           // as a SIGTERM that follows
  EXPECT_TRUE(server_->Wait());
}

class TlsTest : public SecurityTest {
 protected:
  Config WithTls(const CertificateFiles& server, bool client_certificates) {
    Config config = TestConfig();
    config.tls_files = {server.cert, server.key, client_certificates ? folder_.ca() : ""};
    config.tls =
        std::make_shared<const server::TlsMaterial>(*server::ReadTlsFiles(config.tls_files));
    config.tls_reload_interval = absl::ZeroDuration();
    return config;
  }
  static std::string Read(const std::string& path) { return std::string(AsText(*ReadFile(path))); }
  // Of its own connection. `ca` empty: not encrypted.
  std::shared_ptr<grpc::Channel> Connect(const std::string& ca,
                                         const std::optional<CertificateFiles>& own = {}) const {
    if (ca.empty()) return ChannelTo(server_->addresses()[0]);
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = Read(ca);
    if (own.has_value()) {
      options.pem_cert_chain = Read(own->cert);
      options.pem_private_key = Read(own->key);
    }
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(server_->addresses()[0], grpc::SslCredentials(options),
                                     arguments);
  }
  static std::string Ask(const std::shared_ptr<grpc::Channel>& channel) {
    v1::GetDatasetRequest request;
    request.set_name("datasets/x");
    v1::GetDatasetResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const grpc::Status status =
        v1::DatasetService::NewStub(channel)->GetDataset(&context, request, &response);
    return status.error_code() == grpc::StatusCode::UNAVAILABLE ? "UNAVAILABLE"
                                                                : Caller::Reason(status);
  }

  const CertificateFolder folder_, stranger_;
};

TEST_F(TlsTest, EncryptsTcpButNotUnixSockets) {
  Config config = WithTls(folder_.Make("server", "IP:127.0.0.1"), false);
  const std::string path = ::testing::TempDir() + "/tenon_tls_" + std::to_string(getpid());
  config.listen.push_back(*server::ParseAddress("unix:" + path));
  Start(config);
  EXPECT_EQ(Ask(Connect(folder_.ca())), "NOT_FOUND");
  EXPECT_EQ(Ask(Connect(stranger_.ca())), "UNAVAILABLE");  // the client trusts another
  EXPECT_EQ(Ask(Connect("")), "UNAVAILABLE");
  EXPECT_EQ(Ask(ChannelTo("unix:" + path)), "NOT_FOUND");
  unlink(path.c_str());
}

TEST_F(TlsTest, CertificatesOfClientsAreRequiredAndSayWhoCalls) {
  Config config = WithTls(folder_.Make("server", "IP:127.0.0.1"), true);
  config.admin_principals = {"spiffe://test/operator"};
  Start(config);
  EXPECT_EQ(Ask(Connect(folder_.ca())), "UNAVAILABLE");
  EXPECT_EQ(Ask(Connect(folder_.ca(), stranger_.Make("alice", ""))), "UNAVAILABLE");
  const auto caller = [&](const std::string& name, const std::string& alternatives) {
    return Caller(Connect(folder_.ca(), folder_.Make(name, alternatives)), "");
  };
  const struct {
    const char *name, *alternatives, *principal;
  } cases[] = {{"carol", "", "carol"},
               {"dave", "DNS:dave.test", "dave.test"},
               {"erin", "email:erin@test", "erin@test"},
               {"frank", "DNS:frank.test,URI:spiffe://test/frank", "spiffe://test/frank"}};
  std::vector<std::string> everything;
  const std::string bytes = Doubles({0, 1, 2, 3, 4, 5});
  for (const auto& [name, alternatives, principal] : cases) {
    const Caller one = caller(name, alternatives);
    const std::string dataset = one.UploadDataset(bytes);
    everything.push_back(principal + (":" + dataset));
    EXPECT_EQ(one.ListDatasets(false), std::vector<std::string>{everything.back()});
    EXPECT_EQ(one.ListDatasets(true), std::vector<std::string>{"PERMISSION_DENIED"});
  }
  EXPECT_THAT(caller("operator", "URI:spiffe://test/operator").ListDatasets(true),
              ::testing::UnorderedElementsAreArray(everything));
}

TEST_F(TlsTest, TokensSayWhoCallsWhereThereAreBoth) {
  Config config = WithTls(folder_.Make("server", "IP:127.0.0.1"), true);
  config.tokens = Tokens();
  Start(config);
  const auto channel = Connect(folder_.ca(), folder_.Make("carol", ""));
  EXPECT_EQ(Caller(channel, "").GetDataset("datasets/x"), "UNAUTHENTICATED");
  const std::string name = Caller(channel, "alice").UploadDataset(Doubles({0, 1, 2, 3}));
  EXPECT_EQ(Caller(channel, "root").ListDatasets(true), std::vector<std::string>{"alice:" + name});
}

TEST_F(TlsTest, NewConnectionsGetTheNewCertificate) {
  Config config = WithTls(folder_.Make("server", "IP:127.0.0.1"), false);
  Start(config);
  const auto before = Connect(folder_.ca());
  EXPECT_EQ(Ask(before), "NOT_FOUND");
  const CertificateFiles other = stranger_.Make("server", "IP:127.0.0.1");
  config.tls_files = {other.cert, other.key, ""};
  config.tls = std::make_shared<const server::TlsMaterial>(*server::ReadTlsFiles(config.tls_files));
  server_->Apply(config);
  EXPECT_EQ(Ask(Connect(stranger_.ca())), "NOT_FOUND");
  EXPECT_EQ(Ask(Connect(folder_.ca())), "UNAVAILABLE");
  EXPECT_EQ(Ask(before), "NOT_FOUND");  // what is open stays open
}

TEST_F(TlsTest, FilesAreWatched) {
  const CertificateFiles server = folder_.Make("server", "IP:127.0.0.1");
  const CertificateFiles other = stranger_.Make("server", "IP:127.0.0.1");
  Config config = WithTls(server, false);
  config.tls_reload_interval = absl::Milliseconds(10);
  Start(config);
  const std::string old_cert = Read(server.cert);
  // A key alone does not fit: the old pair stays in use until the certificate is there, too.
  folder_.Write("server.key", Read(other.key));
  EXPECT_EQ(Ask(Connect(folder_.ca())), "NOT_FOUND");
  folder_.Write("server.pem", Read(other.cert));
  std::string answer;
  for (int i = 0; i < 1000 && answer != "NOT_FOUND"; ++i) {
    answer = Ask(Connect(stranger_.ca()));
    if (answer != "NOT_FOUND") usleep(10'000);
  }
  EXPECT_EQ(answer, "NOT_FOUND");
}

}  // namespace
}  // namespace tenon::testing
