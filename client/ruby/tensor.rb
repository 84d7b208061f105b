# frozen_string_literal: true

require 'tenon/v1/tensor_pb'

# A dense float64 tensor in C order, as on the wire.
class Tensor
  # The wire's limits (tensor.proto): what is smaller travels inside the message that describes it,
  # the rest in chunks.
  INLINE_LIMIT = 65_536
  CHUNK_BYTES = 128 * 1024

  attr_reader :shape, :values

  def initialize(shape, values)
    @shape = shape
    @values = values
  end

  def self.from_wire(spec, data)
    new(spec.shape.to_a, data.unpack('E*'))
  end

  # A matrix of numbers in [0, 1) that are the same in every language.
  def self.noise(seed, rows, columns)
    values = Array.new(rows * columns) do
      seed = (seed * 1_103_515_245 + 12_345) % 2**31
      seed / (2.0**31)
    end
    new([rows, columns], values)
  end

  def first_columns(width)
    rows = values.each_slice(shape[1]).flat_map { |row| row.first(width) }
    Tensor.new([shape[0], width], rows)
  end

  def spec
    Tenon::V1::TensorSpec.new(dtype: :DATA_TYPE_FLOAT64, shape: shape)
  end

  def bytes
    values.pack('E*')
  end

  # What describes the tensor in a message: its bytes only where they may stand inside it.
  def described
    inline? ? { spec: spec, inline_data: bytes } : { spec: spec }
  end

  # The pieces of a tensor that is not inline, in order.
  def chunks(set: 0, operand: 0)
    return [] if inline?

    data = bytes
    (0...data.bytesize).step(CHUNK_BYTES).lazy.map do |offset|
      Tenon::V1::TensorChunk.new(set: set, operand: operand, offset_bytes: offset,
                                 data: data.byteslice(offset, CHUNK_BYTES))
    end
  end

  private

  def inline?
    8 * values.size < INLINE_LIMIT
  end
end
