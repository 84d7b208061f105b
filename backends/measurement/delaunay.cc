#include "backends/measurement/delaunay.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"

extern "C" {
#include <libqhull_r/qhull_ra.h>
}

namespace tenon::measurement {
namespace {

// What SciPy's Delaunay passes: scaled lifted coordinate, coplanar points kept, a point at infinity
// (so that cocircular points are no special case), wide facets allowed, facets triangulated.
constexpr char kCommand[] = "qhull d Qt Qbb Qc Qz Q12";

absl::Status NoTriangles(const std::string& why) { return Error(Reason::kUndefinedScore, why); }

// One run of Qhull. Qhull leaves its own functions by longjmp, to a frame of qh_new_qhull itself:
// no frame of ours is ever skipped. What it would print goes to memory.
class QhullRun {
 public:
  QhullRun() : messages_(open_memstream(&text_, &text_size_)), qhull_(new qhT) {
    if (messages_ != nullptr) qh_zero(qhull_.get(), messages_);
  }
  ~QhullRun() {
    if (messages_ == nullptr) return;
    qh_freeqhull(qhull_.get(), !qh_ALL);
    int blocks = 0, bytes = 0;
    qh_memfreeshort(qhull_.get(), &blocks, &bytes);
    std::fclose(messages_);
    std::free(text_);
  }
  QhullRun(const QhullRun&) = delete;
  QhullRun& operator=(const QhullRun&) = delete;

  // `points` has to live as long as the run.
  absl::Status Triangulate(std::vector<double>& points) {
    if (messages_ == nullptr) {
      return Error(Reason::kExceedsMemoryBudget, "the system refused memory for a triangulation");
    }
    std::string command = kCommand;
    const int code = qh_new_qhull(qhull_.get(), 2, static_cast<int>(points.size() / 2),
                                  points.data(), False, command.data(), nullptr, messages_);
    if (code == qh_ERRnone) return absl::OkStatus();
    if (code == qh_ERRmem) {
      return Error(Reason::kExceedsMemoryBudget, "the system refused memory for a triangulation");
    }
    if (code == qh_ERRsingular || code == qh_ERRinput) {
      return NoTriangles("fewer than three points are not collinear, up to rounding");
    }
    return NoTriangles(
        absl::StrCat("the points cannot be triangulated (Qhull's error ", code, ")"));
  }

  std::vector<int32_t> Triangles() {
    qhT* qh = qhull_.get();  // by this name for Qhull's macros
    std::vector<int32_t> triangles;
    facetT* facet;
    FORALLfacets {
      if (facet->upperdelaunay) continue;
      int32_t corners[3];
      int count = 0;
      vertexT *vertex, **vertexp;
      FOREACHvertex_(facet->vertices) {
        if (count < 3) corners[count] = qh_pointid(qh, vertex->point);
        ++count;
      }
      if (count != 3) continue;  // never with Qt
      if (facet->toporient == qh_ORIENTclock) std::swap(corners[0], corners[1]);
      triangles.insert(triangles.end(), corners, corners + 3);
    }
    return triangles;
  }

 private:
  char* text_ = nullptr;
  size_t text_size_ = 0;
  FILE* messages_;
  std::unique_ptr<qhT> qhull_;
};

// Squares of the points have to stay in range; powers of two change nothing else.
void BringIntoRange(std::vector<double>& points) {
  constexpr int kLargestExponent = 300;
  double largest = 0;
  for (const double value : points) largest = std::max(largest, std::abs(value));
  int exponent = 0;
  std::frexp(largest, &exponent);
  if (std::abs(exponent) <= kLargestExponent) return;
  for (double& value : points) value = std::ldexp(value, -exponent);
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> DelaunayTriangles(const double* points, int64_t rows) {
  if (rows > std::numeric_limits<int>::max() / 4) {
    return NoTriangles(absl::StrCat(rows, " points are too many for a triangulation"));
  }
  std::vector<double> copy(points, points + 2 * rows);
  BringIntoRange(copy);
  QhullRun run;
  TENON_RETURN_IF_ERROR(run.Triangulate(copy));
  std::vector<int32_t> triangles = run.Triangles();
  if (triangles.empty()) return NoTriangles("the points have no triangle");
  return triangles;
}

int64_t DelaunayBytes(int64_t rows) {
  constexpr int64_t kQhullBytesPerRow = 1024;  // measured, with its lists of outside points
  // Up to twice as many triangles as rows, in a vector that doubles when it grows.
  return rows * (2 * int64_t{sizeof(double)} + kQhullBytesPerRow + 2 * 2 * 3 * int64_t{4});
}

}  // namespace tenon::measurement
