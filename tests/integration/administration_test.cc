// What administrators may do, and encrypted listeners: the whole server.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/core/file.h"
#include "server/logging.h"
#include "tenon/v1/admin.grpc.pb.h"
#include "tests/integration/caller.h"
#include "tests/support/certificates.h"

namespace tenon::testing {
namespace {

using server::Config;

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
