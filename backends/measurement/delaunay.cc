#include "backends/measurement/delaunay.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/error.h"
#include "backends/measurement/plane_triangulation.h"

extern "C" {
#include <libqhull_r/qhull_ra.h>
}

namespace tenon::measurement {
namespace {

// What SciPy's Delaunay passes: scaled lifted coordinate, coplanar points kept, a point at infinity
// (so that cocircular points are no special case), wide facets allowed, facets triangulated.
// TF makes it report, to us, after so many facets.
constexpr char kCommand[] = "qhull d Qt Qbb Qc Qz Q12 TF1000";

absl::Status NoTriangles(const std::string& why) { return Error(Reason::kUndefinedScore, why); }

// One run of Qhull. Qhull leaves its own functions by longjmp, to a frame of qh_new_qhull itself:
// no frame of ours is ever skipped. What it prints is dropped, but is the occasion to look whether
// the call was cancelled.
class QhullRun {
 public:
  explicit QhullRun(const Parallel& parallel) : parallel_(parallel), qhull_(new qhT) {
    cookie_io_functions_t functions = {};
    functions.write = DropMessage;
    messages_ = fopencookie(this, "w", functions);
    if (messages_ == nullptr) return;
    std::setvbuf(messages_, nullptr, _IONBF, 0);
    qh_zero(qhull_.get(), messages_);
  }
  ~QhullRun() {
    if (messages_ == nullptr) return;
    qh_freeqhull(qhull_.get(), !qh_ALL);
    int blocks = 0, bytes = 0;
    qh_memfreeshort(qhull_.get(), &blocks, &bytes);
    std::fclose(messages_);
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
    if (code == qh_ERRnone) return parallel_.CheckCancelled();
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
  static ssize_t DropMessage(void* run, const char*, size_t size) {
    const auto* self = static_cast<QhullRun*>(run);
    // As if it had been asked to end after the first point.
    if (!self->parallel_.CheckCancelled().ok()) self->qhull_->STOPadd = 1;
    return static_cast<ssize_t>(size);
  }

  const Parallel& parallel_;
  FILE* messages_ = nullptr;
  std::unique_ptr<qhT> qhull_;
};

// A copy. Squares of the points have to stay in range; powers of two change nothing else.
std::vector<double> InRange(const double* points, int64_t rows) {
  constexpr int kLargestExponent = 100;
  std::vector<double> copy(points, points + 2 * rows);
  double largest = 0;
  for (const double value : copy) largest = std::max(largest, std::abs(value));
  int exponent = 0;
  std::frexp(largest, &exponent);
  if (std::abs(exponent) <= kLargestExponent) return copy;
  for (double& value : copy) value = std::ldexp(value, -exponent);
  return copy;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> DelaunayTriangles(const double* points, int64_t rows,
                                                       const Parallel& parallel) {
  {
    const std::vector<double> copy = InRange(points, rows);
    TENON_ASSIGN_OR_RETURN(std::vector<int32_t> triangles,
                           TriangulatePlane(copy.data(), rows, parallel));
    if (!triangles.empty()) return triangles;
  }
  return QhullTriangles(points, rows, parallel);
}

absl::StatusOr<std::vector<int32_t>> QhullTriangles(const double* points, int64_t rows,
                                                    const Parallel& parallel) {
  if (rows > std::numeric_limits<int>::max() / 4) {
    return NoTriangles(absl::StrCat(rows, " points are too many for a triangulation"));
  }
  std::vector<double> copy = InRange(points, rows);
  QhullRun run(parallel);
  TENON_RETURN_IF_ERROR(run.Triangulate(copy));
  std::vector<int32_t> triangles = run.Triangles();
  if (triangles.empty()) return NoTriangles("the points have no triangle");
  return triangles;
}

int64_t DelaunayBytes(int64_t rows) {
  constexpr int64_t kQhullBytesPerRow = 2048;  // measured: 700 in general position, 1850 on a grid
  // Up to twice as many triangles as rows, in a vector that doubles when it grows.
  return rows * (2 * int64_t{sizeof(double)} + kQhullBytesPerRow + int64_t{4} * 2 * 2 * 3);
}

}  // namespace tenon::measurement
