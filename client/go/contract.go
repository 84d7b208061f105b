package main

import (
	"context"
	"io"

	pb "tenon/v1"
)

// contract contracts along an einsum text. Small operands travel in the header, large ones in
// chunks that are sent once the server has accepted the header, so that a refused call uploads
// nothing.
func contract(ctx context.Context, service pb.ContractionServiceClient, subscripts string,
	operands ...tensor) (tensor, error) {
	ctx, cancel := context.WithCancel(ctx) // whichever way this returns, the server stops too
	defer cancel()
	stream, err := service.Contract(ctx)
	if err != nil {
		return tensor{}, err
	}
	chunkSize := int32(chunkBytes)
	header := &pb.ContractHeader{
		RequestId:  newRequestID(),
		Expression: &pb.ContractHeader_Einsum{Einsum: &pb.Einsum{Subscripts: subscripts}},
		Result:     &pb.ContractResultOptions{ChunkBytes: &chunkSize},
	}
	for _, operand := range operands {
		header.GetEinsum().Operands = append(header.GetEinsum().Operands,
			&pb.Operand{Spec: operand.spec(), InlineData: operand.inline()})
	}
	frame := &pb.ContractRequest{Frame: &pb.ContractRequest_Header{Header: header}}
	// io.EOF from Send says that the call has ended; Recv tells how.
	if err := stream.Send(frame); err != nil && err != io.EOF {
		return tensor{}, err
	}
	return receiveResult(stream, operands)
}

func receiveResult(stream pb.ContractionService_ContractClient, operands []tensor) (tensor, error) {
	var spec *pb.TensorSpec
	var data []byte
	for {
		answer, err := stream.Recv()
		if err == io.EOF { // status OK
			return tensorOf(spec, data), nil
		}
		if err != nil {
			return tensor{}, err
		}
		switch frame := answer.Frame.(type) {
		case *pb.ContractResponse_Single: // the whole answer to a small call
			spec, data = frame.Single.Results[0].Spec, frame.Single.Results[0].InlineData
		case *pb.ContractResponse_Accepted:
			if err := sendOperands(stream, operands); err != nil && err != io.EOF {
				return tensor{}, err
			}
		case *pb.ContractResponse_Result:
			spec, data = frame.Result.Spec, frame.Result.InlineData
		case *pb.ContractResponse_Chunk:
			data = append(data, frame.Chunk.Data...)
		}
	}
}

func sendOperands(stream pb.ContractionService_ContractClient, operands []tensor) error {
	for i, operand := range operands {
		err := operand.chunks(0, i, func(chunk *pb.TensorChunk) error {
			return stream.Send(&pb.ContractRequest{Frame: &pb.ContractRequest_Chunk{Chunk: chunk}})
		})
		if err != nil {
			return err
		}
	}
	return stream.CloseSend()
}
