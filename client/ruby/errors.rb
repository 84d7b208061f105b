# frozen_string_literal: true

require 'google/protobuf/well_known_types' # Any's is and unpack
require 'google/rpc/error_details_pb'

# Says what a failed call (GRPC::BadStatus) carries: code, stable reason, fields, text and figures.
def describe(failure)
  words = [failure.class.name.split('::').last]
  figures = ''
  (failure.to_rpc_status&.details || []).each do |detail|
    if detail.is(Google::Rpc::ErrorInfo)
      # Programs decide by the reason; unknown ones fall back to the code.
      info = detail.unpack(Google::Rpc::ErrorInfo)
      words << info.reason
      figures = info.metadata.to_h.sort.map { |key, value| " [#{key} = #{value}]" }.join
    elsif detail.is(Google::Rpc::BadRequest)
      words += detail.unpack(Google::Rpc::BadRequest).field_violations.map(&:field)
    elsif detail.is(Google::Rpc::RetryInfo) # waiting helps
      words << "(again in #{detail.unpack(Google::Rpc::RetryInfo).retry_delay.seconds} s)"
    end
  end
  "#{words.join(' ')}: #{failure.details}#{figures}"
end
