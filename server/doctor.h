// What a server with these settings would find on this machine: the check-up of `tenond --doctor`.

#ifndef TENON_SERVER_DOCTOR_H_
#define TENON_SERVER_DOCTOR_H_

#include <string>
#include <vector>

#include "backends/core/checkup.h"
#include "server/config.h"

namespace tenon::server {

// Processor, memory, limits, directories, devices, ports, libraries, clock: one finding each, in a
// fixed order. Starts nothing; makes and removes a file in each directory that it checks.
std::vector<Finding> ExamineMachine(const Config& config);

// One directory that a server writes to: whether it is there or can be made, can be written to,
// on what it lies and how much is free. `needed_bytes`: less than that is a warning. `required`: a
// server that can't use it does not start, else it goes without.
Finding ExamineDirectory(const std::string& subject, const std::string& path, int64_t needed_bytes,
                         bool required);

// The folder of the job store, and that of temporary files: as above, with who owns it and who may
// read it, and whether another server has the job store. Ok for what is off.
Finding ExamineStateFolder(const Config& config);
Finding ExamineScratchFolder(const Config& config);

// Whether an address can be listened on now.
Finding ExamineAddress(const std::string& subject, const Address& address);

}  // namespace tenon::server

#endif  // TENON_SERVER_DOCTOR_H_
