package main

import (
	"context"
	"fmt"
	"io"

	pb "tenon/v1"
)

// inFlight is how many projections may be on their way without an answer. One that is sent takes a
// place, its answer gives it back.
const inFlight = 2

// measure scores projections of a data set. They are sent by a goroutine of its own, and report is
// called with each one's scores as they come, while later ones are still being sent.
func measure(ctx context.Context, service pb.MeasurementServiceClient, dataset tensor,
	projections []tensor, report func(*pb.MeasureScores)) error {
	ctx, cancel := context.WithCancel(ctx) // ends the call on the server, and the sender with it
	defer cancel()
	stream, err := service.Measure(ctx)
	if err != nil {
		return err
	}
	places := make(chan struct{}, inFlight)
	go func() {
		// io.EOF from Send says that the call has ended, and Recv tells how; what else fails here
		// must end the call, or Recv would wait for ever.
		if err := sendFrames(stream, dataset, projections, places); err != nil && err != io.EOF {
			cancel()
		}
	}()
	for {
		answer, err := stream.Recv()
		if err == io.EOF { // status OK
			return nil
		}
		if err != nil {
			return err
		}
		switch frame := answer.Frame.(type) {
		case *pb.MeasureResponse_Scores:
			report(frame.Scores)
			<-places
		case *pb.MeasureResponse_ItemError: // of this projection only: the stream goes on
			failed := frame.ItemError
			fmt.Printf("%s: %s %s\n", failed.Name, failed.Error.Reason, failed.Error.Field)
			<-places
		case *pb.MeasureResponse_Summary:
			fmt.Printf("%d scored, %d refused\n", frame.Summary.ScoredCount, frame.Summary.ErrorCount)
		}
	}
}

func sendFrames(stream pb.MeasurementService_MeasureClient, dataset tensor, projections []tensor,
	places chan struct{}) error {
	if err := sendDataset(stream, dataset); err != nil {
		return err
	}
	for i, projection := range projections {
		select {
		case places <- struct{}{}:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		if err := sendProjection(stream, int64(i), projection); err != nil {
			return err
		}
	}
	return stream.CloseSend()
}

func sendDataset(stream pb.MeasurementService_MeasureClient, dataset tensor) error {
	k := int32(10)
	header := &pb.MeasureHeader{
		RequestId: newRequestID(),
		Specs: []*pb.MeasureSpec{
			{Id: "tnc", Parameters: &pb.MeasureSpec_TrustworthinessContinuity{
				TrustworthinessContinuity: &pb.TrustworthinessContinuityParameters{K: &k}}},
			{Id: "stress"}, // without parameters: the defaults
		},
		Dataset: &pb.MeasureHeader_DatasetInput{DatasetInput: &pb.DatasetInput{
			Spec: dataset.spec(), InlineData: dataset.inline()}},
		Source: &pb.MeasureHeader_ClientStream{ClientStream: &pb.ClientStreamSource{}},
	}
	err := stream.Send(&pb.MeasureRequest{Frame: &pb.MeasureRequest_Header{Header: header}})
	if err != nil {
		return err
	}
	return dataset.chunks(0, 0, func(chunk *pb.TensorChunk) error {
		return stream.Send(
			&pb.MeasureRequest{Frame: &pb.MeasureRequest_DatasetChunk{DatasetChunk: chunk}})
	})
}

func sendProjection(stream pb.MeasurementService_MeasureClient, index int64, points tensor) error {
	projection := &pb.Projection{
		Index: index, Name: fmt.Sprintf("first %d columns", points.shape[1]),
		Spec: points.spec(), InlineData: points.inline()}
	fmt.Println("sending", projection.Name)
	err := stream.Send(
		&pb.MeasureRequest{Frame: &pb.MeasureRequest_Projection{Projection: projection}})
	if err != nil {
		return err
	}
	return points.chunks(index, 0, func(chunk *pb.TensorChunk) error {
		return stream.Send(
			&pb.MeasureRequest{Frame: &pb.MeasureRequest_ProjectionChunk{ProjectionChunk: chunk}})
	})
}
