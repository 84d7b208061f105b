# frozen_string_literal: true

# A contraction, a stream of measurements and a refused call, through generated stubs.

require_relative 'contract'
require_relative 'errors'
require_relative 'measure'

# Contracts one pair that fits into messages, and one that needs chunks.
def multiply_matrices(service, deadline)
  [8, 300].each do |size|
    operands = [Tensor.noise(1, size, 200), Tensor.noise(2, 200, size)]
    values = Contraction.new('ab,bc->ac', operands).run(service, deadline: deadline).values
    sum = values.inject(:+)
    trace = (0...size).map { |i| values[i * (size + 1)] }.inject(:+)
    puts format('product %d x %d: sum %.15g, trace %.15g', size, size, sum, trace)
  end
end

# Drops columns of a data set: what does the rest still tell of it?
def score_projections(service, deadline)
  dataset = Tensor.noise(3, 1000, 10)
  projections = [1, 2, 4, 6, 9].map { |width| dataset.first_columns(width) }
  projections[1].values[0] = Float::NAN # refused, and the stream goes on
  Measurement.new(dataset, projections).run(service, deadline: deadline) do |scores|
    values = scores.specs.flat_map { |spec| spec.values.to_h.sort }
    puts "#{scores.name}:" + values.map { |key, value| format(' %s %.15g', key, value) }.join
  end
end

$stdout.sync = true
address = ENV.fetch('TENON_SERVER', '127.0.0.1:50551')
contractions = Tenon::V1::ContractionService::Stub.new(address, :this_channel_is_insecure)
measurements = Tenon::V1::MeasurementService::Stub.new(address, :this_channel_is_insecure)
deadline = Time.now + 60

begin
  multiply_matrices(contractions, deadline)
  score_projections(measurements, deadline)
rescue GRPC::BadStatus => e
  abort describe(e)
end

begin
  # Refused at the header: index b is 3 long here and 4 long there.
  operands = [Tensor.noise(1, 2, 3), Tensor.noise(2, 4, 2)]
  Contraction.new('ab,bc->ac', operands).run(contractions, deadline: deadline)
rescue GRPC::BadStatus => e
  puts describe(e)
end
