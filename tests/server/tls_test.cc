#include "server/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/certificates.h"
#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using ::tenon::testing::CertificateFiles;
using ::tenon::testing::CertificateFolder;
using ::tenon::testing::Fails;

TEST(Tls, ReadsPairsAndAuthorities) {
  const CertificateFolder folder;
  const CertificateFiles server = folder.Make("server", "IP:127.0.0.1");
  const auto material = ReadTlsFiles({server.cert, server.key, folder.ca()});
  ASSERT_TRUE(material.ok()) << material.status();
  EXPECT_FALSE(material->client_ca.empty());
  const auto without = ReadTlsFiles({server.cert, server.key, ""});
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_TRUE(without->client_ca.empty());
}

TEST(Tls, RefusesWhatDoesNotFitNamingTheSetting) {
  const CertificateFolder folder;
  const CertificateFiles server = folder.Make("server", ""), other = folder.Make("other", "");
  const CertificateFiles expired = folder.MakeExpired("expired");
  folder.Write("empty", "");
  folder.Write("text", "no certificate\n");
  folder.Write("broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  const std::string none = folder.Path("none"), empty = folder.Path("empty"),
                    text = folder.Path("text"), broken = folder.Path("broken");
  const struct {
    TlsFiles files;
    const char* field;
  } cases[] = {{{none, server.key, ""}, "tls_cert"},
               {{empty, server.key, ""}, "tls_cert"},
               {{text, server.key, ""}, "tls_cert"},
               {{broken, server.key, ""}, "tls_cert"},
               {{server.key, server.key, ""}, "tls_cert"},
               {{expired.cert, expired.key, ""}, "tls_cert"},
               {{server.cert, none, ""}, "tls_key"},
               {{server.cert, text, ""}, "tls_key"},
               {{server.cert, server.cert, ""}, "tls_key"},
               {{server.cert, other.key, ""}, "tls_key"},
               {{server.cert, server.key, none}, "tls_client_ca"},
               {{server.cert, server.key, text}, "tls_client_ca"},
               {{server.cert, server.key, server.key}, "tls_client_ca"}};
  for (const auto& bad : cases) {
    EXPECT_TRUE(Fails(ReadTlsFiles(bad.files), Reason::kBadParameter, bad.field))
        << bad.files.cert << " " << bad.files.key << " " << bad.files.client_ca;
  }
}

}  // namespace
}  // namespace tenon::server
