package main

import (
	"encoding/binary"
	"math"

	pb "tenon/v1"
)

// The wire's limits (tensor.proto): what is smaller travels inside the message that describes it,
// the rest in chunks.
const (
	inlineLimit = 65536
	chunkBytes  = 128 << 10
)

// tensor is dense and in C order, as on the wire.
type tensor struct {
	shape  []int64
	values []float64
}

func (t tensor) spec() *pb.TensorSpec {
	return &pb.TensorSpec{Dtype: pb.DataType_DATA_TYPE_FLOAT64, Shape: t.shape}
}

func (t tensor) bytes() []byte {
	data := make([]byte, 8*len(t.values))
	for i, value := range t.values {
		binary.LittleEndian.PutUint64(data[8*i:], math.Float64bits(value))
	}
	return data
}

// inline returns the bytes where they may stand inside a message, else nil.
func (t tensor) inline() []byte {
	if 8*len(t.values) >= inlineLimit {
		return nil
	}
	return t.bytes()
}

// chunks calls send with the pieces of a tensor that is not inline, in order.
func (t tensor) chunks(set int64, operand int, send func(*pb.TensorChunk) error) error {
	if t.inline() != nil {
		return nil
	}
	data := t.bytes()
	for begin := 0; begin < len(data); begin += chunkBytes {
		end := begin + chunkBytes
		if end > len(data) {
			end = len(data)
		}
		chunk := &pb.TensorChunk{
			Set: set, Operand: int32(operand), OffsetBytes: int64(begin), Data: data[begin:end]}
		if err := send(chunk); err != nil {
			return err
		}
	}
	return nil
}

func tensorOf(spec *pb.TensorSpec, data []byte) tensor {
	values := make([]float64, len(data)/8)
	for i := range values {
		values[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
	}
	return tensor{spec.Shape, values}
}

// noise is a matrix of numbers in [0, 1) that are the same in every language.
func noise(seed, rows, columns int64) tensor {
	values := make([]float64, rows*columns)
	for i := range values {
		seed = (seed*1103515245 + 12345) % (1 << 31)
		values[i] = float64(seed) / (1 << 31)
	}
	return tensor{[]int64{rows, columns}, values}
}

func firstColumns(t tensor, width int64) tensor {
	var values []float64
	for row := int64(0); row < t.shape[0]; row++ {
		values = append(values, t.values[row*t.shape[1]:row*t.shape[1]+width]...)
	}
	return tensor{[]int64{t.shape[0], width}, values}
}
