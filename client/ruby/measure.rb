# frozen_string_literal: true

require 'securerandom'
require 'tenon/v1/measurement_services_pb'
require_relative 'tensor'

# Scores projections of a data set. They are sent by a thread of gRPC's own, and their scores are
# read as they come, while later ones are still being sent.
class Measurement
  # Projections that may be on their way without an answer. One that is sent takes a place, its
  # answer gives it back.
  IN_FLIGHT = 2

  def initialize(dataset, projections)
    @dataset = dataset
    @projections = projections
    @places = Queue.new(Array.new(IN_FLIGHT, true))
  end

  # Yields the MeasureScores of each projection, from a stub of MeasurementService.
  def run(service, deadline:)
    call = service.measure(frames, deadline: deadline, return_op: true)
    call.execute.each do |answer|
      case answer.frame
      when :scores
        yield answer.scores
        @places << true
      when :item_error # of this projection only: the stream goes on
        failed = answer.item_error
        puts "#{failed.name}: #{failed.error.reason} #{failed.error.field}"
        @places << true
      when :summary
        puts "#{answer.summary.scored_count} scored, #{answer.summary.error_count} refused"
        @places.close # the thread that sends has no more to wait for
      end
    end
  ensure
    @places.close
    call&.cancel # however this is left, the server stops too
  end

  private

  def frames
    Enumerator.new do |frames|
      frames << Tenon::V1::MeasureRequest.new(header: header)
      @dataset.chunks.each do |chunk|
        frames << Tenon::V1::MeasureRequest.new(dataset_chunk: chunk)
      end
      @projections.each_with_index do |points, index|
        break unless @places.pop # nil: the call has ended

        send_projection(frames, points, index)
      end
    end
  end

  def send_projection(frames, points, index)
    name = "first #{points.shape[1]} columns"
    puts "sending #{name}"
    projection = Tenon::V1::Projection.new(index: index, name: name, **points.described)
    frames << Tenon::V1::MeasureRequest.new(projection: projection)
    points.chunks(set: index).each do |chunk|
      frames << Tenon::V1::MeasureRequest.new(projection_chunk: chunk)
    end
  end

  def header
    neighbours = Tenon::V1::TrustworthinessContinuityParameters.new(k: 10)
    Tenon::V1::MeasureHeader.new(
      request_id: SecureRandom.uuid,
      specs: [Tenon::V1::MeasureSpec.new(id: 'tnc', trustworthiness_continuity: neighbours),
              Tenon::V1::MeasureSpec.new(id: 'stress')], # without parameters: the defaults
      dataset_input: Tenon::V1::DatasetInput.new(@dataset.described),
      client_stream: Tenon::V1::ClientStreamSource.new
    )
  end
end
