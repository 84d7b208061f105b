// The commands of `tenon`.

#ifndef TENON_CLIENT_CPP_TOOL_COMMANDS_H_
#define TENON_CLIENT_CPP_TOOL_COMMANDS_H_

#include <span>
#include <string>
#include <vector>

#include "client/cpp/tool/arguments.h"
#include "client/cpp/tool/session.h"

namespace tenon::tool {

struct Command {
  CommandSpec (*spec)();
  // The exit code.
  int (*run)(const Arguments& arguments, const Session& session);
};

CommandSpec ContractSpec();
int RunContract(const Arguments& arguments, const Session& session);
CommandSpec EstimateSpec();
int RunEstimate(const Arguments& arguments, const Session& session);
CommandSpec PlanSpec();
int RunPlan(const Arguments& arguments, const Session& session);
CommandSpec JobSubmitSpec();
int RunJobSubmit(const Arguments& arguments, const Session& session);
CommandSpec JobListSpec();
int RunJobList(const Arguments& arguments, const Session& session);
CommandSpec JobShowSpec();
int RunJobShow(const Arguments& arguments, const Session& session);
CommandSpec JobWatchSpec();
int RunJobWatch(const Arguments& arguments, const Session& session);
CommandSpec JobResultSpec();
int RunJobResult(const Arguments& arguments, const Session& session);
CommandSpec JobCancelSpec();
int RunJobCancel(const Arguments& arguments, const Session& session);
CommandSpec JobDeleteSpec();
int RunJobDelete(const Arguments& arguments, const Session& session);
CommandSpec MeasureCommandSpec();
int RunMeasure(const Arguments& arguments, const Session& session);
CommandSpec MeasuresSpec();
int RunMeasures(const Arguments& arguments, const Session& session);
CommandSpec BenchSpec();
int RunBench(const Arguments& arguments, const Session& session);
CommandSpec InfoSpec();
int RunInfo(const Arguments& arguments, const Session& session);
CommandSpec AdminSpec();
int RunAdmin(const Arguments& arguments, const Session& session);
CommandSpec TokenSpec();
int RunToken(const Arguments& arguments, const Session& session);
CommandSpec DoctorSpec();
int RunDoctor(const Arguments& arguments, const Session& session);
CommandSpec DatasetPutSpec();
int RunDatasetPut(const Arguments& arguments, const Session& session);
CommandSpec DatasetListSpec();
int RunDatasetList(const Arguments& arguments, const Session& session);
CommandSpec DatasetShowSpec();
int RunDatasetShow(const Arguments& arguments, const Session& session);
CommandSpec DatasetDeleteSpec();
int RunDatasetDelete(const Arguments& arguments, const Session& session);
CommandSpec TensorPutSpec();
int RunTensorPut(const Arguments& arguments, const Session& session);
CommandSpec TensorListSpec();
int RunTensorList(const Arguments& arguments, const Session& session);
CommandSpec TensorShowSpec();
int RunTensorShow(const Arguments& arguments, const Session& session);
CommandSpec TensorDeleteSpec();
int RunTensorDelete(const Arguments& arguments, const Session& session);
CommandSpec StatisticsSpec();
int RunStatistics(const Arguments& arguments, const Session& session);
CommandSpec CompletionSpec();
int RunCompletion(const Arguments& arguments, const Session& session);
CommandSpec VersionSpec();
int RunVersion(const Arguments& arguments, const Session& session);

// Of all commands, in the order of the overview.
std::vector<CommandSpec> AllCommandSpecs();

// The whole program: finds the command, parses, prints help, runs; never throws. `arguments` are
// those after the program's name.
int RunTool(std::span<const std::string> arguments, const Session& session);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_COMMANDS_H_
