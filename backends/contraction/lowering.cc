// From a contraction tree with a slicing set to a flat list of strided steps.

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "backends/contraction/arena.h"
#include "backends/contraction/axis_order.h"
#include "backends/contraction/fingerprint.h"
#include "backends/contraction/loop_order.h"
#include "backends/contraction/program.h"
#include "backends/contraction/reuse.h"
#include "backends/contraction/slice_groups.h"
#include "backends/contraction/step_modes.h"
#include "backends/contraction/step_order.h"
#include "backends/core/error.h"

namespace tenon::contraction {
namespace {

constexpr int64_t kArenaAlignmentBytes = 64;

// A tensor while the program is built.
struct Node {
  StridedAxes axes;  // no sliced index, none of extent 1
  std::vector<tenon_slice_term> slice_terms;
  int64_t elements = 0;
  int space = TENON_SPACE_OPERAND;
  int operand = 0;
  int level = 0;  // 1 + innermost loop position among the sliced indices it depends on; 0: none
  bool varying = false;
  int writer = -1, reader = -1;  // drafts
};

// A step before offsets are known.
struct Draft {
  int kind = TENON_STEP_CONTRACT;
  int a = -1, b = -1, c = -1;  // nodes
  int phase = TENON_PHASE_CONSTANT;
  int level = 0;
  ModeGroups groups;
};

std::vector<int64_t> StridesOf(std::span<const int64_t> shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    return std::vector<int64_t>(shape.size(), 0);  // products of the other extents may overflow
  }
  return RowMajorStrides(shape);
}

}  // namespace

class Lowering {
 public:
  Lowering(const Expression& expression, const Path& path, const std::vector<int>& sliced,
           const LoweringOptions& options)
      : expression_(expression),
        path_(path),
        sliced_(sliced),
        options_(options),
        n_operands_(expression.inputs.size()),
        program_(std::make_shared<Program>()) {}

  absl::StatusOr<std::shared_ptr<const Program>> Run() {
    TENON_RETURN_IF_ERROR(CheckArguments());
    TENON_RETURN_IF_ERROR(SetLoops());
    TENON_RETURN_IF_ERROR(AddOperands());
    ChooseOrders();
    TENON_RETURN_IF_ERROR(DraftSteps());
    SortDrafts();
    DivideIntoGroups();
    TENON_RETURN_IF_ERROR(PlaceTensors());
    TENON_RETURN_IF_ERROR(MeetMemoryLimit());
    EmitSteps();
    Finish();
    return std::shared_ptr<const Program>(std::move(program_));
  }

 private:
  absl::Status CheckArguments() const;
  absl::Status SetLoops();
  absl::Status SetResult(const std::vector<int>& output_loops);
  absl::Status CountSlices(const std::vector<int>& output_loops, const std::vector<int>& summed);
  absl::Status AddOperands();
  Node MakeOperand(size_t k, const std::vector<int64_t>& shape) const;
  void ChooseOrders();
  absl::Status DraftSteps();
  absl::StatusOr<int> DraftOperand(int tensor);
  absl::StatusOr<int> DraftStep(int kind, int a, int b, const std::vector<int>& axes, bool is_last);
  absl::StatusOr<Node> MakeResult(const std::vector<int>& axes, bool is_last) const;
  void SortDrafts();
  void DivideIntoGroups();
  double FlopsOfOneRun(const Draft& draft) const;
  absl::Status PlaceTensors();
  absl::Status MeetMemoryLimit();
  void RunAtRank(int rank, Draft& draft);
  absl::StatusOr<int64_t> PlaceSpace(int space);
  bool IsKept(const Node& node) const;
  void EmitSteps();
  tenon_tensor_ref EmitRef(int node);
  void Finish();

  int n_loops() const { return static_cast<int>(program_->sliced_.size()); }
  int64_t element_bytes() const { return DTypeSize(options_.dtype); }
  int64_t alignment_elements() const { return kArenaAlignmentBytes / element_bytes(); }
  int64_t max_elements() const { return std::numeric_limits<int64_t>::max() / element_bytes(); }

  const Expression& expression_;
  const Path& path_;
  const std::vector<int>& sliced_;
  const LoweringOptions& options_;
  const size_t n_operands_;
  std::shared_ptr<Program> program_;

  std::vector<int> loops_;                // sliced indices by loop position
  std::vector<int> loop_of_;              // per index: loop position or -1
  std::vector<int> block_;                // output indices that are loops of steps, in order
  std::vector<int64_t> summed_extents_;   // of the loops that are summed
  std::vector<double> runs_;              // of a slice step by its level, in all blocks
  std::vector<std::vector<int>> orders_;  // per tensor of the path
  std::vector<bool> formed_;              // per operand: a unary step sums private indices
  std::vector<Node> nodes_;               // operands first
  std::vector<int64_t> offsets_;          // per node
  std::vector<Draft> drafts_;
  std::vector<int> tensor_node_;  // per tensor of the path
};

absl::Status Lowering::CheckArguments() const {
  if (!IsContractionDType(options_.dtype)) {
    return Error(Reason::kUnsupportedDtype,
                 StrCat("a contraction cannot be done in ", DTypeName(options_.dtype)));
  }
  if (!options_.varying.empty() && options_.varying.size() != n_operands_) {
    return Error(Reason::kBadExpression,
                 StrCat(options_.varying.size(), " varying flags for ", n_operands_, " operands"));
  }
  if (path_.pairs.size() + 1 != n_operands_) {
    return Error(Reason::kBadPath, StrCat("the path has ", path_.pairs.size(), " pairs for ",
                                          n_operands_, " operands"))
        .Field("path.steps");
  }
  std::vector<bool> consumed(n_operands_ + path_.pairs.size(), false);
  for (size_t s = 0; s < path_.pairs.size(); ++s) {
    for (const int tensor : {path_.pairs[s].first, path_.pairs[s].second}) {
      if (tensor < 0 || tensor >= static_cast<int>(n_operands_ + s) || consumed[tensor]) {
        return Error(Reason::kBadPath, StrCat("path step ", s, " cannot consume tensor ", tensor))
            .Field(StrCat("path.steps[", s, "]"));
      }
      consumed[tensor] = true;
    }
  }
  std::vector<bool> seen(expression_.sizes.size(), false);
  for (size_t i = 0; i < sliced_.size(); ++i) {
    const int index = sliced_[i];
    if (index < 0 || index >= static_cast<int>(seen.size()) || seen[index]) {
      return Error(Reason::kBadSlice, StrCat("index ", index, " cannot be sliced, or is twice"))
          .Field(StrCat("sliced[", i, "]"));
    }
    seen[index] = true;
  }
  return absl::OkStatus();
}

// An index without values is no loop even if it is to be sliced: it stays a mode of extent 0, so
// that every block has a slice and comes out as zeros (or empty).
absl::Status Lowering::SetLoops() {
  const std::vector<int>& output = expression_.output;
  const auto is_member = [](const std::vector<int>& list, int index) {
    return std::find(list.begin(), list.end(), index) != list.end();
  };
  std::vector<int> output_loops, summed, empty;
  for (const int index : output) {
    if (expression_.sizes[index] > 0 && is_member(sliced_, index)) output_loops.push_back(index);
  }
  for (const int index : sliced_) {
    if (expression_.sizes[index] == 0) {
      empty.push_back(index);
    } else if (!is_member(output, index)) {
      summed.push_back(index);
    }
  }
  TENON_RETURN_IF_ERROR(SetResult(output_loops));
  TENON_RETURN_IF_ERROR(CountSlices(output_loops, summed));
  summed = OrderSummedLoops(expression_, path_, sliced_, std::move(summed),
                            program_->descriptor_.block_elements);
  for (const int index : summed) {
    const int64_t extent = expression_.sizes[index];
    summed_extents_.push_back(extent);
    program_->sliced_.push_back(tenon_sliced_index{extent, 0, 0, 0});
  }
  loops_ = std::move(output_loops);
  loops_.insert(loops_.end(), summed.begin(), summed.end());
  loop_of_.assign(expression_.sizes.size(), -1);
  for (size_t i = 0; i < loops_.size(); ++i) loop_of_[loops_[i]] = static_cast<int>(i);
  program_->sliced_order_ = loops_;
  program_->sliced_order_.insert(program_->sliced_order_.end(), empty.begin(), empty.end());
  return absl::OkStatus();
}

absl::Status Lowering::CountSlices(const std::vector<int>& output_loops,
                                   const std::vector<int>& summed) {
  tenon_program& descriptor = program_->descriptor_;
  descriptor.n_blocks = 1;
  descriptor.slices_per_block = 1;
  int64_t all_slices = 1;
  for (const std::vector<int>* loops : {&output_loops, &summed}) {
    for (const int index : *loops) {
      const int64_t extent = expression_.sizes[index];
      if (__builtin_mul_overflow(all_slices, extent, &all_slices) || all_slices > kMaxSlices) {
        return Error(Reason::kOverflow, "the number of slices exceeds 2^62").Field("sliced");
      }
      (loops == &output_loops ? descriptor.n_blocks : descriptor.slices_per_block) *= extent;
    }
  }
  return absl::OkStatus();
}

absl::Status Lowering::SetResult(const std::vector<int>& output_loops) {
  program_->output_spec_.dtype = options_.dtype;
  std::vector<int64_t>& shape = program_->output_spec_.shape;
  for (const int index : expression_.output) shape.push_back(expression_.sizes[index]);
  TENON_RETURN_IF_ERROR(CheckedByteCount(program_->output_spec_).status());
  const std::vector<int64_t> strides = StridesOf(shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    const int index = expression_.output[i];
    if (std::find(output_loops.begin(), output_loops.end(), index) != output_loops.end()) {
      program_->sliced_.push_back(tenon_sliced_index{shape[i], 1, 0, strides[i]});
      continue;
    }
    program_->block_shape_.push_back(shape[i]);
    program_->block_strides_.push_back(strides[i]);
    if (shape[i] != 1) block_.push_back(index);
  }
  TENON_ASSIGN_OR_RETURN(program_->descriptor_.block_elements,
                         CheckedElementCount(program_->block_shape_));
  return absl::OkStatus();
}

absl::Status Lowering::AddOperands() {
  for (size_t k = 0; k < n_operands_; ++k) {
    TensorSpec spec{options_.dtype, {}};
    for (const int index : expression_.inputs[k]) spec.shape.push_back(expression_.sizes[index]);
    const absl::Status fits = CheckedByteCount(spec).status();
    if (!fits.ok()) {
      return Error(Reason::kOverflow, StrCat("operand ", k, ": ", std::string(fits.message())))
          .Field(StrCat("operands[", k, "].spec.shape"));
    }
    nodes_.push_back(MakeOperand(k, spec.shape));
    program_->operand_elements_.push_back(nodes_.back().elements);
  }
  return absl::OkStatus();
}

// A repeated index runs along the diagonal: its strides add up.
Node Lowering::MakeOperand(size_t k, const std::vector<int64_t>& shape) const {
  Node node;
  node.operand = static_cast<int>(k);
  node.varying = !options_.varying.empty() && options_.varying[k];
  node.elements = *CheckedElementCount(shape);
  const std::vector<int64_t> strides = StridesOf(shape);
  std::vector<std::pair<int64_t, int>> axes;  // stride, index
  for (size_t i = 0; i < shape.size(); ++i) {
    const int index = expression_.inputs[k][i];
    const int loop = loop_of_[index];
    if (loop >= 0) {
      const auto term = std::find_if(node.slice_terms.begin(), node.slice_terms.end(),
                                     [&](const auto& other) { return other.sliced == loop; });
      if (term != node.slice_terms.end()) {
        term->stride += strides[i];
      } else {
        node.slice_terms.push_back(tenon_slice_term{loop, 0, strides[i]});
      }
      node.level = std::max(node.level, loop + 1);
    } else if (shape[i] != 1) {
      const auto axis = std::find_if(axes.begin(), axes.end(),
                                     [&](const auto& other) { return other.second == index; });
      if (axis != axes.end()) {
        axis->first += strides[i];
      } else {
        axes.emplace_back(strides[i], index);
      }
    }
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  for (const auto& [stride, index] : axes) {
    node.axes.indices.push_back(index);
    node.axes.strides.push_back(stride);
  }
  return node;
}

void Lowering::ChooseOrders() {
  const std::vector<bool> is_private = PrivateIndices(expression_);
  std::vector<int> no_loops = loops_;
  for (size_t index = 0; index < expression_.sizes.size(); ++index) {
    if (expression_.sizes[index] == 1 && loop_of_[index] < 0) no_loops.push_back(index);
  }
  std::vector<std::vector<int>> indices = TensorIndices(expression_, path_, no_loops);
  std::vector<std::vector<int>> natural;
  for (size_t k = 0; k < n_operands_; ++k) {
    natural.push_back(nodes_[k].axes.indices);
    std::erase_if(natural[k], [&](int index) { return is_private[index]; });
    std::erase_if(indices[k], [&](int index) { return is_private[index]; });
    formed_.push_back(natural[k].size() < nodes_[k].axes.indices.size());
  }
  constexpr int64_t kLineBytes = 64;
  orders_ = ChooseAxisOrders(
      {path_, expression_.sizes, indices, natural, formed_, block_, kLineBytes / element_bytes()});
}

absl::Status Lowering::DraftSteps() {
  tensor_node_.resize(n_operands_ + path_.pairs.size());
  if (path_.pairs.empty()) {
    return DraftStep(TENON_STEP_UNARY, 0, -1, block_, /*is_last=*/true).status();
  }
  for (size_t s = 0; s < path_.pairs.size(); ++s) {
    TENON_ASSIGN_OR_RETURN(const int a, DraftOperand(path_.pairs[s].first));
    TENON_ASSIGN_OR_RETURN(const int b, DraftOperand(path_.pairs[s].second));
    const size_t result = n_operands_ + s;
    const bool is_last = s + 1 == path_.pairs.size();
    TENON_ASSIGN_OR_RETURN(tensor_node_[result],
                           DraftStep(TENON_STEP_CONTRACT, a, b, orders_[result], is_last));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Lowering::DraftOperand(int tensor) {
  if (tensor >= static_cast<int>(n_operands_)) return tensor_node_[tensor];
  if (!formed_[tensor]) return tensor;
  return DraftStep(TENON_STEP_UNARY, tensor, -1, orders_[tensor], /*is_last=*/false);
}

// The last step runs in every slice, because it adds to the partial sum.
absl::StatusOr<int> Lowering::DraftStep(int kind, int a, int b, const std::vector<int>& axes,
                                        bool is_last) {
  TENON_ASSIGN_OR_RETURN(Node result, MakeResult(axes, is_last));
  for (const int operand : {a, b}) {
    if (operand < 0) continue;
    result.level = std::max(result.level, nodes_[operand].level);
    result.varying = result.varying || nodes_[operand].varying;
    nodes_[operand].reader = static_cast<int>(drafts_.size());
  }
  Draft draft;
  draft.kind = kind;
  draft.a = a;
  draft.b = b;
  draft.c = static_cast<int>(nodes_.size());
  if (is_last || result.level > 0) {
    draft.phase = TENON_PHASE_SLICE;
    draft.level = is_last ? n_loops() : result.level;
    result.space = is_last ? TENON_SPACE_RESULT : TENON_SPACE_ARENA;
  } else {
    draft.phase = result.varying ? TENON_PHASE_SET : TENON_PHASE_CONSTANT;
    result.space = result.varying ? TENON_SPACE_SET : TENON_SPACE_CONSTANT;
  }
  result.writer = static_cast<int>(drafts_.size());
  draft.groups =
      MakeModes(nodes_[a].axes, b < 0 ? nullptr : &nodes_[b].axes, result.axes, expression_.sizes);
  nodes_.push_back(std::move(result));
  drafts_.push_back(std::move(draft));
  return static_cast<int>(nodes_.size()) - 1;
}

absl::StatusOr<Node> Lowering::MakeResult(const std::vector<int>& axes, bool is_last) const {
  Node node;
  std::vector<int64_t> shape;
  shape.reserve(axes.size());
  for (const int index : axes) shape.push_back(expression_.sizes[index]);
  const absl::StatusOr<int64_t> elements = CheckedElementCount(shape);
  if (!elements.ok() || *elements > max_elements()) {
    return Error(Reason::kOverflow, StrCat("the path forms a tensor of ", axes.size(),
                                           " indices whose bytes do not fit in 63 bits"))
        .Field("path.steps")
        .Meta("indices", axes.size())
        .Meta("is_result", is_last);
  }
  node.axes = {axes, StridesOf(shape)};
  node.elements = *elements;
  return node;
}

// Paths often jump between subtrees, which keeps more results alive than it needs.
void Lowering::SortDrafts() {
  std::vector<TreeStep> tree;
  for (const Draft& draft : drafts_) {
    const int right = draft.b < 0 ? -1 : nodes_[draft.b].writer;
    tree.push_back({nodes_[draft.a].writer, right, nodes_[draft.c].elements});
  }
  const std::vector<int> order = OrderSteps(tree);
  std::vector<int> position(order.size());
  std::vector<Draft> sorted;
  for (const int draft : order) {
    position[draft] = static_cast<int>(sorted.size());
    sorted.push_back(std::move(drafts_[draft]));
  }
  drafts_ = std::move(sorted);
  for (Node& node : nodes_) {
    if (node.writer >= 0) node.writer = position[node.writer];
    if (node.reader >= 0) node.reader = position[node.reader];
  }
}

absl::Status Lowering::PlaceTensors() {
  offsets_.assign(nodes_.size(), 0);
  tenon_program& descriptor = program_->descriptor_;
  TENON_ASSIGN_OR_RETURN(descriptor.constant_elements, PlaceSpace(TENON_SPACE_CONSTANT));
  TENON_ASSIGN_OR_RETURN(descriptor.set_elements, PlaceSpace(TENON_SPACE_SET));
  TENON_ASSIGN_OR_RETURN(descriptor.arena_elements, PlaceSpace(TENON_SPACE_ARENA));
  program_->kept_elements_ = 0;
  for (const Node& node : nodes_) {
    if (node.space != TENON_SPACE_ARENA || !IsKept(node)) continue;
    const int64_t pieces = (node.elements + alignment_elements() - 1) / alignment_elements();
    program_->kept_elements_ += pieces * alignment_elements();
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Lowering::PlaceSpace(int space) {
  std::vector<int> members;
  std::vector<Lifetime> lifetimes;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.space != space) continue;
    members.push_back(static_cast<int>(i));
    lifetimes.push_back(Lifetime{node.elements, node.writer, node.reader,
                                 drafts_[node.writer].level, IsKept(node)});
  }
  TENON_ASSIGN_OR_RETURN(const ArenaPlan plan,
                         PlanArena(lifetimes, alignment_elements(), max_elements()));
  for (size_t i = 0; i < members.size(); ++i) offsets_[members[i]] = plan.offsets[i];
  return plan.elements;
}

// Whether its reader runs more often than its writer.
bool Lowering::IsKept(const Node& node) const {
  const Draft& writer = drafts_[node.writer];
  const Draft& reader = drafts_[node.reader];
  return reader.phase != writer.phase || reader.level != writer.level;
}

// Gives up kept tensors until all that is formed fits, as far as that helps.
absl::Status Lowering::MeetMemoryLimit() {
  if (options_.intermediate_bytes <= 0) return absl::OkStatus();
  const tenon_program& descriptor = program_->descriptor_;
  const int64_t limit = options_.intermediate_bytes / element_bytes();
  const bool varies =
      std::find(options_.varying.begin(), options_.varying.end(), true) != options_.varying.end();
  const double sets = varies ? 2 : 1;
  std::vector<double> runs = {1, sets};
  for (const double at_level : runs_) runs.push_back(sets * at_level);
  std::vector<ReuseStep> steps;
  for (const Draft& draft : drafts_) {
    const Node& result = nodes_[draft.c];
    // Ranks: constant, set, then the levels of slice steps.
    steps.push_back(
        {result.reader, draft.phase + draft.level, FlopsOfOneRun(draft), result.elements});
  }
  for (;;) {
    const int64_t needed =
        descriptor.constant_elements + descriptor.set_elements + descriptor.arena_elements;
    if (needed <= limit) return absl::OkStatus();
    const int given_up = ReduceReuse(runs, needed - limit, steps);
    if (given_up == 0) return absl::OkStatus();
    program_->given_up_results_ += given_up;
    for (size_t i = 0; i < steps.size(); ++i) RunAtRank(steps[i].rank, drafts_[i]);
    TENON_RETURN_IF_ERROR(PlaceTensors());
  }
}

void Lowering::RunAtRank(int rank, Draft& draft) {
  draft.phase = std::min<int>(rank, TENON_PHASE_SLICE);
  draft.level = rank - draft.phase;
  Node& result = nodes_[draft.c];
  if (result.space == TENON_SPACE_RESULT) return;
  constexpr int kSpaces[] = {TENON_SPACE_CONSTANT, TENON_SPACE_SET, TENON_SPACE_ARENA};
  result.space = kSpaces[draft.phase];
}

tenon_tensor_ref Lowering::EmitRef(int node_index) {
  tenon_tensor_ref ref{};
  if (node_index < 0) return ref;
  Node& node = nodes_[node_index];
  ref.space = node.space;
  ref.index = node.operand;
  ref.offset = offsets_[node_index];
  ref.extent_elements = node.elements;
  if (!node.slice_terms.empty()) {
    program_->slice_terms_.push_back(std::move(node.slice_terms));
    ref.slice_terms = program_->slice_terms_.back().data();
    ref.n_slice_terms = static_cast<int32_t>(program_->slice_terms_.back().size());
  }
  return ref;
}

void Lowering::EmitSteps() {
  std::stable_sort(drafts_.begin(), drafts_.end(),
                   [](const Draft& x, const Draft& y) { return x.phase < y.phase; });
  for (const Draft& draft : drafts_) {
    tenon_step step{};
    step.struct_size = sizeof step;
    step.kind = draft.kind;
    step.phase = draft.phase;
    step.level = draft.level;
    step.a = EmitRef(draft.a);
    step.b = EmitRef(draft.b);
    step.c = EmitRef(draft.c);
    step.n_batch = static_cast<int32_t>(draft.groups[kBatch].size());
    step.n_m = static_cast<int32_t>(draft.groups[kM].size());
    step.n_n = static_cast<int32_t>(draft.groups[kN].size());
    step.n_k = static_cast<int32_t>(draft.groups[kK].size());
    std::vector<tenon_mode>& modes = program_->modes_.emplace_back();
    for (const auto& group : draft.groups) modes.insert(modes.end(), group.begin(), group.end());
    step.modes = modes.data();
    program_->steps_.push_back(step);
    program_->largest_intermediate_ =
        std::max(program_->largest_intermediate_, nodes_[draft.c].elements);
    const bool in_slices = draft.phase == TENON_PHASE_SLICE;
    const double flops = FlopsOfOneRun(draft) * (in_slices ? runs_[draft.level] : 1);
    if (!in_slices) program_->hoisted_flops_ += flops;
    program_->total_flops_ += flops;
  }
}

void Lowering::DivideIntoGroups() {
  const tenon_program& descriptor = program_->descriptor_;
  const SliceGroups groups =
      DivideSlices(descriptor.slices_per_block, descriptor.block_elements, summed_extents_);
  program_->groups_per_block_ = groups.groups;
  program_->group_slices_ = groups.group_slices;
  const int output_loops = n_loops() - static_cast<int>(summed_extents_.size());
  runs_ = RunsByLevel(output_loops, descriptor.n_blocks, summed_extents_, groups);
}

double Lowering::FlopsOfOneRun(const Draft& draft) const {
  const bool is_unary = draft.kind == TENON_STEP_UNARY;
  const bool is_complex = IsComplex(options_.dtype);
  const double per_iteration = is_unary ? (is_complex ? 2 : 1) : (is_complex ? 8 : 2);
  return per_iteration * Iterations(draft.groups);
}

void Lowering::Finish() {
  tenon_program& descriptor = program_->descriptor_;
  descriptor.struct_size = sizeof descriptor;
  descriptor.dtype = static_cast<int32_t>(options_.dtype);
  descriptor.n_operands = static_cast<int32_t>(n_operands_);
  descriptor.n_steps = static_cast<int32_t>(program_->steps_.size());
  descriptor.steps = program_->steps_.data();
  descriptor.n_sliced = n_loops();
  descriptor.accumulate_double = options_.accumulate_double;
  descriptor.sliced = program_->sliced_.data();
  descriptor.operand_elements = program_->operand_elements_.data();
  descriptor.normalize = options_.normalize;
  program_->varying_.assign(options_.varying.begin(), options_.varying.end());
  descriptor.varying = program_->varying_.empty() ? nullptr : program_->varying_.data();
  const auto fingerprint = FingerprintProgram(descriptor, program_->group_slices_);
  std::copy(fingerprint.begin(), fingerprint.end(), descriptor.fingerprint);
}

absl::StatusOr<std::shared_ptr<const Program>> LowerProgram(const Expression& expression,
                                                            const Path& path,
                                                            const std::vector<int>& sliced,
                                                            const LoweringOptions& options) {
  return Lowering(expression, path, sliced, options).Run();
}

}  // namespace tenon::contraction
