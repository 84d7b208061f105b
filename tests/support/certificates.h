// Certificates for tests, made by the command openssl.

#ifndef TENON_TESTS_SUPPORT_CERTIFICATES_H_
#define TENON_TESTS_SUPPORT_CERTIFICATES_H_

#include <string>

namespace tenon::testing {

// PEM files of one certificate and its private key.
struct CertificateFiles {
  std::string cert, key;
};

// A folder of its own with an authority that signs; removed with it.
class CertificateFolder {
 public:
  CertificateFolder();
  ~CertificateFolder();
  CertificateFolder(const CertificateFolder&) = delete;
  CertificateFolder& operator=(const CertificateFolder&) = delete;

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  // The authority's certificate.
  const std::string& ca() const { return ca_.cert; }
  // A certificate that the authority signed, in NAME.pem and NAME.key; `alternatives` as openssl
  // writes them ("IP:127.0.0.1,URI:spiffe://test/a"), "" for none.
  CertificateFiles Make(const std::string& name, const std::string& alternatives) const;
  // One that nobody trusts, of a certificate that has expired.
  CertificateFiles MakeExpired(const std::string& name) const;

  void Write(const std::string& name, const std::string& text) const;

 private:
  std::string folder_;
  CertificateFiles ca_;
};

}  // namespace tenon::testing

#endif  // TENON_TESTS_SUPPORT_CERTIFICATES_H_
