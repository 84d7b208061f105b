#include "backends/measurement/plane_triangulation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backends/core/error.h"

namespace tenon::measurement {
namespace {

struct Point {
  double x, y;
};

Point operator-(Point a, Point b) { return {a.x - b.x, a.y - b.y}; }
double Cross(Point a, Point b) { return a.x * b.y - a.y * b.x; }
double Square(Point a) { return a.x * a.x + a.y * a.y; }

// Error bounds of the two determinants in terms of the sums of their magnitudes (Shewchuk: Adaptive
// precision floating-point arithmetic and fast robust geometric predicates, 1997).
constexpr double kUnit = std::numeric_limits<double>::epsilon() / 2;
constexpr double kOrientationBound = (3 + 16 * kUnit) * kUnit;
constexpr double kCircleBound = (10 + 96 * kUnit) * kUnit;

// 1 if a, b, c turn left, -1 if they turn right, 0 if rounding leaves that open.
int Orientation(Point a, Point b, Point c) {
  const double left = (a.x - c.x) * (b.y - c.y), right = (a.y - c.y) * (b.x - c.x);
  const double determinant = left - right;
  const double bound = kOrientationBound * (std::abs(left) + std::abs(right));
  return determinant > bound ? 1 : determinant < -bound ? -1 : 0;
}

// 1 if d is inside the circle of a, b, c (which turn left), -1 if outside, 0 if that is open.
int InCircle(Point a, Point b, Point c, Point d) {
  const Point u = a - d, v = b - d, w = c - d;
  const double vw1 = v.x * w.y, vw2 = w.x * v.y, wu1 = w.x * u.y, wu2 = u.x * w.y, uv1 = u.x * v.y,
               uv2 = v.x * u.y;
  const double uu = Square(u), vv = Square(v), ww = Square(w);
  const double determinant = uu * (vw1 - vw2) + vv * (wu1 - wu2) + ww * (uv1 - uv2);
  const double bound =
      kCircleBound * ((std::abs(vw1) + std::abs(vw2)) * uu + (std::abs(wu1) + std::abs(wu2)) * vv +
                      (std::abs(uv1) + std::abs(uv2)) * ww);
  return determinant > bound ? 1 : determinant < -bound ? -1 : 0;
}

// A plane graph of darts: edges with a direction; a dart's reverse has the number with the last bit
// flipped. Darts of one origin form a ring, counter-clockwise.
class Darts {
 public:
  explicit Darts(int64_t count) : origin_(count, -1), next_(count), previous_(count) {}

  static int32_t Reverse(int32_t e) { return e ^ 1; }
  int32_t Origin(int32_t e) const { return origin_[e]; }
  int32_t Target(int32_t e) const { return origin_[e ^ 1]; }
  int32_t Next(int32_t e) const { return next_[e]; }  // about the origin
  int32_t Previous(int32_t e) const { return previous_[e]; }
  int32_t LeftNext(int32_t e) const { return previous_[e ^ 1]; }  // about the face to the left
  int32_t RightPrevious(int32_t e) const { return next_[e ^ 1]; }
  int32_t size() const { return static_cast<int32_t>(origin_.size()); }
  bool Exists(int32_t e) const { return origin_[e] >= 0; }

  void Start(int32_t e, int32_t origin, int32_t target) {
    origin_[e] = origin;
    origin_[e ^ 1] = target;
    for (const int32_t dart : {e, e ^ 1}) next_[dart] = previous_[dart] = dart;
  }
  void End(int32_t e) { origin_[e] = origin_[e ^ 1] = -1; }

  // Joins the rings of two darts, or splits theirs.
  void Splice(int32_t a, int32_t b) {
    std::swap(next_[a], next_[b]);
    previous_[next_[a]] = a;
    previous_[next_[b]] = b;
  }

 private:
  std::vector<int32_t> origin_, next_, previous_;
};

// Darts of the hull: counter-clockwise from the first point, clockwise from the last one.
struct Hull {
  int32_t first, last;
};

// Triangulates points [begin, end), which are sorted; uses the darts of these numbers only, six for
// every point, so that different intervals can be done side by side.
class Builder {
 public:
  Builder(const std::vector<Point>& points, Darts& darts, int32_t begin, int32_t end)
      : points_(points), darts_(darts), begin_(begin), end_(end), unused_({{6 * begin, 6 * end}}) {}

  void Build() { hull_ = Divide(begin_, end_); }

  // Merges with what stands to the right. Afterwards only this one may be used.
  void MergeWith(const Builder& right) {
    certain_ &= right.certain_;
    end_ = right.end_;
    free_.insert(free_.end(), right.free_.begin(), right.free_.end());
    unused_.insert(unused_.end(), right.unused_.begin(), right.unused_.end());
    if (certain_) hull_ = Merge(hull_, right.hull_);
  }

  // False if rounding left a decision open; then nothing else is of use.
  bool certain() const { return certain_; }
  const Hull& hull() const { return hull_; }

 private:
  // Points of the same dart meet in these questions; they need no arithmetic.
  bool TurnsLeft(int32_t a, int32_t b, int32_t c) {
    return a != b && b != c && a != c && Certain(Orientation(points_[a], points_[b], points_[c]));
  }
  bool IsInside(int32_t a, int32_t b, int32_t c, int32_t d) {
    return d != a && d != b && d != c &&
           Certain(InCircle(points_[a], points_[b], points_[c], points_[d]));
  }
  bool Certain(int sign) {
    certain_ &= sign != 0;
    return sign > 0;
  }
  bool LeftOf(int32_t point, int32_t e) {
    return TurnsLeft(point, darts_.Origin(e), darts_.Target(e));
  }
  bool RightOf(int32_t point, int32_t e) {
    return TurnsLeft(point, darts_.Target(e), darts_.Origin(e));
  }

  int32_t Make(int32_t origin, int32_t target);
  int32_t Connect(int32_t a, int32_t b);
  void Remove(int32_t e);
  Hull Divide(int32_t begin, int32_t end);
  Hull Three(int32_t a, int32_t b, int32_t c);
  Hull Merge(Hull left, Hull right);
  int32_t CommonTangent(Hull& left, Hull& right);
  int32_t LeftCandidate(int32_t base, bool* valid);
  int32_t RightCandidate(int32_t base, bool* valid);

  const std::vector<Point>& points_;
  Darts& darts_;
  int32_t begin_, end_;
  std::vector<std::pair<int32_t, int32_t>> unused_;  // intervals of darts
  std::vector<int32_t> free_;                        // darts that were removed
  bool certain_ = true;
  Hull hull_ = {};
};

int32_t Builder::Make(int32_t origin, int32_t target) {
  int32_t e;
  if (!free_.empty()) {
    e = free_.back();
    free_.pop_back();
  } else {
    // A plane graph of m points has less than 3 m edges, so there is one left.
    while (unused_.back().first == unused_.back().second) unused_.pop_back();
    e = unused_.back().first;
    unused_.back().first += 2;
  }
  darts_.Start(e, origin, target);
  return e;
}

// A new dart from the target of `a` to the origin of `b`, with the face to their left.
int32_t Builder::Connect(int32_t a, int32_t b) {
  const int32_t e = Make(darts_.Target(a), darts_.Origin(b));
  darts_.Splice(e, darts_.LeftNext(a));
  darts_.Splice(Darts::Reverse(e), b);
  return e;
}

void Builder::Remove(int32_t e) {
  darts_.Splice(e, darts_.Previous(e));
  darts_.Splice(Darts::Reverse(e), darts_.Previous(Darts::Reverse(e)));
  darts_.End(e);
  free_.push_back(e);
}

Hull Builder::Divide(int32_t begin, int32_t end) {
  if (end - begin == 2) {
    const int32_t e = Make(begin, begin + 1);
    return {e, Darts::Reverse(e)};
  }
  if (end - begin == 3) return Three(begin, begin + 1, begin + 2);
  const int32_t middle = begin + (end - begin) / 2;
  const Hull left = Divide(begin, middle);
  const Hull right = Divide(middle, end);
  return certain_ ? Merge(left, right) : left;
}

Hull Builder::Three(int32_t a, int32_t b, int32_t c) {
  const int32_t ab = Make(a, b), bc = Make(b, c);
  darts_.Splice(Darts::Reverse(ab), bc);
  const bool left = TurnsLeft(a, b, c);
  if (!certain_) return {ab, Darts::Reverse(bc)};
  const int32_t ca = Connect(bc, ab);
  return left ? Hull{ab, Darts::Reverse(bc)} : Hull{Darts::Reverse(ca), ca};
}

// Candidates for the next edge of the seam above `base`; edges that the seam makes illegal go.
int32_t Builder::LeftCandidate(int32_t base, bool* valid) {
  int32_t e = darts_.Next(Darts::Reverse(base));
  *valid = RightOf(darts_.Target(e), base);
  if (!*valid) return e;
  while (IsInside(darts_.Target(base), darts_.Origin(base), darts_.Target(e),
                  darts_.Target(darts_.Next(e)))) {
    const int32_t next = darts_.Next(e);
    Remove(e);
    e = next;
    *valid = RightOf(darts_.Target(e), base);
  }
  return e;
}

int32_t Builder::RightCandidate(int32_t base, bool* valid) {
  int32_t e = darts_.Previous(base);
  *valid = RightOf(darts_.Target(e), base);
  if (!*valid) return e;
  while (IsInside(darts_.Target(base), darts_.Origin(base), darts_.Target(e),
                  darts_.Target(darts_.Previous(e)))) {
    const int32_t previous = darts_.Previous(e);
    Remove(e);
    e = previous;
    *valid = RightOf(darts_.Target(e), base);
  }
  return e;
}

// The lower common tangent of two hulls, from the right one to the left one.
int32_t Builder::CommonTangent(Hull& left, Hull& right) {
  int32_t l = left.last, r = right.first;
  while (certain_) {
    if (LeftOf(darts_.Origin(r), l)) {
      l = darts_.LeftNext(l);
    } else if (RightOf(darts_.Origin(l), r)) {
      r = darts_.RightPrevious(r);
    } else {
      break;
    }
  }
  const int32_t base = Connect(Darts::Reverse(r), l);
  if (darts_.Origin(l) == darts_.Origin(left.first)) left.first = Darts::Reverse(base);
  if (darts_.Origin(r) == darts_.Origin(right.last)) right.last = base;
  return base;
}

Hull Builder::Merge(Hull left, Hull right) {
  int32_t base = CommonTangent(left, right);
  while (certain_) {
    bool l_valid, r_valid;
    const int32_t l = LeftCandidate(base, &l_valid), r = RightCandidate(base, &r_valid);
    if ((!l_valid && !r_valid) || !certain_) break;
    const bool take_right = !l_valid || (r_valid && IsInside(darts_.Target(l), darts_.Origin(l),
                                                             darts_.Origin(r), darts_.Target(r)));
    base = take_right ? Connect(r, Darts::Reverse(base))
                      : Connect(Darts::Reverse(base), Darts::Reverse(l));
  }
  return {left.first, right.last};
}

// Circle through three points: its centre relative to `a`.
Point Center(Point a, Point b, Point c) {
  const Point u = b - a, v = c - a;
  const double factor = 0.5 / Cross(u, v), uu = Square(u), vv = Square(v);
  return {(v.y * uu - u.y * vv) * factor, (u.x * vv - v.x * uu) * factor};
}

// In the space that Qhull works in, the plane and the sum of squares scaled to the same width, what
// was decided has to differ from what was not by far more than Qhull's tolerance, which is about
// 1e-14 of the largest coordinate or the rounding of the sum of squares.
class ToleranceCheck {
 public:
  ToleranceCheck(const std::vector<Point>& points, const Darts& darts,
                 const std::vector<bool>& outside)
      : points_(points), darts_(darts), outside_(outside) {
    constexpr double kTolerance = 1e-13;
    double largest = 0, least = std::numeric_limits<double>::infinity(), most = 0;
    for (const Point point : points) {
      largest = std::max({largest, std::abs(point.x), std::abs(point.y)});
      least = std::min(least, Square(point));
      most = std::max(most, Square(point));
    }
    scale_ = largest / (most - least);
    tolerance_ = std::max(kTolerance * largest, 50 * kUnit * most * scale_);
  }

  bool Passes(int32_t e) const {
    constexpr double kSteepest = 1e9;
    const Point a = points_[darts_.Origin(e)], b = points_[darts_.Target(e)];
    // Three points of a face, or three consecutive ones of the hull: no vertical facet.
    const Point center = Center(a, b, points_[darts_.Target(darts_.LeftNext(e))]);
    const double steepness = scale_ * scale_ * 4 * Square({a.x + center.x, a.y + center.y});
    if (!(steepness < kSteepest * kSteepest)) return false;
    const int32_t reverse = Darts::Reverse(e);
    if (e > reverse) return true;  // the edge has been there
    // The points of the edge, one above the tangent plane of the other one.
    if (!Exceeds(Square(b - a), scale_ * scale_ * 4 * Square(a))) return false;
    if (outside_[e] || outside_[reverse]) return true;
    // The opposite corner above the plane of the face.
    const Point d = points_[darts_.Target(darts_.LeftNext(reverse))] - a;
    return Exceeds(Square(d) - 2 * (d.x * center.x + d.y * center.y), steepness);
  }

 private:
  // Whether a point at this height is well above a plane; `steepness` is the square of its slope.
  bool Exceeds(double height, double steepness) const {
    const double scaled = scale_ * height;
    return scaled > 0 && scaled * scaled > tolerance_ * tolerance_ * (1 + steepness);
  }

  const std::vector<Point>& points_;
  const Darts& darts_;
  const std::vector<bool>& outside_;
  double scale_, tolerance_;
};

// Triangulates side by side what can be; false if a decision was open.
absl::StatusOr<bool> BuildAll(const std::vector<Point>& points, const Parallel& parallel,
                              Darts& darts, Hull* hull) {
  constexpr int64_t kLargestPiece = 2048;
  const int64_t n = static_cast<int64_t>(points.size());
  int64_t pieces = 1;
  while (n > pieces * kLargestPiece) pieces *= 2;
  std::vector<Builder> builders;
  for (int64_t p = 0; p < pieces; ++p) {
    builders.emplace_back(points, darts, static_cast<int32_t>(n * p / pieces),
                          static_cast<int32_t>(n * (p + 1) / pieces));
  }
  TENON_RETURN_IF_ERROR(
      parallel.ForEach(pieces, [&](int64_t piece, int) { builders[piece].Build(); }));
  for (int64_t width = 1; width < pieces; width *= 2) {
    TENON_RETURN_IF_ERROR(parallel.ForEach(pieces / (2 * width), [&](int64_t pair, int) {
      builders[2 * width * pair].MergeWith(builders[2 * width * pair + width]);
    }));
  }
  *hull = builders[0].hull();
  return builders[0].certain();
}

// Darts whose left face is what lies outside the hull.
std::vector<bool> OutsideDarts(const Darts& darts, const Hull& hull) {
  std::vector<bool> outside(darts.size());
  const int32_t start = Darts::Reverse(hull.first);
  for (int32_t e = start; !outside[e]; e = darts.LeftNext(e)) outside[e] = true;
  return outside;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> TriangulatePlane(const double* points, int64_t rows,
                                                      const Parallel& parallel) {
  if (rows < 3 || rows > std::numeric_limits<int32_t>::max() / 8) return std::vector<int32_t>();
  struct Row {
    Point point;
    int32_t number;
  };
  std::vector<Row> sorted(rows);
  for (int64_t i = 0; i < rows; ++i) {
    sorted[i] = {{points[2 * i], points[2 * i + 1]}, static_cast<int32_t>(i)};
  }
  std::sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) {
    return a.point.x != b.point.x ? a.point.x < b.point.x : a.point.y < b.point.y;
  });
  std::vector<Point> places(rows);
  for (int64_t i = 0; i < rows; ++i) places[i] = sorted[i].point;
  Darts darts(6 * rows);
  Hull hull = {};
  TENON_ASSIGN_OR_RETURN(const bool certain, BuildAll(places, parallel, darts, &hull));
  std::vector<int32_t> triangles;
  if (!certain) return triangles;
  const std::vector<bool> outside = OutsideDarts(darts, hull);
  const ToleranceCheck check(places, darts, outside);
  triangles.reserve(6 * rows);
  for (int32_t e = 0; e < darts.size(); ++e) {
    if (!darts.Exists(e)) continue;
    if (!check.Passes(e)) return std::vector<int32_t>();
    const int32_t second = darts.LeftNext(e), third = darts.LeftNext(second);
    if (outside[e] || second < e || third < e) continue;  // each triangle once
    for (const int32_t dart : {e, second, third}) {
      triangles.push_back(sorted[darts.Origin(dart)].number);
    }
  }
  return triangles;
}

int64_t PlaneTriangulationBytes(int64_t rows) {
  // Points twice, one of them with the row; six darts of three numbers, a flag and the list of free
  // ones; two triangles.
  return rows * (24 + 16 + 6 * (3 * 4 + 1) + 3 * 4 + 2 * 3 * 4);
}

}  // namespace tenon::measurement
