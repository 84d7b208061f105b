package main

import (
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// describe says what a failed call carries: code, stable reason, fields, text and figures.
func describe(err error) string {
	failure := status.Convert(err)
	words := []string{failure.Code().String()}
	figures := ""
	for _, detail := range failure.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo: // programs decide by the reason; unknown ones fall back to the code
			words = append(words, detail.Reason)
			for _, key := range sortedKeys(detail.Metadata) {
				figures += fmt.Sprintf(" [%s = %s]", key, detail.Metadata[key])
			}
		case *errdetails.BadRequest:
			for _, violation := range detail.FieldViolations {
				words = append(words, violation.Field)
			}
		case *errdetails.RetryInfo: // waiting helps
			words = append(words, fmt.Sprintf("(again in %v s)", detail.RetryDelay.Seconds))
		}
	}
	return strings.Join(words, " ") + ": " + failure.Message() + figures
}
