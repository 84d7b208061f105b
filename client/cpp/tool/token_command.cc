#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "backends/core/error.h"
#include "backends/core/sha256.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/json.h"

namespace tenon::tool {
namespace {

// 256 bits: nobody guesses it, so that a fast hash is enough to hide it.
constexpr size_t kTokenBytes = 32;
constexpr size_t kMaxNameBytes = 128;

absl::StatusOr<std::string> NewToken() {
  std::array<char, kTokenBytes> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Error(Reason::kInternal,
                 StrCat("no random numbers: ", std::generic_category().message(errno)));
  }
  std::string text;
  absl::WebSafeBase64Escape(absl::string_view(bytes.data(), bytes.size()), &text);
  return text;
}

absl::Status Run(const Arguments& arguments, const Session& session) {
  const std::string& name = arguments.positionals()[1];
  const std::string role = arguments.Get("role").value_or("compute");
  const auto bad = [](const char* option, const std::string& what) {
    return Error(Reason::kBadParameter, what).Field(option);
  };
  if (arguments.positionals()[0] != "new") {
    return bad("VERB", StrCat("'", arguments.positionals()[0], "' is no verb; expected is new"));
  }
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (name.empty() || name.size() > kMaxNameBytes || !printable || name[0] == '#') {
    return bad("NAME", StrCat("a name has 1 to ", kMaxNameBytes,
                              " printable ASCII characters, the first of which is not '#'"));
  }
  if (role != "compute" && role != "admin") {
    return bad("--role", StrCat("'", role, "' is no role; expected is compute or admin"));
  }
  TENON_ASSIGN_OR_RETURN(const std::string token, NewToken());
  const auto digest = Sha256(token);
  const std::string line = StrCat(name, " ", role, " ", HexDigits(digest.data(), digest.size()));
  if (arguments.Has("json")) {
    *session.out << Dump(Json{{"token", token}, {"line", line}}) << "\n";
    return absl::OkStatus();
  }
  *session.out << token << "\n";
  *session.err << "The line for the server's --token_file:\n" << std::flush;
  *session.out << line << "\n";
  return absl::OkStatus();
}

}  // namespace

CommandSpec TokenSpec() {
  CommandSpec spec;
  spec.name = "token";
  spec.usage = "new NAME";
  spec.summary = "Makes a token for a caller: prints it, and the server's line for it.";
  spec.details =
      "The first line is the token, for $TENON_TOKEN or --token-file of who calls. The second "
      "goes\n"
      "into the file of tenond --token_file; it holds the token's SHA-256 only. kill -HUP makes a\n"
      "running server read the file anew.";
  spec.example = "tenon token new alice >alice.token";
  spec.exit_codes = kLocalExitCodes;
  spec.options = {{"role",
                   "ROLE",
                   "compute (the default), or admin for administration, too.",
                   false,
                   {"compute", "admin"}},
                  {"json", "", "Print one JSON object with 'token' and 'line'."}};
  spec.choices = {"new"};
  spec.min_positionals = 2;
  spec.max_positionals = 2;
  return spec;
}

int RunToken(const Arguments& arguments, const Session& session) {
  const absl::Status status = Run(arguments, session);
  return status.ok() ? kExitOk : Fail(session, status);
}

}  // namespace tenon::tool
