#include <utility>

#include "backends/core/error.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/json.h"
#include "client/cpp/tool/text.h"

namespace tenon::tool {
namespace {

std::string Keys(const google::protobuf::RepeatedPtrField<v1::OutputInfo>& outputs) {
  std::string keys;
  for (const v1::OutputInfo& output : outputs) {
    keys += StrCat(keys.empty() ? "" : ", ", output.key());
  }
  return keys;
}

void PrintList(const v1::ListMeasuresResponse& list, std::ostream* out) {
  std::vector<std::vector<std::string>> rows;
  for (const v1::MeasureInfo& measure : list.measures()) {
    std::string needs = measure.needs_labels() ? "labels" : "";
    if (!measure.available()) needs += needs.empty() ? "(not offered yet)" : " (not offered yet)";
    rows.push_back({measure.alias().empty() ? measure.id() : measure.alias(), measure.title(),
                    Keys(measure.outputs()), needs});
  }
  *out << FormatTable({"measure", "title", "scores", "needs"}, rows)
       << "\n'tenon measures NAME' tells all about one.\n";
}

std::string Range(const v1::OutputInfo& output) {
  std::string text;
  if (output.has_minimum()) text += StrCat("from ", FormatNumber(output.minimum()), " ");
  if (output.has_maximum()) text += StrCat("to ", FormatNumber(output.maximum()), " ");
  if (output.has_best()) text += StrCat("best ", FormatNumber(output.best()));
  return text;
}

void PrintOutputs(const char* title,
                  const google::protobuf::RepeatedPtrField<v1::OutputInfo>& outputs,
                  std::ostream* out) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const v1::OutputInfo& output : outputs) {
    // The server's text tells the range, where there is a text.
    rows.emplace_back(output.key(),
                      output.description().empty() ? Range(output) : output.description());
  }
  if (!rows.empty()) *out << "\n" << title << "\n" << FormatPairs(rows);
}

std::string ParameterText(const v1::ParameterInfo& parameter) {
  std::string choices;
  for (const std::string& alias : parameter.allowed_aliases()) {
    choices += StrCat(choices.empty() ? "" : ", ", alias);
  }
  const std::string& standard = parameter.default_value();
  std::string text;
  for (const std::string& part :
       {parameter.description(), parameter.range(), choices,
        standard.empty() ? "" : StrCat("default ", standard), parameter.condition()}) {
    if (!part.empty()) text += StrCat(text.empty() ? "" : "; ", part);
  }
  return text;
}

void PrintDetails(const v1::MeasureInfo& measure, std::ostream* out) {
  *out << measure.id();
  if (!measure.alias().empty()) *out << " (" << measure.alias() << ")";
  *out << ": " << measure.title() << "\n\n" << measure.description() << "\n";
  std::vector<std::pair<std::string, std::string>> rows;
  for (const v1::ParameterInfo& parameter : measure.parameters()) {
    rows.emplace_back(parameter.name(), ParameterText(parameter));
  }
  if (!rows.empty()) *out << "\nParameters\n" << FormatPairs(rows);
  PrintOutputs("Scores", measure.outputs(), out);
  PrintOutputs("Scores per row", measure.local_outputs(), out);
  *out << "\n"
       << FormatPairs({{"labels", measure.needs_labels() ? "needed" : "not needed"},
                       {"repeats", ShortEnumName(measure.determinism())},
                       {"cost", measure.cost()}});
  for (const std::string& reference : measure.references()) *out << "  " << reference << "\n";
  if (!measure.available()) *out << "This server does not offer it yet.\n";
}

absl::Status Run(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(client::Client client, Connect(arguments));
  TENON_ASSIGN_OR_RETURN(const client::CallOptions options, CallOptionsOf(arguments, session));
  const std::vector<std::string>& names = arguments.positionals();
  TENON_ASSIGN_OR_RETURN(const v1::ListMeasuresResponse list,
                         client.ListMeasures(names.empty() ? "" : names[0], options));
  if (arguments.Has("json")) {
    *session.out << Dump(MessageToJson(list)["measures"]) << "\n";
  } else if (names.empty()) {
    PrintList(list, session.out);
  } else {
    for (const v1::MeasureInfo& measure : list.measures()) PrintDetails(measure, session.out);
  }
  return absl::OkStatus();
}

}  // namespace

CommandSpec MeasuresSpec() {
  CommandSpec spec;
  spec.name = "measures";
  spec.usage = "[NAME]";
  spec.summary = "Lists the measures of the server, or tells all about one.";
  spec.example = "tenon measures tnc";
  spec.options = {{"json", "", "Print a JSON list with everything the server tells."}};
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  spec.max_positionals = 1;
  return spec;
}

int RunMeasures(const Arguments& arguments, const Session& session) {
  const absl::Status status = Run(arguments, session);
  return status.ok() ? kExitOk : Fail(session, status);
}

}  // namespace tenon::tool
