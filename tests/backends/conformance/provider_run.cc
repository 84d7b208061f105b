#include "tests/backends/conformance/provider_run.h"

#include <gtest/gtest.h>

#include <random>

#include "backends/core/error.h"

namespace tenon::testing {
namespace {

tenon_execution_options ExecutionOptions(const RunOptions& options) {
  tenon_execution_options execution{};
  execution.struct_size = sizeof(execution);
  execution.workers = options.workers;
  execution.threads_per_worker = options.threads_per_worker;
  return execution;
}

int64_t LastSlice(const tenon_program& program, const RunOptions& options) {
  return options.last_slice < 0 ? program.slices_per_block : options.last_slice;
}

}  // namespace

std::shared_ptr<plugin::Provider> MakeProvider(const tenon_provider_api* api,
                                               const std::string& options) {
  auto provider = plugin::Provider::Create(api, options);
  EXPECT_TRUE(provider.ok()) << provider.status();
  EXPECT_TRUE((*provider)->WarmUp().ok());
  return *provider;
}

std::unique_ptr<plugin::Compiled> CompileOrDie(plugin::Provider& provider,
                                               const tenon_program& program, int threads) {
  tenon_compile_options options{};
  options.struct_size = sizeof(options);
  options.threads = threads;
  auto compiled = provider.Compile(program, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return *std::move(compiled);
}

std::vector<const void*> Pointers(const std::vector<TestTensor>& operands) {
  std::vector<const void*> pointers;
  for (const TestTensor& tensor : operands) pointers.push_back(tensor.bytes.data());
  return pointers;
}

std::vector<TestTensor> RandomOperands(const tenon_program& program, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TestTensor> operands;
  for (int32_t i = 0; i < program.n_operands; ++i) {
    operands.push_back(RandomTensor(program.dtype, program.operand_elements[i], random));
  }
  return operands;
}

absl::StatusOr<std::vector<char>> RunGroup(plugin::Compiled& compiled, const tenon_program& program,
                                           const std::vector<TestTensor>& operands,
                                           const RunOptions& options) {
  plugin::HostMemory memory(INT64_MAX);
  TENON_ASSIGN_OR_RETURN(auto execution,
                         compiled.Begin(memory, Pointers(operands), ExecutionOptions(options)));
  TENON_RETURN_IF_ERROR(execution->BindSet(Pointers(operands)));
  constexpr char kNotANumber = '\xff';
  std::vector<char> bytes(program.block_elements * ElementBytes(program.dtype), kNotANumber);
  TENON_RETURN_IF_ERROR(execution->RunGroup(options.worker, options.block, options.first_slice,
                                            LastSlice(program, options), bytes.data()));
  return bytes;
}

void ExpectOracle(const tenon_program& program, const std::vector<TestTensor>& operands,
                  const std::vector<char>& bytes, int64_t terms, const RunOptions& options) {
  const OracleResult expected =
      RunOracle(program, operands, options.block, options.first_slice, LastSlice(program, options));
  const std::vector<Value> values = ReadValues(program.dtype, bytes.data(), program.block_elements);
  // |error| <= (terms + 4) eps sum|a||b|; complex products round four times as often.
  const double factor = (static_cast<double>(terms) + 4) * EpsilonOf(program.dtype) * 4;
  for (size_t i = 0; i < values.size(); ++i) {
    if (expected.magnitudes[i] == 0 && std::isnan(values[i].real())) continue;  // no step's element
    const double error = std::abs(values[i] - expected.values[i]);
    ASSERT_LE(error, factor * expected.magnitudes[i] + 1e-300)
        << "element " << i << " is " << values[i] << ", expected " << expected.values[i];
  }
}

}  // namespace tenon::testing
