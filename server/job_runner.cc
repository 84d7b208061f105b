#include "server/job_runner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "backends/core/cpu_share.h"
#include "backends/core/crc32c.h"
#include "backends/core/error.h"
#include "backends/core/file.h"
#include "backends/plugin/provider_health.h"
#include "server/contraction_report.h"
#include "server/logging.h"
#include "server/tensor_codec.h"
#include "server/unary.h"
#include "server/work_metrics.h"

namespace tenon::server {
namespace {

constexpr std::chrono::milliseconds kTidyInterval(200);
// How often a job that waits for memory looks whether it was cancelled.
constexpr std::chrono::milliseconds kCancelInterval(50);
// So many jobs may wait for memory while others run.
constexpr int kMostWaiting = 8;

// There was no memory for the work, on the device or here.
bool IsShortage(const absl::Status& status) {
  return plugin::ClassifyFault(status) == plugin::Fault::kOutOfMemory ||
         GetErrorDetails(status).reason == Reason::kOverloaded;
}

absl::Status RanTooLong(double seconds, double limit) {
  return Error(Reason::kDeadline, StrCat("the job has run for ", seconds,
                                         " seconds; it was submitted with a limit of ", limit))
      .Field("header.max_run_seconds")
      .Meta("limit_seconds", limit)
      .Meta("run_seconds", seconds);
}

// The device is gone until somebody has seen to it and has started the server again.
bool IsAbsence(const absl::Status& status) {
  return plugin::ClassifyFault(status) == plugin::Fault::kSticky ||
         GetErrorDetails(status).reason == Reason::kStarting;
}

}  // namespace

JobRunner::JobRunner(ServerState* state, const Options& options)
    : state_(state), board_(*state->jobs), options_(options), free_places_(options.threads) {
  for (int i = 0; i < options.threads + kMostWaiting; ++i)
    threads_.emplace_back([this] { Work(); });
  supervisor_ = std::thread([this] { Supervise(); });
}

JobRunner::~JobRunner() {
  Stop();
  for (std::thread& thread : threads_) thread.join();
  {
    std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  supervisor_.join();
}

void JobRunner::Stop() {
  board_.Stop();
  {
    std::lock_guard lock(mutex_);
    if (!stop_time_.has_value()) stop_time_ = Clock::now() + options_.stop_limit;
  }
  changed_.notify_all();
}

void JobRunner::Work() {
  bool more = true;
  while (more && TakePlace()) {
    const std::optional<JobRun> run = board_.Claim();
    if (run.has_value()) Run(*run);
    more = run.has_value();
    GivePlace();
  }
}

bool JobRunner::TakePlace() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return free_places_ > 0 || stop_time_.has_value(); });
  if (stop_time_.has_value()) return false;
  --free_places_;
  return true;
}

void JobRunner::GivePlace() {
  {
    std::lock_guard lock(mutex_);
    ++free_places_;
  }
  changed_.notify_all();
}

void JobRunner::Supervise() {
  std::unique_lock lock(mutex_);
  while (!done_) {
    const bool late = stop_time_.has_value() && Clock::now() >= *stop_time_;
    lock.unlock();
    board_.Tidy();
    if (late) board_.CancelRunning(Reason::kDraining);
    lock.lock();
    if (!done_) changed_.wait_for(lock, kTidyInterval);
  }
}

void JobRunner::Run(const JobRun& run) {
  double run_seconds = run.run_seconds;
  Log(LogLevel::kInfo, "job begins",
      {{"job", run.id},
       {"request_id", run.request_id},
       {"principal", run.owner},
       {"first_group", run.next_group},
       {"run_seconds_before", run.run_seconds}});
  const absl::Status status = AnswerWithinMemory([&] { return Execute(run, &run_seconds); });
  Settle(run, status, run_seconds);
  LogRequest("job", run.request_id, status, run_seconds - run.run_seconds, {{"job", run.id}});
}

absl::Status JobRunner::Execute(const JobRun& run, double* run_seconds) {
  TENON_ASSIGN_OR_RETURN(const std::string bytes,
                         board_.store().ReadAll(run.number, JobData::kHeader));
  v1::SubmitContractionHeader header;
  if (!header.ParseFromString(bytes)) {
    return Error(Reason::kChecksumMismatch, "the job's header in the store does not parse");
  }
  TENON_ASSIGN_OR_RETURN(ContractCall call, DecodeHeader(header.mutable_contraction(), *state_,
                                                         run.owner, HeaderUse::kContract));
  ContractWork work(std::move(call), state_, run.cancel.get());
  TENON_RETURN_IF_ERROR(Plan(&work, run));
  const auto& request = work.call().request;
  const contraction::Program& program = work.job().program();
  const int64_t last = request.last_group > 0 ? request.last_group : program.n_groups();
  JobCheckpoint checkpoint(&board_, run, {request.first_group, last, program.groups_per_block()},
                           options_.store_interval);
  TENON_ASSIGN_OR_RETURN(const int64_t stored, checkpoint.StoredBytes());
  TENON_ASSIGN_OR_RETURN(
      const Reservation resume_bytes,
      Admit(&work, stored, JobPriorityOf(header.contraction().execution().priority()), run));
  TENON_ASSIGN_OR_RETURN(std::vector<Tensor> operands, LoadOperands(work, run));
  work.SetFixed(std::move(operands));
  TENON_RETURN_IF_ERROR(Resume(&work, &checkpoint, resume_bytes.bytes() == stored));
  if (header.has_max_run_seconds()) {
    const std::chrono::duration<double> left(
        std::clamp(header.max_run_seconds() - run.run_seconds, 0.0, 1e9));
    board_.SetRunDeadline(run.number,
                          Clock::now() + std::chrono::duration_cast<Clock::duration>(left));
  }
  checkpoint.BeginRun();
  const auto inputs = std::make_unique<SetInputs>();
  inputs->complete_time = Clock::now();
  absl::StatusOr<std::vector<ContractWork::Result>> results = [&] {
    const CpuShare share;
    const WorkWatch::Entry entry = Watch(run, "executing");
    return work.RunSets({&inputs, 1}, [&](const auto& progress) {
      SetProgress(run, work, run.run_seconds, progress);
    });
  }();
  *run_seconds = checkpoint.run_seconds();
  RecordContraction(work.job().Report(), work.job().dtype(), &state_->metrics);
  const bool timed_out = GetErrorDetails(results.status()).reason == Reason::kDeadline;
  if (!results.ok() && timed_out && header.has_max_run_seconds()) {
    return RanTooLong(*run_seconds, header.max_run_seconds());
  }
  TENON_RETURN_IF_ERROR(results.status());
  return Finish(run, &work, std::move(results->front()), *run_seconds);
}

// For what the job computes, what it stores meanwhile included.
WorkWatch::Entry JobRunner::Watch(const JobRun& run, std::string_view phase) {
  return {&state_->work_watch, run.cancel.get(), MethodName(Method::kJob), phase, run.id};
}

absl::Status JobRunner::Plan(ContractWork* work, const JobRun& run) {
  const WorkWatch::Entry entry = Watch(run, "planning");
  TENON_ASSIGN_OR_RETURN(const bool found, work->FindPlanAtOnce());
  if (!found) TENON_RETURN_IF_ERROR(work->SearchPlan());
  return work->Prepare();
}

// Reserves; waits while others hold the memory. Returns that of the stored sums: nothing when they
// are larger than this server can hold.
absl::StatusOr<Reservation> JobRunner::Admit(ContractWork* work, int64_t stored_bytes,
                                             Priority priority, const JobRun& run) {
  const int64_t peak = work->planned_peak_bytes();
  if (!state_->budget.CheckFits(peak + stored_bytes).ok()) stored_bytes = 0;
  TENON_ASSIGN_OR_RETURN(Reservation reservation,
                         ReserveInTurn(peak + stored_bytes, priority, run));
  Reservation sums = reservation.Split(stored_bytes);
  work->Admit(std::move(reservation));
  return sums;
}

absl::StatusOr<Reservation> JobRunner::ReserveInTurn(int64_t bytes, Priority priority,
                                                     const JobRun& run) {
  std::optional<absl::StatusOr<Reservation>> outcome;  // with mutex_ held
  const auto tell = [&](absl::StatusOr<Reservation> told) {
    std::lock_guard lock(mutex_);
    outcome = std::move(told);
    changed_.notify_all();  // with the lock held: the wait may be over, and `outcome` gone
  };
  const uint64_t ticket = NewTicket();
  TENON_ASSIGN_OR_RETURN(std::optional<Reservation> free,
                         state_->budget.ReserveInTurn({.ticket = ticket,
                                                       .priority = priority,
                                                       .bytes = bytes,
                                                       .bounded = false,
                                                       .granted = tell,
                                                       .refused = tell}));
  if (free.has_value()) return *std::move(free);
  board_.SetWaiting(run.number, true);
  GivePlace();
  absl::Status over;
  {
    std::unique_lock lock(mutex_);
    while (!outcome.has_value()) {
      if (over.ok()) over = stop_time_.has_value() ? JobsStopped() : run.cancel->Check();
      if (!over.ok()) {
        lock.unlock();
        const bool left = state_->budget.Leave(ticket);
        lock.lock();
        if (left) break;
      }
      changed_.wait_for(lock, kCancelInterval, [&] { return outcome.has_value(); });
    }
    --free_places_;
  }
  board_.SetWaiting(run.number, false);
  if (!over.ok()) return over;
  return *std::move(outcome);
}

absl::StatusOr<std::vector<Tensor>> JobRunner::LoadOperands(const ContractWork& work,
                                                            const JobRun& run) {
  std::vector<Tensor> operands;
  for (size_t k = 0; k < work.call().operands.size(); ++k) {
    TENON_RETURN_IF_ERROR(run.cancel->Check());
    TENON_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(work.call().operands[k].spec));
    TENON_RETURN_IF_ERROR(
        PrefixMessage(board_.store().Read(
                          run.number, JobData::kOperand, static_cast<int64_t>(k),
                          {tensor.buffer.data(), static_cast<size_t>(tensor.buffer.size_bytes())}),
                      StrCat("operand ", k, ": ")));
    operands.push_back(std::move(tensor));
  }
  return operands;
}

// Lets the run begin where the one before was stored.
// From the stored sums, whose memory is reserved then, or anew.
absl::Status JobRunner::Resume(ContractWork* work, JobCheckpoint* checkpoint, bool from_stored) {
  schedule::ResumePoint resume;
  if (from_stored) {
    TENON_ASSIGN_OR_RETURN(resume, checkpoint->Load());
  }
  const absl::Status set = work->job().SetCheckpoint(checkpoint, std::move(resume));
  if (GetErrorDetails(set).reason != Reason::kBadParameter || set.ok()) return set;
  return Error(Reason::kChecksumMismatch,
               StrCat("the job's partial sums in the store are damaged: ", set.message()));
}

absl::Status JobRunner::Finish(const JobRun& run, ContractWork* work, ContractWork::Result result,
                               double seconds) {
  CallFigures figures;
  figures.input_prepare_seconds = work->prepare_seconds();
  figures.request_seconds = seconds;
  figures.planned_peak_bytes = work->planned_peak_bytes();
  figures.staging_bytes = work->staging_bytes();
  figures.sets = 1;
  figures.timeline = &work->timeline();
  v1::ContractionReport report;
  WriteContractionReport(work->call(), work->job(), {}, figures, &report);
  const Tensor& tensor = *result.tensor;
  const std::string_view bytes = AsText(tensor.buffer);
  v1::ContractResult head;
  WriteTensorSpec(tensor.spec, head.mutable_spec());
  if (result.log10_scale.has_value()) head.set_log10_scale(*result.log10_scale);
  *head.mutable_report() = std::move(result.report);
  head.mutable_report()->set_result_crc32c(Crc32c(bytes));
  return board_.Succeed(run.number, head, bytes, report);
}

void JobRunner::SetProgress(const JobRun& run, const ContractWork& work, double before_seconds,
                            const schedule::ContractionJob::Progress& progress) {
  const DType dtype = work.job().dtype();
  v1::ContractProgress out;
  out.set_phase(v1::CONTRACT_PHASE_EXECUTING);
  out.set_slices_done(progress.slices_done);
  out.set_slices_total(progress.slices_total);
  out.set_flops_done(MultiplyAdds(progress.flops_done, dtype));
  out.set_flops_total(MultiplyAdds(progress.flops_total, dtype));
  out.set_elapsed_seconds(before_seconds + progress.elapsed_seconds);
  if (progress.left_seconds.has_value()) out.set_left_seconds(*progress.left_seconds);
  board_.SetProgress(run.number, out);
}

void JobRunner::Settle(const JobRun& run, const absl::Status& status, double run_seconds) {
  if (status.ok()) {  // it has succeeded
    std::lock_guard lock(mutex_);
    shortages_.erase(run.number);
    return;
  }
  const Reason reason = GetErrorDetails(status).reason;
  if (reason == Reason::kClientCancelled) return board_.EndCancelled(run.number);
  if (reason == Reason::kDraining) {
    return board_.Suspend(run.number, run_seconds, std::chrono::milliseconds(0));
  }
  if (IsAbsence(status)) {
    return board_.Suspend(run.number, run_seconds, options_.absence_delay);
  }
  if (IsShortage(status)) {
    if (const auto delay = NextTry(run)) return board_.Suspend(run.number, run_seconds, *delay);
  }
  board_.Fail(run.number, status);
}

std::optional<std::chrono::milliseconds> JobRunner::NextTry(const JobRun& run) {
  std::lock_guard lock(mutex_);
  Shortages& shortages = shortages_[run.number];
  if (shortages.next_group != run.next_group) shortages = {run.next_group, 0};
  if (shortages.count == options_.max_shortages) {
    shortages_.erase(run.number);
    return std::nullopt;
  }
  return options_.retry_delay * (1 << shortages.count++);
}

}  // namespace tenon::server
