#include "client/cpp/tool/commands.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>
#include <vector>

#include "backends/core/error.h"
#include "backends/core/utf8.h"
#include "client/cpp/tool/json.h"
#include "client/cpp/tool/text.h"

namespace tenon::tool {
namespace {

constexpr std::array<Command, 28> kCommands = {{
    {ContractSpec, RunContract},
    {EstimateSpec, RunEstimate},
    {PlanSpec, RunPlan},
    {JobSubmitSpec, RunJobSubmit},
    {JobListSpec, RunJobList},
    {JobShowSpec, RunJobShow},
    {JobWatchSpec, RunJobWatch},
    {JobResultSpec, RunJobResult},
    {JobCancelSpec, RunJobCancel},
    {JobDeleteSpec, RunJobDelete},
    {MeasureCommandSpec, RunMeasure},
    {MeasuresSpec, RunMeasures},
    {DatasetPutSpec, RunDatasetPut},
    {DatasetListSpec, RunDatasetList},
    {DatasetShowSpec, RunDatasetShow},
    {DatasetDeleteSpec, RunDatasetDelete},
    {TensorPutSpec, RunTensorPut},
    {TensorListSpec, RunTensorList},
    {TensorShowSpec, RunTensorShow},
    {TensorDeleteSpec, RunTensorDelete},
    {BenchSpec, RunBench},
    {InfoSpec, RunInfo},
    {StatisticsSpec, RunStatistics},
    {AdminSpec, RunAdmin},
    {TokenSpec, RunToken},
    {DoctorSpec, RunDoctor},
    {CompletionSpec, RunCompletion},
    {VersionSpec, RunVersion},
}};

const Command* FindCommand(std::string_view name) {
  for (const Command& command : kCommands) {
    if (command.spec().name == name) return &command;
  }
  return nullptr;
}

// The command's name at the front of `words`, which has at least one: of two words where such a
// command begins with the first.
std::string NameIn(std::span<const std::string> words) {
  const std::string family = StrCat(words[0], " ");
  const bool two = words.size() > 1 && words[1].rfind('-', 0) != 0 &&
                   std::any_of(kCommands.begin(), kCommands.end(), [&](const Command& command) {
                     return command.spec().name.rfind(family, 0) == 0;
                   });
  return two ? StrCat(family, words[1]) : words[0];
}

std::string Overview() {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Command& command : kCommands) {
    const CommandSpec spec = command.spec();
    rows.emplace_back(spec.name, spec.summary);
  }
  rows.emplace_back("help", "Tells how to use a command: tenon help contract.");
  return StrCat("tenon: exact tensor-network contraction and projection quality, by a server.\n\n",
                "Usage: tenon COMMAND [arguments] [options]\n\nCommands:\n", FormatPairs(rows),
                "\nExamples:\n"
                "  tenon contract 'ab,bc->ac' a.npy b.npy --output c.npy\n"
                "  tenon measure --hd hd.npy --spec tnc:k=20 --spec stress pca.npy tsne.npy\n");
}

int Usage(const Session& session, const std::string& text, const std::string& topic) {
  *session.err << "tenon: " << text << "\nTry 'tenon help" << (topic.empty() ? "" : " ") << topic
               << "'.\n";
  return kExitUsage;
}

int UnknownCommand(const Session& session, const std::string& name) {
  std::vector<std::string> names = {"help"};
  for (const Command& command : kCommands) names.push_back(command.spec().name);
  const std::string nearest = Nearest(name, names);
  return Usage(session,
               StrCat("unknown command '", name, "'",
                      nearest.empty() ? "" : StrCat("; did you mean '", nearest, "'?")),
               "");
}

int Help(std::span<const std::string> topics, const Session& session) {
  if (topics.empty() || topics[0] == "help") {
    *session.out << Overview();
    return kExitOk;
  }
  const std::string name = NameIn(topics);
  const Command* command = FindCommand(name);
  if (command == nullptr) return UnknownCommand(session, name);
  *session.out << HelpText(command->spec());
  return kExitOk;
}

int RunCommand(const Command& command, std::span<const std::string> arguments,
               const Session& session) {
  const CommandSpec spec = command.spec();
  const absl::StatusOr<Arguments> parsed = ParseArguments(spec, arguments);
  if (!parsed.ok()) return Usage(session, std::string(parsed.status().message()), spec.name);
  if (parsed->Has("help")) {
    *session.out << HelpText(spec);
    return kExitOk;
  }
  const int code = command.run(*parsed, session);
  session.out->flush();
  if (!session.out->good()) {
    *session.err << "tenon: the output can't be written\n";
    return code == kExitOk ? kExitUsage : code;
  }
  return code;
}

int Dispatch(std::span<const std::string> arguments, const Session& session) {
  for (const std::string& argument : arguments) {
    if (ReplaceInvalidUtf8(argument) == argument) continue;
    return Usage(session, StrCat("the argument '", ReplaceInvalidUtf8(argument), "' is not UTF-8"),
                 "");
  }
  if (arguments.empty()) return Usage(session, "no command is given", "");
  const std::string name = NameIn(arguments);
  if (name == "help" || name == "--help" || name == "-h") {
    return Help(arguments.subspan(1), session);
  }
  if (name == "--version") return RunVersion(Arguments(), session);
  const Command* command = FindCommand(name);
  if (command == nullptr) return UnknownCommand(session, name);
  const size_t words = name == arguments[0] ? 1 : 2;
  return RunCommand(*command, arguments.subspan(words), session);
}

}  // namespace

CommandSpec VersionSpec() {
  CommandSpec spec;
  spec.name = "version";
  spec.summary = "Prints the version of this program; 'tenon info' tells the server's.";
  spec.example = "tenon version --json";
  spec.exit_codes = kLocalExitCodes;
  spec.options = {{"json", "", "Print one JSON object."}};
  return spec;
}

std::vector<CommandSpec> AllCommandSpecs() {
  std::vector<CommandSpec> specs;
  for (const Command& command : kCommands) specs.push_back(command.spec());
  return specs;
}

int RunVersion(const Arguments& arguments, const Session& session) {
  *session.out << (arguments.Has("json") ? Dump(Json{{"version", TENON_VERSION}})
                                         : std::string("tenon " TENON_VERSION))
               << "\n";
  return kExitOk;
}

int RunTool(std::span<const std::string> arguments, const Session& session) {
  try {
    return Dispatch(arguments, session);
  } catch (const std::exception& error) {
    *session.err << "tenon: " << error.what() << "\n";
  }
  return kExitUsage;
}

}  // namespace tenon::tool
