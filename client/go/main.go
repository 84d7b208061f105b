// A contraction, a stream of measurements and a refused call, through generated stubs.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"math"
	"os"
	"sort"
	"time"

	"google.golang.org/grpc"
	pb "tenon/v1"
)

func main() {
	address := os.Getenv("TENON_SERVER")
	if address == "" {
		address = "127.0.0.1:50551"
	}
	connection, err := grpc.Dial(address, grpc.WithInsecure())
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	// The deadline of every call below. The server hears of it and does not work beyond.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	contractions := pb.NewContractionServiceClient(connection)
	multiplyMatrices(ctx, contractions)
	scoreProjections(ctx, pb.NewMeasurementServiceClient(connection))

	// Refused at the header: index b is 3 long here and 4 long there.
	_, err = contract(ctx, contractions, "ab,bc->ac", noise(1, 2, 3), noise(2, 4, 2))
	fmt.Println(describe(err))
}

// multiplyMatrices contracts one pair that fits into messages, and one that needs chunks.
func multiplyMatrices(ctx context.Context, service pb.ContractionServiceClient) {
	for _, size := range []int64{8, 300} {
		product, err := contract(ctx, service, "ab,bc->ac", noise(1, size, 200), noise(2, 200, size))
		if err != nil {
			log.Fatal(describe(err))
		}
		sum, trace := 0.0, 0.0
		for i, value := range product.values {
			sum += value
			if int64(i)%(size+1) == 0 {
				trace += value
			}
		}
		fmt.Printf("product %d x %d: sum %.15g, trace %.15g\n", size, size, sum, trace)
	}
}

// scoreProjections drops columns of a data set: what does the rest still tell of it?
func scoreProjections(ctx context.Context, service pb.MeasurementServiceClient) {
	dataset := noise(3, 1000, 10)
	var projections []tensor
	for _, width := range []int64{1, 2, 4, 6, 9} {
		projections = append(projections, firstColumns(dataset, width))
	}
	projections[1].values[0] = math.NaN() // refused, and the stream goes on
	err := measure(ctx, service, dataset, projections, func(scores *pb.MeasureScores) {
		fmt.Printf("%s:", scores.Name)
		for _, spec := range scores.Specs {
			for _, key := range sortedKeys(spec.Values) {
				fmt.Printf(" %s %.15g", key, spec.Values[key])
			}
		}
		fmt.Println()
	})
	if err != nil {
		log.Fatal(describe(err))
	}
}

// newRequestID names a call in the server's log and reports.
func newRequestID() string {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		panic(err)
	}
	return fmt.Sprintf("go-%x", id)
}

func sortedKeys[Value any](items map[string]Value) []string {
	var keys []string
	for key := range items {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
