#include "tests/support/certificates.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace tenon::testing {
namespace {

constexpr char kRequest[] =
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";

void Run(const std::string& command) {
  ASSERT_EQ(std::system((command + " 2>/dev/null").c_str()), 0) << command;
}

}  // namespace

CertificateFolder::CertificateFolder() {
  std::string path = ::testing::TempDir() + "/certificates_XXXXXX";
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  folder_ = path;
  ca_ = {Path("ca.pem"), Path("ca.key")};
  Run(std::string(kRequest) + " -subj /CN=authority -keyout " + ca_.key + " -out " + ca_.cert);
}

CertificateFolder::~CertificateFolder() { std::filesystem::remove_all(folder_); }

CertificateFiles CertificateFolder::Make(const std::string& name,
                                         const std::string& alternatives) const {
  const CertificateFiles files = {Path(name + ".pem"), Path(name + ".key")};
  Run(std::string(kRequest) + " -CA " + ca_.cert + " -CAkey " + ca_.key + " -subj /CN=" + name +
      (alternatives.empty() ? "" : " -addext subjectAltName=" + alternatives) + " -keyout " +
      files.key + " -out " + files.cert);
  return files;
}

CertificateFiles CertificateFolder::MakeExpired(const std::string& name) const {
  const CertificateFiles fresh = Make(name + "_fresh", "");
  const CertificateFiles files = {Path(name + ".pem"), fresh.key};
  Run("openssl x509 -in " + fresh.cert + " -days -1 -signkey " + fresh.key + " -out " + files.cert);
  return files;
}

void CertificateFolder::Write(const std::string& name, const std::string& text) const {
  std::ofstream(Path(name)) << text;
}

}  // namespace tenon::testing
