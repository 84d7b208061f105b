// The settings that say who may call, and over what: a part of config.h.

#ifndef TENON_SERVER_SECURITY_SETTINGS_H_
#define TENON_SERVER_SECURITY_SETTINGS_H_

#include "absl/status/status.h"
#include "server/config.h"

namespace tenon::server {

// Reads the flags, and the files that they name, into `config`. BAD_PARAMETER with the flag's name
// as the field. Whatever fails of a file is told with its flag.
absl::Status FillSecurity(Config* config);

// The limits of one principal. After the memory budget is known, of which a share may be meant.
absl::Status FillQuotas(Config* config);

}  // namespace tenon::server

#endif  // TENON_SERVER_SECURITY_SETTINGS_H_
