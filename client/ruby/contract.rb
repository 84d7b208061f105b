# frozen_string_literal: true

require 'securerandom'
require 'tenon/v1/contraction_services_pb'
require_relative 'tensor'

# Contracts along an einsum text. Small operands travel in the header, large ones in chunks that are
# sent once the server has accepted the header, so that a refused call uploads nothing.
class Contraction
  def initialize(subscripts, operands)
    @subscripts = subscripts
    @operands = operands
    @accepted = Queue.new
  end

  # The result, from a stub of ContractionService. The server does not work beyond the deadline.
  def run(service, deadline:)
    call = service.contract(frames, deadline: deadline, return_op: true)
    spec = nil
    data = String.new
    call.execute.each do |answer|
      case answer.frame
      when :single # the whole answer to a small call
        spec = answer.single.results[0].spec
        data << answer.single.results[0].inline_data
        @accepted.close # nothing more is to be sent
      when :accepted then @accepted << true
      when :result
        spec = answer.result.spec
        data << answer.result.inline_data
      when :chunk then data << answer.chunk.data
      end
    end
    Tensor.from_wire(spec, data)
  ensure
    @accepted.close # the thread that sends frames ends
    call&.cancel # however this is left, the server stops too
  end

  private

  # gRPC draws these frames in a thread of its own.
  def frames
    Enumerator.new do |frames|
      frames << Tenon::V1::ContractRequest.new(header: header)
      next unless @accepted.pop # nil: the call has ended

      @operands.each_with_index do |operand, index|
        operand.chunks(operand: index).each do |chunk|
          frames << Tenon::V1::ContractRequest.new(chunk: chunk)
        end
      end
    end
  end

  def header
    operands = @operands.map { |operand| Tenon::V1::Operand.new(operand.described) }
    Tenon::V1::ContractHeader.new(
      request_id: SecureRandom.uuid,
      einsum: Tenon::V1::Einsum.new(subscripts: @subscripts, operands: operands),
      result: Tenon::V1::ContractResultOptions.new(chunk_bytes: Tensor::CHUNK_BYTES)
    )
  end
end
