// Projections from files of the server, and its temporary files.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>

#include "backends/core/error.h"
#include "backends/core/npy.h"
#include "server/measurement_codec.h"
#include "server/scratch_space.h"
#include "server/server_files.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRows = 40;

// A folder of its own for every test.
class FilesTest : public ::testing::Test {
 protected:
  FilesTest() {
    std::string path = ::testing::TempDir() + "/files_XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    outside_ = fs::canonical(path);
    root_ = outside_ / "root";
    fs::create_directory(root_);
    server_ = std::make_unique<TestServer>(TestServerOptions{.data_root = root_.string()});
  }
  ~FilesTest() override {
    server_.reset();
    fs::remove_all(outside_);
  }

  static std::string NpyOf(const Matrix& matrix) {
    auto tensor = Tensor::Allocate({DType::kFloat64, {matrix.rows, matrix.columns}});
    std::copy(matrix.values.begin(), matrix.values.end(), tensor->buffer.as<double>());
    return FormatNpy(*tensor);
  }
  void Write(const std::string& name, const std::string& bytes) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << bytes;
  }

  v1::MeasureHeader HeaderOf(const std::string& glob) const {
    v1::MeasureHeader header = Header(MakeMatrix(kRows, 5, 1), {"stress"});
    header.mutable_server_files()->set_glob(glob);
    return header;
  }
  std::vector<v1::MeasureResponse> Run(const v1::MeasureHeader& header) {
    MeasureClient client(server_.get());
    client.Send(header);
    auto frames = client.ReadRest();  // needs no half-close
    status_ = Summary(client.Finish());
    EXPECT_TRUE(server_->AllReleased());
    return frames;
  }

  fs::path outside_, root_;
  std::unique_ptr<TestServer> server_;
  std::string status_;
};

TEST_F(FilesTest, AThousandFilesComeInNaturalOrder) {
  for (int i = 0; i < 1000; ++i) {
    Write("runs/run" + std::to_string(i) + ".npy",
          NpyOf(MakeMatrix(kRows, 2, static_cast<uint32_t>(i))));
  }
  Write("runs/run5.txt", "no array");
  v1::MeasureHeader header = HeaderOf("runs/run*.npy");
  header.mutable_execution()->set_in_flight(2);
  const auto frames = Run(header);
  EXPECT_EQ(status_, "OK");
  ASSERT_EQ(frames.size(), 1002u);
  MeasureClient sent(server_.get());
  sent.Send(Header(MakeMatrix(kRows, 5, 1), {"stress"}));
  const auto expected = sent.Exchange({Frame(InlineProjection(0, MakeMatrix(kRows, 2, 0)))});
  sent.Finish();
  EXPECT_EQ(frames[1].scores().specs(0).values().at("stress"),
            expected[1].scores().specs(0).values().at("stress"));
  for (int i = 0; i < 1000; ++i) {
    const auto& scores = frames[static_cast<size_t>(i) + 1].scores();
    ASSERT_EQ(scores.index(), i);
    ASSERT_EQ(scores.name(), "runs/run" + std::to_string(i) + ".npy");
  }
  const v1::MeasureSummary& summary = frames.back().summary();
  EXPECT_EQ(summary.input_consumed_count(), 1000);
  EXPECT_TRUE(summary.stream_complete());
  EXPECT_LE(summary.report().max_in_flight_observed(), 2);

  header.mutable_server_files()->set_limit(3);
  EXPECT_EQ(Run(header).size(), 5u);
}

TEST_F(FilesTest, WhatIsNoArrayIsAnErrorInItsPlace) {
  const std::string good = NpyOf(MakeMatrix(kRows, 2, 1));
  Write("1.npy", good);
  Write("2.npy", good.substr(0, good.size() - 1));
  ASSERT_EQ(mkfifo((root_ / "3.npy").c_str(), 0600), 0);
  Write("4.npy", "not an array");
  Write("5.npy", NpyOf(MakeMatrix(kRows + 1, 2, 1)));
  fs::create_symlink("nowhere", root_ / "6.npy");
  Write("7.npy", "");
  Write("8.npy", good);
  const auto frames = Run(HeaderOf("?.npy"));
  EXPECT_EQ(status_, "OK");
  ASSERT_EQ(frames.size(), 10u);
  EXPECT_TRUE(frames[1].has_scores());
  for (size_t i = 2; i <= 7; ++i) {
    EXPECT_EQ(frames[i].item_error().error().reason(), i == 5 ? "SHAPE_MISMATCH" : "BAD_FILE") << i;
    EXPECT_EQ(frames[i].item_error().name(), std::to_string(i) + ".npy");
  }
  EXPECT_TRUE(frames[8].has_scores());
  EXPECT_EQ(frames[9].summary().error_count(), 6);
}

TEST_F(FilesTest, FortranOrderAndOtherTypesAreRead) {
  const Matrix matrix = MakeMatrix(kRows, 3, 7);
  std::string fortran = NpyOf(matrix);
  const size_t header_bytes = fortran.size() - matrix.values.size() * sizeof(double);
  fortran.replace(fortran.find("False"), 5, "True ");
  for (size_t column = 0; column < 3; ++column) {
    for (size_t row = 0; row < kRows; ++row) {
      std::memcpy(fortran.data() + header_bytes + (column * kRows + row) * sizeof(double),
                  &matrix.values[row * 3 + column], sizeof(double));
    }
  }
  Write("a.npy", NpyOf(matrix));
  Write("b.npy", fortran);
  const auto frames = Run(HeaderOf("[a-c].npy"));
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_EQ(frames[2].scores().specs(0).values().at("stress"),
            frames[1].scores().specs(0).values().at("stress"));
}

TEST_F(FilesTest, NothingOutsideTheRootIsReached) {
  Write("in.npy", NpyOf(MakeMatrix(kRows, 2, 1)));
  std::ofstream(outside_ / "secret.npy") << NpyOf(MakeMatrix(kRows, 2, 1));
  fs::create_directory(root_ / "links");
  fs::create_symlink(outside_ / "secret.npy", root_ / "links" / "out.npy");
  fs::create_symlink(root_ / "in.npy", root_ / "links" / "stays.npy");
  fs::create_symlink(outside_, root_ / "up");
  for (const char* glob :
       {"../secret.npy", "links/../../secret.npy", "/etc/passwd", "up/secret.npy", "up/*"}) {
    EXPECT_TRUE(Run(HeaderOf(glob)).empty()) << glob;
    EXPECT_EQ(status_, "PERMISSION_DENIED PERMISSION_DENIED header.server_files.glob") << glob;
  }
  EXPECT_EQ(Run(HeaderOf("links/stays.npy")).size(), 3u);
  const auto frames = Run(HeaderOf("links/*.npy"));
  EXPECT_EQ(status_, "OK");
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_EQ(frames[1].item_error().name(), "links/out.npy");
  EXPECT_EQ(frames[1].item_error().error().reason(), "PERMISSION_DENIED");
  EXPECT_EQ(frames[2].scores().name(), "links/stays.npy");
  EXPECT_EQ(Run(HeaderOf("u*"))[1].item_error().error().reason(), "PERMISSION_DENIED");
  // A folder that a pattern meets on its way does not end the call for the others.
  const auto through = Run(HeaderOf("*/[so]*.npy"));
  EXPECT_EQ(status_, "OK");
  ASSERT_EQ(through.size(), 5u);
  EXPECT_EQ(through[1].item_error().name(), "links/out.npy");
  EXPECT_EQ(through[2].scores().name(), "links/stays.npy");
  EXPECT_EQ(through[3].item_error().name(), "up");
  EXPECT_EQ(through[3].item_error().error().reason(), "PERMISSION_DENIED");
  for (const char* glob : {"none*.npy", "in.npy/x", ".*"}) {
    Run(HeaderOf(glob));
    EXPECT_EQ(status_, "INVALID_ARGUMENT BAD_FILE header.server_files.glob") << glob;
  }
  Run(HeaderOf(""));
  EXPECT_EQ(status_, "INVALID_ARGUMENT MISSING_FIELD header.server_files.glob");
  Run(HeaderOf("*[" + std::string(2000, 'a')));
  EXPECT_EQ(status_, "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT header.server_files.glob");
  // A link that is made after the listing.
  fs::create_symlink(outside_ / "secret.npy", root_ / "late.npy");
  EXPECT_EQ(OpenServerFile(root_.string(), "late.npy").status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(FilesTest, NoMoreNamesAreLookedAtThanAllowed) {
  for (int i = 0; i < 10; ++i) Write(std::to_string(i) + "/x.npy", NpyOf(MakeMatrix(kRows, 2, 1)));
  const auto list = [&](int64_t most, const CancelToken* cancel) {
    return ListServerFiles(root_.string(), "*/*.npy", 5, cancel, most).status();
  };
  EXPECT_TRUE(list(20, nullptr).ok());
  EXPECT_EQ(GetErrorDetails(list(19, nullptr)).reason, Reason::kExceedsServerLimit);
  CancelToken cancel;
  cancel.Cancel();
  EXPECT_EQ(GetErrorDetails(list(20, &cancel)).reason, Reason::kClientCancelled);
}

// Looking through folders takes its time, which other calls need not wait for.
TEST_F(FilesTest, ListingIsDoneOnAThreadOfItsOwn) {
  Write("0.npy", NpyOf(MakeMatrix(kRows, 2, 1)));
  std::promise<void> opened;
  const auto gate = opened.get_future().share();
  ASSERT_TRUE(server_->state().listing.Submit([gate] { gate.wait(); }).ok());
  MeasureClient files(server_.get()), cancelled(server_.get());
  files.Send(HeaderOf("*.npy"));
  cancelled.Send(HeaderOf("*.npy"));
  cancelled.Cancel();
  cancelled.ReadRest();
  EXPECT_EQ(cancelled.Finish().error_code(), grpc::StatusCode::CANCELLED);
  MeasureClient other(server_.get());
  other.Send(Header(MakeMatrix(kRows, 5, 1), {"stress"}));
  const auto answers = other.Exchange({Frame(InlineProjection(0, MakeMatrix(kRows, 2, 1)))});
  EXPECT_EQ(answers.size(), 3u);
  EXPECT_EQ(Summary(other.Finish()), "OK");
  opened.set_value();
  EXPECT_EQ(files.ReadRest().size(), 3u);
  EXPECT_EQ(Summary(files.Finish()), "OK");
  EXPECT_TRUE(server_->AllReleased());
}

TEST_F(FilesTest, ReadingEndsWhenItIsCancelled) {
  Write("0.npy", NpyOf(MakeMatrix(kRows, 2, 1)));
  const auto file = OpenServerFile(root_.string(), "0.npy");
  ASSERT_TRUE(file.ok()) << file.status();
  auto tensor = Tensor::Allocate(file->spec());
  CancelToken cancel;
  cancel.Cancel();
  EXPECT_EQ(GetErrorDetails(file->Read(&*tensor, &cancel)).reason, Reason::kClientCancelled);
  EXPECT_TRUE(file->Read(&*tensor).ok());
  // Values are looked through with an eye on the token as well.
  EXPECT_TRUE(CheckValues(*tensor, true, "x", nullptr).ok());
  EXPECT_EQ(GetErrorDetails(CheckValues(*tensor, true, "x", &cancel)).reason,
            Reason::kClientCancelled);
}

TEST_F(FilesTest, AFileThatGoesAfterTheListingIsAnError) {
  for (int i = 0; i < 3; ++i) {
    Write(std::to_string(i) + ".npy", NpyOf(MakeMatrix(kRows, 2, 1)));
  }
  v1::MeasureHeader header = HeaderOf("*.npy");
  const Matrix dataset = MakeMatrix(kRows, 5, 1);
  header.mutable_dataset_input()->clear_inline_data();
  MeasureClient client(server_.get());
  client.Send(header);
  ASSERT_TRUE(client.Read().has_accepted());
  fs::remove(root_ / "1.npy");
  client.Send(DatasetChunk(0, dataset.bytes()));
  const auto frames = client.ReadRest();
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_TRUE(frames[0].has_scores());
  EXPECT_EQ(Summary(frames[1].item_error().error()), "INVALID_ARGUMENT BAD_FILE projection");
  EXPECT_TRUE(frames[2].has_scores());
}

TEST(GlobTest, MatchesNames) {
  EXPECT_TRUE(MatchesGlob("*", "abc"));
  EXPECT_TRUE(MatchesGlob("a*c", "abbbc"));
  EXPECT_FALSE(MatchesGlob("a*c", "abbbd"));
  EXPECT_TRUE(MatchesGlob("a?c",
                          "a\xC3\xA4"
                          "c"));
  EXPECT_FALSE(MatchesGlob("a?c", "ac"));
  EXPECT_TRUE(MatchesGlob("[a-c]x", "bx"));
  EXPECT_FALSE(MatchesGlob("[!a-c]x", "bx"));
  EXPECT_TRUE(MatchesGlob("[]]", "]"));
  EXPECT_TRUE(MatchesGlob("[ab", "[ab"));
  EXPECT_FALSE(MatchesGlob("*", ".hidden"));
  EXPECT_TRUE(MatchesGlob(".h*", ".hidden"));
  // Would take for ever with recursion.
  EXPECT_FALSE(MatchesGlob("*a*a*a*a*a*a*a*a*a*a*a*a*b", std::string(5000, 'a')));
}

TEST(GlobTest, NaturalOrder) {
  EXPECT_TRUE(NaturalLess("run2", "run10"));
  EXPECT_FALSE(NaturalLess("run10", "run2"));
  EXPECT_TRUE(NaturalLess("run02", "run10"));
  EXPECT_TRUE(NaturalLess("a1b2", "a1b10"));
  EXPECT_TRUE(NaturalLess("a", "ab"));
  EXPECT_NE(NaturalLess("a01", "a1"), NaturalLess("a1", "a01"));
  EXPECT_FALSE(NaturalLess("a1", "a1"));
}

class ScratchTest : public ::testing::Test {
 protected:
  ScratchTest() {
    std::string path = ::testing::TempDir() + "/scratch_XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    root_ = fs::canonical(path);
  }
  ~ScratchTest() override { fs::remove_all(root_); }

  std::string Run(TestServer* server, const v1::MeasureHeader& header) {
    MeasureClient client(server);
    client.Send(header);
    frames_ = client.Exchange({Frame(InlineProjection(0, MakeMatrix(kRows, 2, 3)))});
    const grpc::Status status = client.Finish();
    error_ = ErrorOf(status);
    EXPECT_TRUE(server->AllReleased());
    return Summary(status);
  }

  fs::path root_;
  std::vector<v1::MeasureResponse> frames_;
  CallError error_;
};

TEST_F(ScratchTest, PairsInFilesScoreTheSameAndLeaveNothing) {
  TestServer server({.scratch_root = root_.string(), .scratch_budget_bytes = int64_t{1} << 30});
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 5, 1), {"srho", "nm_stress"});
  ASSERT_EQ(Run(&server, header), "OK");
  const v1::MeasureScores memory = frames_[1].scores();
  EXPECT_EQ(frames_[0].accepted().memory().pair_strategy(), v1::PAIR_STRATEGY_CONDENSED);
  EXPECT_EQ(frames_[0].accepted().planned_temporary_bytes(), 0);

  v1::MeasureExecution* execution = header.mutable_execution();
  execution->set_pair_order_strategy(v1::PAIR_ORDER_STRATEGY_EXTERNAL);
  execution->set_temporary_budget_bytes(int64_t{1} << 28);
  execution->set_temporary_directory("fast/disk");
  ASSERT_EQ(Run(&server, header), "OK");
  const v1::MeasureAccepted& accepted = frames_[0].accepted();
  EXPECT_EQ(accepted.memory().pair_strategy(), v1::PAIR_STRATEGY_EXTERNAL);
  EXPECT_GT(accepted.planned_temporary_bytes(), 0);
  EXPECT_EQ(accepted.memory().temporary_bytes(), accepted.planned_temporary_bytes());
  EXPECT_GT(accepted.memory().per_projection_temporary_bytes(), 0);
  EXPECT_EQ(accepted.granted().temporary_budget_bytes(), int64_t{1} << 28);
  for (int spec = 0; spec < 2; ++spec) {
    for (const auto& [key, value] : memory.specs(spec).values()) {
      EXPECT_NEAR(frames_[1].scores().specs(spec).values().at(key), value, 1e-12) << key;
    }
  }
  const v1::MeasureReport& report = frames_[2].summary().report();
  EXPECT_GT(report.memory().planned_temporary_bytes(), 0);
  EXPECT_LE(report.memory().temporary_peak_bytes(), report.memory().planned_temporary_bytes());
  EXPECT_TRUE(fs::is_empty(root_));
  EXPECT_EQ(server.state().scratch->budget().reserved_bytes(), 0);
}

TEST_F(ScratchTest, BudgetsAreExact) {
  TestServer server({.scratch_root = root_.string(), .scratch_budget_bytes = int64_t{1} << 30});
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 5, 1), {"srho"});
  v1::MeasureExecution* execution = header.mutable_execution();
  execution->set_pair_order_strategy(v1::PAIR_ORDER_STRATEGY_EXTERNAL);
  execution->set_temporary_budget_bytes(1);
  EXPECT_EQ(Run(&server, header),
            "RESOURCE_EXHAUSTED EXCEEDS_TEMPORARY_BUDGET header.execution.temporary_budget_bytes");
  const int64_t smallest = std::stoll(error_.metadata.at("smallest_budget_bytes"));
  execution->set_temporary_budget_bytes(smallest - 1);
  EXPECT_EQ(Run(&server, header),
            "RESOURCE_EXHAUSTED EXCEEDS_TEMPORARY_BUDGET header.execution.temporary_budget_bytes");
  execution->set_temporary_budget_bytes(smallest);
  EXPECT_EQ(Run(&server, header), "OK");
  EXPECT_EQ(frames_[0].accepted().planned_temporary_bytes(), smallest);
  server.state().settings.max_queue_wait = std::chrono::milliseconds(0);
  auto held = server.state().scratch->budget().Reserve((int64_t{1} << 30) - smallest + 1);
  ASSERT_TRUE(held.ok());
  Run(&server, header);
  EXPECT_EQ(error_.reason, "OVERLOADED");
}

TEST_F(ScratchTest, FoldersStayBelowTheRoot) {
  TestServer server({.scratch_root = root_.string(), .scratch_budget_bytes = int64_t{1} << 30});
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 5, 1), {"srho"});
  header.mutable_execution()->set_temporary_budget_bytes(int64_t{1} << 20);
  fs::create_symlink("/tmp", root_ / "link");
  for (const char* folder : {"/tmp", "..", "a/../../b", "link", "link/x"}) {
    header.mutable_execution()->set_temporary_directory(folder);
    EXPECT_EQ(Run(&server, header),
              "PERMISSION_DENIED PERMISSION_DENIED header.execution.temporary_directory")
        << folder;
  }
  // Another server that starts would take it for what an ended one left.
  for (const char* folder : {"tenond-call-1", "a/./tenond-call-abcdef/b"}) {
    header.mutable_execution()->set_temporary_directory(folder);
    EXPECT_EQ(Run(&server, header),
              "INVALID_ARGUMENT BAD_PARAMETER header.execution.temporary_directory");
  }
  EXPECT_FALSE(fs::exists(root_ / "a"));
  fs::create_directory(root_ / "there");
  fs::create_symlink("there", root_ / "inside");
  const auto folder = server.state().scratch->Make("inside/new");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(fs::path(folder->path()).parent_path(), fs::canonical(root_ / "there/new"));
  std::string deep = "a";
  for (int level = 0; level < 2000; ++level) deep += "/a";
  header.mutable_execution()->set_temporary_directory(deep);
  EXPECT_EQ(Run(&server, header),
            "INVALID_ARGUMENT BAD_PARAMETER header.execution.temporary_directory");
}

TEST_F(ScratchTest, NoneAreMadeWithoutARoot) {
  TestServer server;
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 5, 1), {"srho"});
  header.mutable_execution()->set_temporary_budget_bytes(1000);
  EXPECT_EQ(Run(&server, header),
            "UNIMPLEMENTED NOT_IMPLEMENTED header.execution.temporary_budget_bytes");
}

TEST_F(ScratchTest, LeftoversOfEndedProcessesGoAndNothingElse) {
  auto running = ScratchSpace::Create(root_.string(), false, 1000, 64);
  ASSERT_TRUE(running.ok());
  auto folder = (*running)->Make("x");
  ASSERT_TRUE(folder.ok());
  fs::create_directories(root_ / "deep" / "tenond-call-abcdef");
  std::ofstream(root_ / "deep" / "tenond-call-abcdef" / "run") << "left";
  std::ofstream(root_ / "tenond-call-file") << "somebody's";
  std::ofstream(root_ / "other") << "somebody's";
  auto next = ScratchSpace::Create(root_.string(), false, 1000, 64);
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(fs::exists(root_ / "deep" / "tenond-call-abcdef"));
  EXPECT_TRUE(fs::exists(root_ / "tenond-call-file"));
  EXPECT_TRUE(fs::exists(root_ / "other"));
  EXPECT_TRUE(fs::exists(folder->path()));
  const std::string path = folder->path();
  *folder = ScratchFolder();
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(root_ / "x"));
}

}  // namespace
}  // namespace tenon::server
